"""The network of ESM-2: blocks of attention with rotary positions, and a feed-forward layer.

Shapes: B sequences, T tokens, D width, H heads, d = D / H, I width of the feed-forward layer.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from virnucpro.compute.compiled import Network, Stack
from virnucpro.compute.layers import Linear, attend, fuses, merge_heads
from virnucpro.encoders.weights import TransformerSizes

VOCABULARY = 33  # <cls> <pad> <eos> <unk>, 27 letters, a null and <mask>
# Training masked 15 % of the tokens, 80 % of these by <mask>, and scaled the embeddings for it.
DROPOUT_SCALE = 1 - 0.15 * 0.8
_ROTARY_BASE = 10000.0  # esm.rotary_embedding.RotaryEmbedding

Rotary = tuple[torch.Tensor, torch.Tensor]


class Esm2Sizes(TransformerSizes, frozen=True):
    """What an ESM-2 is built from."""

    token_dropout: bool = False


def rotary_frequencies(pairs: int) -> torch.Tensor:
    """Return the frequencies of a model that stores none: float32 ``[pairs]``, d / 2 of them."""
    exponents = torch.arange(0, 2 * pairs, 2, dtype=torch.float32) / (2 * pairs)
    return 1.0 / _ROTARY_BASE**exponents


def rotary_tables(inv_freq: torch.Tensor, length: int, device: torch.device) -> Rotary:
    """Return cosine and sine of position x frequency; float32 ``[length, d/2]`` each.

    The angles are rounded to float32 as in fair-esm, but torch's own ``cos`` is not used: its first
    call in a process may silently lose half of its digits on a CPU with several threads
    (pytorch/pytorch#188792; 3 of 60 processes here were wrong by 1.5e-4).
    """
    angles = torch.outer(torch.arange(length, dtype=torch.float32), inv_freq.cpu()).numpy()
    exact = angles.astype(np.float64)  # [length, d/2]
    cos, sin = np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)
    return torch.from_numpy(cos).to(device), torch.from_numpy(sin).to(device)


def rotation_matrices(rotary: Rotary, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix per position, ``[T, d, d]``: ``x[t] @ matrices[t]`` is ``x[t]`` rotated."""
    cos, sin = map(torch.diag_embed, rotary)  # [T, d/2, d/2]
    upper, lower = torch.cat((cos, sin), dim=-1), torch.cat((-sin, cos), dim=-1)  # [T, d/2, d]
    return torch.cat((upper, lower), dim=-2).to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor | None) -> torch.Tensor:
    """Apply rotary positions to ``[B, T, ..., d]``, halves paired; in float32 for any type of x.

    ``cos`` and ``sin`` have as many dimensions as ``x``: ``[B or 1, T, ..., d/2]``. Without
    ``sin``, ``cos`` is what :func:`rotation_matrices` makes, in the type of ``x``.
    """
    if sin is None:
        return _rotate_by_matrices(x, cos)
    first, second = x.float().chunk(2, dim=-1)  # [B, T, ..., d/2]
    halves = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat([half.to(x.dtype) for half in halves], dim=-1)


def _rotate_by_matrices(x: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Rotate by one matrix product per position, of all heads together.

    Half of each matrix is zeros, and still a CPU needs half of the time or less: the rows of
    ``d/2`` numbers that the formula works on are too short for it.
    """
    rows = x.flatten(2, -2)  # [B, T, N, d]
    b, t, n, d = rows.shape
    if x.dtype == torch.bfloat16:  # oneDNN's product of q and k likes each head in one piece
        rotated = x.new_empty(b, n, t, d).transpose(1, 2)
    else:
        rotated = x.new_empty(b, t, n, d)
    for i in range(b):
        torch.bmm(rows[i], matrices, out=rotated[i])
    return rotated.view(b, t, *x.shape[2:])


class TwoPassLayerNorm(nn.LayerNorm):
    """A layer norm whose compiled form takes the mean and then the variance of a row.

    The row is in the cache the second time. A compiler takes both at once where a row is long
    (Welford): half as many instructions again, and a GPU waits for these, not for its memory.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., D]`` to the same."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        row = x.float()
        centred = row - row.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        return (centred * scale * self.weight + self.bias).to(x.dtype)


class Esm2Block(nn.Module):
    """A transformer block with layer norms before attention and feed-forward layer."""

    rotate = staticmethod(rotate)  # a variant of the block replaces it

    def __init__(self, sizes: Esm2Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.attention_norm = TwoPassLayerNorm(width, sizes.eps)
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.mlp_norm = TwoPassLayerNorm(width, sizes.eps)
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
        qkv = self.qkv(self.attention_norm(x)).view(b, t, 3, self.heads, -1)  # [B, T, 3, H, d]
        q, k = self.rotate(qkv[:, :, :2], cos, sin).unbind(2)  # [B, T, H, d]
        v = qkv[:, :, 2]  # [B, T, H, d]
        attended = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        x = self.out.added(merge_heads(attended), x)  # [B, T, D]
        return self.fc1.gelu_into(self.fc2, self.mlp_norm(x), x)  # [B, T, I] between the two


class Esm2(Network):
    """Tokens to the states of the last layer."""

    def __init__(self, sizes: Esm2Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.scale = DROPOUT_SCALE if sizes.token_dropout else 1.0
        self.embed = nn.Embedding(VOCABULARY, sizes.width)
        self.blocks = Stack(Esm2Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)

    def forward(
        self, tokens: torch.Tensor, rotary: Rotary, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """int64 ``[B, T]`` to ``[B, T, D]`` in the precision of the weights.

        ``rotary`` is float32 ``[T, d/2]`` twice, ``mask`` true for real keys, ``[B, 1, 1, T]``.
        """
        x = self.embed(tokens) * self.scale  # [B, T, D]
        normed: torch.Tensor = self.norm(self.blocks(x, *self._rotation(x, rotary), mask))
        return normed

    def _rotation(
        self, x: torch.Tensor, rotary: Rotary
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return ``cos`` and ``sin`` in the form that the blocks take here."""
        if fuses(x) and not self.blocks.fused:
            return rotation_matrices(rotary, x.dtype), None
        cos, sin = (table[None, :, None, None] for table in rotary)  # [1, T, 1, 1, d/2]
        if self.blocks.fused:  # a row of its own for each token: kernels then need no division
            return cos.repeat(len(x), 1, 1, 1, 1), sin.repeat(len(x), 1, 1, 1, 1)
        return cos, sin
