"""The network of ESM-2: tokens to the states of the last layer.

Lin et al. 2023, https://doi.org/10.1126/science.ade2574. The forward pass is that of fair-esm 2.0
and of ``EsmModel`` in transformers, to about 1e-6 in float32.
Shapes: B sequences, T tokens, D width, H heads, d = D / H.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from virnucpro.compute.attention import attend, merge_heads
from virnucpro.compute.compiled import Stack
from virnucpro.compute.linear import Linear, fuses
from virnucpro.encoders.esm2_files import VOCABULARY, Sizes

# Training masked 15 % of the tokens, 80 % of these by <mask>, and scaled the embeddings for it.
DROPOUT_SCALE = 1 - 0.15 * 0.8

Rotary = tuple[torch.Tensor, torch.Tensor]


def rotary_tables(inv_freq: torch.Tensor, length: int, device: torch.device) -> Rotary:
    """Cosine and sine of position x frequency; float32 ``[length, d/2]`` each.

    The angles are rounded to float32 as in fair-esm, but torch's own ``cos`` is not used: its first
    call in a process may silently lose half of its digits on a CPU with several threads
    (pytorch/pytorch#188792; 3 of 60 processes here were wrong by 1.5e-4).
    """
    angles = torch.outer(torch.arange(length, dtype=torch.float32), inv_freq.cpu()).numpy()
    exact = angles.astype(np.float64)
    cos, sin = np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)
    return torch.from_numpy(cos).to(device), torch.from_numpy(sin).to(device)


def turns(rotary: Rotary, dtype: torch.dtype) -> torch.Tensor:
    """The tables as a matrix a position, ``[T, d, d]``: ``x[t] @ turns[t]`` is ``x[t]`` turned."""
    cos, sin = map(torch.diag_embed, rotary)  # [T, d/2, d/2]
    upper, lower = torch.cat((cos, sin), dim=-1), torch.cat((-sin, cos), dim=-1)
    return torch.cat((upper, lower), dim=-2).to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor | None) -> torch.Tensor:
    """Rotary positions, halves paired; ``[B, T, ..., d]``. In float32, whatever ``x`` is.

    ``cos`` and ``sin`` have as many dimensions as ``x``: ``[B or 1, T, ..., d/2]``. Without
    ``sin``, ``cos`` is what :func:`turns` makes, in the type of ``x``.
    """
    if sin is None:
        return _turned(x, cos)
    first, second = x.float().chunk(2, dim=-1)
    halves = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat([half.to(x.dtype) for half in halves], dim=-1)


def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """A product of all heads a position.

    Half of each matrix is zeros, and still a CPU needs half of the time or less: the rows of
    ``d/2`` numbers that the formula works on are too short for it.
    """
    rows = x.flatten(2, -2)  # [B, T, N, d]
    b, t, n, d = rows.shape
    if x.dtype == torch.bfloat16:  # oneDNN's product of q and k likes each head in one piece
        turned = x.new_empty(b, n, t, d).transpose(1, 2)
    else:
        turned = x.new_empty(b, t, n, d)
    for i in range(b):
        torch.bmm(rows[i], turn, out=turned[i])
    return turned.view(b, t, *x.shape[2:])


class LayerNorm(nn.LayerNorm):
    """Compiled, mean and variance are taken one after the other from a row that is in the cache.

    A compiler takes both at once where a row is long (Welford): half as many instructions again,
    and a GPU waits for these, not for its memory.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., D]`` to the same."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        row = x.float()
        centred = row - row.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        return (centred * scale * self.weight + self.bias).to(x.dtype)


class Block(nn.Module):
    """Pre-LN transformer block."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.attention_norm = LayerNorm(width, sizes.eps)
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.mlp_norm = LayerNorm(width, sizes.eps)
        self.fc1 = Linear(width, sizes.feed_forward)
        self.fc2 = Linear(sizes.feed_forward, width)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """``[B, T, D]`` to ``[B, T, D]``; ``mask`` is true for real keys, ``[B, 1, 1, T]``.

        ``cos`` and ``sin`` are float32 ``[B or 1, T, 1, 1, d/2]``, or as :func:`rotate` says.
        """
        b, t, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(b, t, 3, self.heads, -1)
        q, k = rotate(qkv[:, :, :2], cos, sin).unbind(2)  # [B, T, H, d]
        v = qkv[:, :, 2]
        attended = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        x = self.out.added(merge_heads(attended), x)
        hidden = self.fc1.gelu(self.mlp_norm(x))  # [B, T, 4D]
        return self.fc2.added(hidden, x)


class Esm2(nn.Module):
    """Tokens to the states of the last layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.scale = DROPOUT_SCALE if sizes.token_dropout else 1.0
        self.embed = nn.Embedding(VOCABULARY, sizes.width)
        self.blocks = Stack(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)

    def forward(
        self, tokens: torch.Tensor, rotary: Rotary, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """int64 ``[B, T]`` to ``[B, T, D]`` in the precision of the weights.

        ``rotary`` is float32 ``[T, d/2]`` twice, ``mask`` true for real keys, ``[B, 1, 1, T]``.
        """
        x = self.embed(tokens) * self.scale
        normed: torch.Tensor = self.norm(self.blocks(x, *self._turning(x, rotary), mask))
        return normed

    def _turning(self, x: torch.Tensor, rotary: Rotary) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``cos`` and ``sin`` of the blocks."""
        if fuses(x) and not self.blocks.fused:
            return turns(rotary, x.dtype), None
        cos, sin = (table[None, :, None, None] for table in rotary)  # [1, T, 1, 1, d/2]
        if self.blocks.fused:  # a row of its own for each token: kernels then need no division
            return cos.repeat(len(x), 1, 1, 1, 1), sin.repeat(len(x), 1, 1, 1, 1)
        return cos, sin
