"""The networks that give each residue of a protein the probability to lie in the RCL.

Their layers, and the names of their parameters, are those of RCL-identifier (MIT license), so that
its checkpoints can be loaded.

Shapes: B proteins, L residues (padded), E numbers per residue, C channels. Every network takes
float32 ``[B, L, E]`` and returns logits ``[B, L, 2]``: not RCL, RCL.

Proteins of a batch differ in length. What stands behind the end of a protein is treated in one of
two ways, and a network must be used in the way in which it was trained:

* Without a mask, the padding takes part in the computation. Networks of RCL-identifier need this:
  they were trained on proteins that were padded with zeros to 1,024 residues.
* With a mask, bool ``[B, L]``, True for the residues of a protein, the padding has no influence:
  the logits of a protein are the same in every batch, apart from rounding. Activations behind the
  end are set to zero after every layer. Batch norm, pooling and interpolation average over residues
  only, and an LSTM ends where the protein ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import distributed, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from virnucpro.training.group import SumOverProcesses

RCL = 1
"""Index of the class "residue of the RCL" in the logits."""


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch norm whose statistics in training are those of the residues, without the padding.

    Where several processes train together, the statistics are those of the residues of all of them.
    Without a mask, and in evaluation, it is the batch norm of torch.
    """

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return ``x`` ``[B, C, L]`` normalised; ``mask`` is float ``[B, 1, L]``, 1 or 0."""
        if mask is None or not self.training:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        together = distributed.is_available() and distributed.is_initialized()
        # float32 also under mixed precision: a sum of 10,000 residues overflows float16.
        values, mask = x.float(), mask.float()
        sums = torch.cat([(values * mask).sum((0, 2)), mask.sum().reshape(1)])
        if together:
            sums = SumOverProcesses.apply(sums)  # type: ignore[no-untyped-call]
        count = sums[-1].clamp(min=1)
        mean = sums[:-1] / count
        centred = values - mean[:, None]
        squares = (centred.square() * mask).sum((0, 2))
        if together:
            squares = SumOverProcesses.apply(squares)  # type: ignore[no-untyped-call]
        variance = squares / count
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            share = self.momentum or 0.0
            self.running_mean.lerp_(mean.detach(), share)
            # As in torch, the running variance is the unbiased estimate.
            unbiased = variance.detach() * count / (count - 1).clamp(min=1)
            self.running_var.lerp_(unbiased, share)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale[:, None] + self.bias[:, None]).to(x.dtype)


def _zeroed(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return ``x`` ``[B, C, L]`` with zeros behind the end of each protein, if there is a mask."""
    return x if mask is None else x * mask


class ConvLayer(nn.Module):
    """Convolution over residues, batch norm, ReLU and dropout; ``[B, C, L]`` to ``[B, C', L]``."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
        self.bn = MaskedBatchNorm(outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the activations of the layer; ``mask`` is float ``[B, 1, L]``, 1 or 0."""
        activations = self.dropout(F.relu(self.bn(self.conv(x), mask)))
        return _zeroed(activations, mask)


class RclCnn(nn.Module):
    """A stack of convolutions."""

    def __init__(
        self,
        width: int,
        channels: Sequence[int] = (256, 128, 64, 32),
        kernel_sizes: Sequence[int] = (7, 5, 5, 3),
        dropout: float = 0.3,
    ) -> None:
        """``width`` is the number of values per residue, E."""
        super().__init__()
        inputs = (width, *channels)
        self.conv_layers = nn.ModuleList(
            ConvLayer(before, after, kernel, dropout)
            for before, after, kernel in zip(inputs, channels, kernel_sizes, strict=False)
        )
        self.output = nn.Sequential(nn.Conv1d(channels[-1], 2, 1))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``; ``mask`` is bool ``[B, L]``."""
        residues = None if mask is None else mask[:, None].to(x.dtype)
        x = _zeroed(x.transpose(1, 2), residues)  # [B, E, L]
        for layer in self.conv_layers:
            x = layer(x, residues)
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

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the activations of the block; ``mask`` is float ``[B, 1, L]``, 1 or 0."""
        for layer in self.double_conv:
            # ReLU and dropout leave zeros as they are.
            x = _zeroed(layer(x, mask), mask) if isinstance(layer, MaskedBatchNorm) else layer(x)
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
    """A U-Net along the sequence, with attention gates on its skip connections."""

    def __init__(
        self,
        width: int,
        base_filters: int = 32,
        depth: int = 4,
        dropout: float = 0.25,
        attention: bool = True,
    ) -> None:
        """``width`` is the number of values per residue, E."""
        super().__init__()
        channels = [base_filters * 2 ** min(level, 2) for level in range(depth)]
        self.input_proj = nn.Conv1d(width, base_filters, 1)
        self.encoder_blocks = nn.ModuleList(
            DoubleConv(before, after, dropout)
            for before, after in zip([base_filters, *channels], channels, strict=False)
        )
        self.bottleneck = DoubleConv(channels[-1], 2 * channels[-1], dropout)
        gates, decoders = [], []
        below = 2 * channels[-1]
        for level in reversed(range(depth)):
            after = base_filters * 2 ** max(level - 1, 0)
            gates.append(AttentionGate(below, channels[level]))
            decoders.append(DoubleConv(below + channels[level], after, dropout))
            below = after
        self.attention_gates = nn.ModuleList(gates if attention else [])
        self.decoder_blocks = nn.ModuleList(decoders)
        self.output = nn.Sequential(
            nn.Conv1d(below, base_filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(base_filters, 2, 1),
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``; ``mask`` is bool ``[B, L]``.

        Without a mask, L must be at least 2 to the power of the depth.
        """
        if mask is not None:
            return self._masked(x, mask)
        x = self.input_proj(x.transpose(1, 2))  # [B, C, L]
        skips = []
        for block in self.encoder_blocks:
            skips.append(block(x))
            x = F.avg_pool1d(skips[-1], 2)
        x = self.bottleneck(x)
        for level, skip in enumerate(reversed(skips)):
            x = F.interpolate(x, scale_factor=2, mode="linear", align_corners=True)
            if x.shape[-1] != skip.shape[-1]:  # an odd length lost its last residue when pooled
                x = F.interpolate(x, skip.shape[-1], mode="linear", align_corners=True)
            x = self._decoded(level, x, skip, None)
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)

    def _masked(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits of proteins without the influence of their padding.

        A position below the top stands for one residue or more; at an odd end it stands for those
        that there are. The original's interpolation stretches each position by the padded length,
        so that it would depend on the batch. Here a position is placed in the middle of the two
        that it stands for.
        """
        length = x.shape[1]
        padding = -length % 2 ** len(self.encoder_blocks)
        masks = [F.pad(mask, (0, padding))[:, None].to(x.dtype)]
        x = F.pad(x, (0, 0, 0, padding)).transpose(1, 2) * masks[0]
        x = self.input_proj(x) * masks[0]  # [B, C, L]
        skips = []
        for block in self.encoder_blocks:
            skips.append(block(x, masks[-1]))
            present = F.avg_pool1d(masks[-1], 2)  # share of residues: 0, 0.5 or 1
            x = F.avg_pool1d(skips[-1], 2) / present.clamp(min=0.5)
            masks.append((present > 0).to(x.dtype))
        x = self.bottleneck(x, masks[-1])
        for level, skip in enumerate(reversed(skips)):
            below, mask = masks[-1 - level], masks[-2 - level]
            x, present = (
                F.interpolate(values, scale_factor=2, mode="linear", align_corners=False)
                for values in (x, below)
            )
            x = x / present.clamp(min=0.25) * mask
            x = self._decoded(level, x, skip, mask)
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)[:, :length]

    def _decoded(
        self, level: int, x: torch.Tensor, skip: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the output of a decoder from what is below it and from its skip connection."""
        if self.attention_gates:
            skip = self.attention_gates[level](x, skip)
        activations: torch.Tensor = self.decoder_blocks[level](torch.cat([skip, x], dim=1), mask)
        return activations


class RclLstm(nn.Module):
    """A bidirectional LSTM over the residues."""

    def __init__(
        self, width: int, hidden_dim: int = 256, num_layers: int = 2, dropout: float = 0.3
    ) -> None:
        """``width`` is the number of values per residue, E."""
        super().__init__()
        self.lstm = nn.LSTM(
            width,
            hidden_dim,
            num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Sequential(
            nn.Linear(2 * hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, 2),
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``; ``mask`` is bool ``[B, L]``, one residue or more each.

        With a mask, the pass from the end begins at the last residue.
        """
        if mask is None:
            states, _ = self.lstm(x)  # [B, L, 2 hidden_dim]
        else:
            lengths = mask.sum(1).cpu()
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            packed, _ = self.lstm(packed)
            states, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
        logits: torch.Tensor = self.fc(self.dropout(states))
        return logits


NETWORKS: dict[str, type[nn.Module]] = {"cnn": RclCnn, "unet": RclUnet, "lstm": RclLstm}
"""The kinds of networks. Each takes the width of the encoding, and settings by keyword."""
