"""What both transformers really share: heads, attention, pooling.

Shapes: B sequences, T tokens (padded), D width, H heads, d = D / H.
"""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend


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


def attention_kernel(q: torch.Tensor, mask: torch.Tensor | None) -> str:
    """What ``scaled_dot_product_attention`` runs for a query ``[B, H, T, d]`` like this.

    ``flash_attention``, ``efficient_attention``, ``cudnn_attention`` or ``math`` (unfused).
    """
    # torch says it only here; the public can_use_* functions leave out which one it prefers.
    return SDPBackend(torch._fused_sdp_choice(q, q, q, attn_mask=mask)).name.lower()
