"""The networks that give each residue of a protein the probability to lie in the RCL.

Their layers, and the names of their parameters, are those of RCL-identifier (MIT license), so that
its checkpoints can be loaded.

Shapes: B proteins, L residues (padded), E numbers per residue, C channels. Every network is made
with the width E and its settings. It takes float32 ``[B, L, E]`` and a mask, bool ``[B, L]``, and
returns logits ``[B, L, 2]``: not RCL, RCL.

The mask is True for the residues of a protein. What stands behind its end has no influence: the
logits of a protein are the same in every batch, apart from rounding. Activations behind the end are
set to zero after every layer. Batch norm, pooling and interpolation average over residues only, and
an LSTM ends where the protein ends. Inner layers get the mask as float ``[B, 1, L]``. Networks of
RCL-identifier were trained on proteins that were padded with zeros to 1,024 residues; their mask is
True for all of these.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from virnucpro.rcl.settings import CnnSettings, LstmSettings, UnetSettings
from virnucpro.training.loop import MaskedBatchNorm

RCL = 1
"""Index of the class "residue of the RCL" in the logits."""


class RclCnn(nn.Module):
    """A stack of convolutions, each with batch norm, ReLU and dropout."""

    def __init__(self, width: int, settings: CnnSettings) -> None:
        super().__init__()
        ends = pairwise((width, *settings.channels))
        self.conv_layers = nn.ModuleList()
        for (before, after), kernel in zip(ends, settings.kernel_sizes, strict=True):
            conv = nn.Conv1d(before, after, kernel, padding=kernel // 2)
            self.conv_layers.append(nn.ModuleDict({"conv": conv, "bn": MaskedBatchNorm(after)}))
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Sequential(nn.Conv1d(settings.channels[-1], 2, 1))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``."""
        residues = mask[:, None].to(x.dtype)
        x = x.transpose(1, 2) * residues  # [B, E, L]
        for layer in self.conv_layers:
            conv, norm = layer.children()
            x = self.dropout(F.relu(norm(conv(x), residues)))  # zeros behind the end stay zeros
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)


class DoubleConv(nn.Module):
    """Two convolutions of 7 residues; ``[B, C, L]`` to ``[B, C', L]``."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv1d(inputs, outputs, 7, padding=3),
            MaskedBatchNorm(outputs),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv1d(outputs, outputs, 7, padding=3),
            MaskedBatchNorm(outputs),
            nn.ReLU(),
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the activations of the block."""
        for layer in self.double_conv:
            x = layer(x, mask) if isinstance(layer, MaskedBatchNorm) else layer(x)
        return x


class AttentionGate(nn.Module):
    """Weighs each residue of a skip connection by what the decoder knows there."""

    def __init__(self, gate: int, skip: int) -> None:
        super().__init__()
        self.W_gate = nn.Conv1d(gate, skip // 2, 1)
        self.W_skip = nn.Conv1d(skip, skip // 2, 1)
        self.psi = nn.Conv1d(skip // 2, 1, 1)

    def forward(self, gate: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """Return ``skip`` ``[B, C, L]`` times weights between 0 and 1 per residue."""
        inner = F.relu(self.W_gate(gate) + self.W_skip(skip))
        return skip * torch.sigmoid(self.psi(inner))  # weights [B, 1, L]


class RclUnet(nn.Module):
    """A U-Net along the sequence, with attention gates on its skip connections.

    With ``align_corners``, interpolation stretches the positions over the padded length, as in
    RCL-identifier. Else a position is placed in the middle of the two that it stands for, so that
    the logits do not depend on the padding.
    """

    align_corners = False

    def __init__(self, width: int, settings: UnetSettings) -> None:
        super().__init__()
        base_filters, dropout = settings.base_filters, settings.dropout
        channels = [base_filters * 2 ** min(level, 2) for level in range(settings.depth)]
        self.input_proj = nn.Conv1d(width, base_filters, 1)
        self.encoder_blocks = nn.ModuleList(
            DoubleConv(before, after, dropout)
            for before, after in pairwise([base_filters, *channels])
        )
        self.bottleneck = DoubleConv(channels[-1], 2 * channels[-1], dropout)
        gates, decoders = [], []
        below = 2 * channels[-1]
        for level in reversed(range(settings.depth)):
            after = base_filters * 2 ** max(level - 1, 0)
            gates.append(AttentionGate(below, channels[level]))
            decoders.append(DoubleConv(below + channels[level], after, dropout))
            below = after
        self.attention_gates = nn.ModuleList(gates if settings.attention else [])
        self.decoder_blocks = nn.ModuleList(decoders)
        self.output = nn.Sequential(
            nn.Conv1d(below, base_filters, 3, padding=1), nn.ReLU(), nn.Conv1d(base_filters, 2, 1)
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``.

        A position below the top stands for one residue or more; at an odd end it stands for those
        that there are.
        """
        length, padding = x.shape[1], -x.shape[1] % 2 ** len(self.encoder_blocks)
        masks = [F.pad(mask, (0, padding))[:, None].to(x.dtype)]
        x = F.pad(x, (0, 0, 0, padding)).transpose(1, 2)  # [B, E, L]
        x = self.input_proj(x * masks[0]) * masks[0]
        skips = []
        for block in self.encoder_blocks:
            skips.append(block(x, masks[-1]))
            present = F.avg_pool1d(masks[-1], 2)  # share of residues: 0, 0.5 or 1
            x = F.avg_pool1d(skips[-1], 2) / present.clamp(min=0.5)
            masks.append((present > 0).to(x.dtype))
        x, below = self.bottleneck(x, masks[-1]), masks.pop()
        corners = self.align_corners
        doubled = partial(F.interpolate, scale_factor=2, mode="linear", align_corners=corners)
        for level, skip in enumerate(reversed(skips)):
            present = doubled(below).clamp(min=0.25)
            below = masks.pop()
            x = doubled(x) / present * below
            if self.attention_gates:
                skip = self.attention_gates[level](x, skip)
            x = self.decoder_blocks[level](torch.cat([skip, x], dim=1), below)
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)[:, :length]


class RclLstm(nn.Module):
    """A bidirectional LSTM over the residues."""

    def __init__(self, width: int, settings: LstmSettings) -> None:
        super().__init__()
        hidden_dim, layers, dropout = settings.hidden_dim, settings.num_layers, settings.dropout
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(
            width, hidden_dim, layers, batch_first=True, bidirectional=True, dropout=between
        )
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Sequential(
            nn.Linear(2 * hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, 2),
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]`` of proteins of one residue or more.

        The pass from the end begins at the last residue.
        """
        lengths = mask.sum(1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.lstm(packed)
        states, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
        logits: torch.Tensor = self.fc(self.dropout(states))
        return logits


NETWORKS: dict[str, type[nn.Module]] = {"cnn": RclCnn, "unet": RclUnet, "lstm": RclLstm}
"""The kinds of networks. Each takes the width of the encoding, and its settings."""
