"""What both transformers really share: heads, attention, pooling.

Shapes: B sequences, T tokens (padded), D width, H heads, d = D / H.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from virnucpro.compute.linear import fuses

# The most attention scores of a sequence that are worth keeping: 40 heads of 180 tokens. They stay
# in the caches of a CPU; of more, torch's fused attention computes some at a time.
SCORES = 5 << 18


def split_heads(qkv: torch.Tensor, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``[B, T, 3D]`` to query, key and value, each ``[B, H, T, d]`` (views, nothing is copied)."""
    b, t, _ = qkv.shape
    q, k, v = qkv.view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
    return q, k, v


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    """``[B, H, T, d]`` to ``[B, T, D]``."""
    return x.transpose(1, 2).flatten(2)


def masked_mean(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens that ``keep`` (bool ``[B, T]``) marks, in float32.

    ``x`` is ``[B, T, D]`` of any floating type, the result float32 ``[B, D]``.
    """
    keep = keep.to(torch.float32)
    return torch.einsum("bt,btd->bd", keep, x.float()) / keep.sum(1, keepdim=True)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """``softmax(q k^T / sqrt(d) + mask) v`` of ``[B, H, T, d]``; :func:`merge_heads` takes it.

    ``mask`` is true for the keys that count, or added to the scores; it broadcasts to
    ``[B, H, T, T]``.
    """
    if not _in_parts(q):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    b, heads, t, d = q.shape
    bias = _added(mask, q)
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


def _in_parts(q: torch.Tensor) -> bool:
    """Whether two products and a softmax a sequence beat torch's fused attention.

    On a CPU in bf16. In fp32 they gain too little to be worth other last digits.
    """
    if q.dtype != torch.bfloat16 or not fuses(q):
        return False
    return q.shape[1] * q.shape[2] ** 2 <= SCORES


def _added(mask: torch.Tensor | None, q: torch.Tensor) -> torch.Tensor:
    """What ``mask`` adds to the scores, in the type of ``q``: ``[1 or B, 1 or H, 1 or T, T]``."""
    if mask is None:
        return q.new_zeros(1, 1, 1, 1)
    if mask.dtype != torch.bool:
        return mask.to(q.dtype)
    return q.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)


def attention_kernel(q: torch.Tensor, mask: torch.Tensor | None) -> str:
    """What :func:`attend` runs for a query ``[B, H, T, d]`` like this.

    ``flash_attention``, ``efficient_attention``, ``cudnn_attention`` or ``math`` (unfused).
    """
    if _in_parts(q):
        return "math"
    # torch says it only here; the public can_use_* functions leave out which one it prefers.
    return SDPBackend(torch._fused_sdp_choice(q, q, q, attn_mask=mask)).name.lower()
