"""The networks that give each residue of a protein the probability to lie in the RCL.

Their layers, and the names of their parameters, are those of RCL-identifier (MIT license), so that
its checkpoints can be loaded.

Shapes: B proteins, L residues (padded), E numbers per residue, C channels. Every network takes
float32 ``[B, L, E]`` and returns logits ``[B, L, 2]``: not RCL, RCL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

RCL = 1
"""Index of the class "residue of the RCL" in the logits."""


class ConvLayer(nn.Module):
    """Convolution over residues, batch norm, ReLU and dropout; ``[B, C, L]`` to ``[B, C', L]``."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
        self.bn = nn.BatchNorm1d(outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations of the layer."""
        activations: torch.Tensor = self.dropout(F.relu(self.bn(self.conv(x))))
        return activations


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``."""
        x = x.transpose(1, 2)  # [B, E, L]
        for layer in self.conv_layers:
            x = layer(x)
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)


class DoubleConv(nn.Module):
    """Two convolutions of 7 residues; ``[B, C, L]`` to ``[B, C', L]``."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv1d(inputs, outputs, 7, padding=3),
            nn.BatchNorm1d(outputs),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv1d(outputs, outputs, 7, padding=3),
            nn.BatchNorm1d(outputs),
            nn.ReLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations of the block."""
        activations: torch.Tensor = self.double_conv(x)
        return activations


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``; L is at least 2 to the power of the depth."""
        x = self.input_proj(x.transpose(1, 2))  # [B, C, L]
        skips = []
        for block in self.encoder_blocks:
            skips.append(block(x))
            x = F.avg_pool1d(skips[-1], 2)
        x = self.bottleneck(x)
        for number, (block, skip) in enumerate(
            zip(self.decoder_blocks, reversed(skips), strict=True)
        ):
            x = F.interpolate(x, scale_factor=2, mode="linear", align_corners=True)
            if x.shape[-1] != skip.shape[-1]:  # an odd length lost its last residue when pooled
                x = F.interpolate(x, skip.shape[-1], mode="linear", align_corners=True)
            if self.attention_gates:
                skip = self.attention_gates[number](x, skip)
            x = block(torch.cat([skip, x], dim=1))
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``."""
        states, _ = self.lstm(x)  # [B, L, 2 hidden_dim]
        logits: torch.Tensor = self.fc(self.dropout(states))
        return logits


@dataclass(frozen=True)
class NetworkKind:
    """A kind of network, and the settings that the configuration has for it.

    Attributes:
        name: what users call it.
        module: builds the network from the width of the encoding and the settings.
        settings: names of the keyword arguments that ``module`` takes.
    """

    name: str
    module: type[nn.Module]
    settings: tuple[str, ...]


NETWORKS = {
    kind.name: kind
    for kind in (
        NetworkKind("cnn", RclCnn, ("channels", "kernel_sizes", "dropout")),
        NetworkKind("unet", RclUnet, ("base_filters", "depth", "dropout", "attention")),
        NetworkKind("lstm", RclLstm, ("hidden_dim", "num_layers", "dropout")),
    )
}
