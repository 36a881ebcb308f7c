"""The network of DNABERT-S: blocks of attention with linear biases (ALiBi), and a gated MLP.

Shapes: B sequences, T tokens, D width, H heads, d = D / H, I width of the MLP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from virnucpro.compute.attention import attend, merge_heads, split_heads
from virnucpro.compute.compiled import Network, Stack
from virnucpro.compute.linear import GatedLinear, Linear


@dataclass(frozen=True)
class DnabertSizes:
    """What a model is built from; ``eps`` is that of its layer norms."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    eps: float
    vocabulary: int
    token_types: int


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes of ``heads`` heads, as Press et al. define them."""
    power = 1 << (heads.bit_length() - 1)  # the greatest power of two <= heads
    start = 2.0 ** -(2.0 ** -(math.log2(power) - 3))
    slopes = [start ** (k + 1) for k in range(power)]
    return slopes if power == heads else slopes + alibi_slopes(2 * power)[::2][: heads - power]


def alibi_bias(heads: int, length: int) -> torch.Tensor:
    """Return ``-slope * |i - j|``; float32 ``[H, length, length]``."""
    position = torch.arange(length, dtype=torch.float32)
    distance = (position[:, None] - position[None, :]).abs()  # [length, length]
    return -torch.tensor(alibi_slopes(heads))[:, None, None] * distance


class DnabertBlock(nn.Module):
    """A transformer block with a gated MLP and layer norms after attention and MLP."""

    def __init__(self, sizes: DnabertSizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, sizes.eps)
        self.gated = GatedLinear(width, sizes.feed_forward)
        self.wo = Linear(sizes.feed_forward, width)
        self.mlp_norm = nn.LayerNorm(width, sizes.eps)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """``[B, T, D]`` to the same; ``bias``, added to the scores, is ``[B, H, T, T]``."""
        q, k, v = split_heads(self.qkv(x), self.heads)  # [B, H, T, d]
        attended = attend(q, k, v, bias)  # [B, H, T, d]
        x = self.attention_norm(self.out.added(merge_heads(attended), x))  # [B, T, D]
        hidden = self.gated(x)  # [B, T, I]
        normed: torch.Tensor = self.mlp_norm(self.wo.added(hidden, x))  # [B, T, D]
        return normed


class Dnabert(Network):
    """Tokens to the states of the last layer."""

    def __init__(self, sizes: DnabertSizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(sizes.vocabulary, sizes.width)
        self.token_type = nn.Embedding(sizes.token_types, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)
        self.blocks = Stack(DnabertBlock(sizes) for _ in range(sizes.layers))

    def forward(self, tokens: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """int64 ``[B, T]`` to ``[B, T, D]`` in the precision of the weights."""
        embedded = self.embed(tokens) + self.token_type.weight[0]  # [B, T, D]
        x: torch.Tensor = self.blocks(self.norm(embedded), bias)
        return x
