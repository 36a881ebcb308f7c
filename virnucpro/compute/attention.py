"""What both transformers share: heads, attention, pooling.

Shapes: B sequences, T tokens (padded), D width, H heads, d = D / H.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from virnucpro.compute.linear import fuses

# Attention scores of a sequence that stay in the caches of a CPU: 40 heads of 180 tokens. Of more
# scores, torch's fused attention computes some at a time, which is faster.
MAX_CACHED_SCORES = 5 << 18


def split_heads(qkv: torch.Tensor, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split ``[B, T, 3D]`` into query, key and value: views, ``[B, H, T, d]`` each."""
    b, t, _ = qkv.shape
    q, k, v = qkv.view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
    return q, k, v


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    """Put the heads side by side: ``[B, H, T, d]`` to ``[B, T, D]``."""
    return x.transpose(1, 2).flatten(2)


def masked_mean(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Return the mean over the tokens where ``keep`` (bool ``[B, T]``) is true, in float32.

    ``x`` is ``[B, T, D]`` of any floating type, the result float32 ``[B, D]``.
    """
    keep = keep.to(torch.float32)
    return torch.einsum("bt,btd->bd", keep, x.float()) / keep.sum(1, keepdim=True)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Compute ``softmax(q k^T / sqrt(d) + mask) v`` of ``[B, H, T, d]``, for :func:`merge_heads`.

    ``mask`` is true for the keys that count, or added to the scores; it broadcasts to
    ``[B, H, T, T]``.
    """
    if not _one_by_one(q):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    b, heads, t, d = q.shape
    bias = _as_bias(mask, q)
    attended = q.new_empty(b, t, heads, d).transpose(1, 2)
    for i in range(b):
        scores = torch.baddbmm(
            bias[i if len(bias) > 1 else 0],
            q[i],
            k[i].transpose(1, 2),
            beta=0 if mask is None else 1,
            alpha=1 / math.sqrt(d),
        )  # [H, T, T]
        torch.bmm(scores.softmax(-1), v[i], out=attended[i])
    return attended


def _one_by_one(q: torch.Tensor) -> bool:
    """Return whether two products and a softmax per sequence beat torch's fused attention.

    They do on a CPU in bf16. In fp32 they gain too little to justify other last digits.
    """
    if q.dtype != torch.bfloat16 or not fuses(q):
        return False
    return q.shape[1] * q.shape[2] ** 2 <= MAX_CACHED_SCORES


def _as_bias(mask: torch.Tensor | None, q: torch.Tensor) -> torch.Tensor:
    """Return what ``mask`` adds to the scores, in the type of ``q``.

    The shape is ``[1 or B, 1 or H, 1 or T, T]``.
    """
    if mask is None:
        return q.new_zeros(1, 1, 1, 1)
    if mask.dtype != torch.bool:
        return mask.to(q.dtype)
    return q.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)


def attention_kernel(q: torch.Tensor, mask: torch.Tensor | None) -> str:
    """Return the kernel that :func:`attend` runs for a query ``[B, H, T, d]`` like this.

    It is ``flash_attention``, ``efficient_attention``, ``cudnn_attention`` or ``math`` (unfused).
    """
    if _one_by_one(q):
        return "math"
    # torch says it only here; the public can_use_* functions leave out which one it prefers.
    return SDPBackend(torch._fused_sdp_choice(q, q, q, attn_mask=mask)).name.lower()
