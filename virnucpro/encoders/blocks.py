"""What both transformers really share: heads, attention, pooling.

Shapes: B sequences, T tokens (padded), D width, H heads, d = D / H.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from virnucpro.encoders.linear import fuses

# Attention scores computed at a time on a CPU in bf16: 4 MiB in float32, which stay in its caches.
SCORES = 1 << 20


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
    attended = q.new_empty(b, t, heads, d).transpose(1, 2)
    step = max(1, SCORES // (heads * t * t))
    for start in range(0, b, step):
        part = slice(start, start + step)
        scores = torch.matmul(q[part], k[part].transpose(2, 3)).float().mul_(1 / math.sqrt(d))
        if mask is not None:
            here = mask[part] if len(mask) == b else mask
            if here.dtype == torch.bool:
                scores.masked_fill_(~here, -math.inf)
            else:
                scores.add_(here)
        attended[part] = torch.matmul(scores.softmax(-1).to(q.dtype), v[part])
    return attended


def _in_parts(q: torch.Tensor) -> bool:
    """Whether oneDNN's products and a softmax beat torch's fused attention.

    In bf16 on a CPU they take half of its time, as long as the scores of a sequence are few.
    """
    return q.dtype == torch.bfloat16 and fuses(q) and q.shape[1] * q.shape[2] ** 2 <= 2 * SCORES


def attention_kernel(q: torch.Tensor, mask: torch.Tensor | None) -> str:
    """What :func:`attend` runs for a query ``[B, H, T, d]`` like this.

    ``flash_attention``, ``efficient_attention``, ``cudnn_attention`` or ``math`` (unfused).
    """
    if _in_parts(q):
        return "math"
    # torch says it only here; the public can_use_* functions leave out which one it prefers.
    return SDPBackend(torch._fused_sdp_choice(q, q, q, attn_mask=mask)).name.lower()
