"""What transformers share: linear layers, heads, attention, pooling.

Linear layers do what follows them in the same call, where the processor gains from it. On a CPU
torch multiplies float32 matrices by MKL, which is slow on AMD processors with AVX-512. oneDNN,
which torch ships for its compiler, is twice as fast there (GPU_OPTIMIZATION.md), and computes GELU,
a sum or a product before the result leaves the cache. The numbers are the same but for the last
digits; nothing has to be compiled. It reads weights in an order of its own, into which it brings
them at each product unless they are packed.

Shapes: B sequences, T tokens (padded), D width, H heads, d = D / H.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import virnucpro.compute.private as private

_DTYPES = (torch.float32, torch.bfloat16)  # fp16 is slow on a CPU with either library


def fuses(x: torch.Tensor) -> bool:
    """Return whether products with ``x`` are oneDNN's: on a CPU where torch uses AVX-512."""
    if x.device.type != "cpu" or x.dtype not in _DTYPES or torch.compiler.is_compiling():
        return False  # a compiler fuses by itself
    return bool(torch.backends.mkldnn.enabled) and private.multiplies_by_onednn()


class Linear(nn.Linear):
    """``x W^T + b``, ``[..., K]`` to ``[..., N]``, and what may follow it."""

    def pack(self) -> None:
        """Keep the weight as oneDNN reads it, where it multiplies. Nothing else can read it then.

        Few rows may be multiplied by another kernel than before, and differ in their last digits.
        """
        if fuses(self.weight):
            self.weight = nn.Parameter(private.packed(self.weight), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product alone."""
        if fuses(x):
            return private.linear(x, self.weight, self.bias, "none")
        return F.linear(x, self.weight, self.bias)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """GELU (erf) of the product."""
        if fuses(x):
            return private.linear(x, self.weight, self.bias, "gelu")
        return F.gelu(F.linear(x, self.weight, self.bias))

    def added(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product plus ``other``, which has its shape."""
        if fuses(x):
            return private.linear_with(x, other, self.weight, self.bias, "add")
        return other + F.linear(x, self.weight, self.bias)

    def gelu_into(self, following: Linear, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """``other`` plus what ``following`` makes of GELU of the product."""
        return following.added(self.gelu(x), other)


class GatedLinear(nn.Linear):
    """``gelu(x G^T) * (x V^T)``, ``[..., K]`` to ``[..., N]``; the weight is G above V."""

    values: nn.Parameter | None

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, 2 * outputs, bias=False)
        self.register_parameter("values", None)

    def pack(self) -> None:
        """As :meth:`Linear.pack`; the weight is G alone then, and ``values`` is V."""
        if fuses(self.weight):
            gates, values = self.weight.chunk(2)
            self.weight, self.values = (
                nn.Parameter(private.packed(part), requires_grad=False) for part in (gates, values)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One product of both, or one after the other where the rest is fused into them."""
        if fuses(x):
            gates, values = (
                self.weight.chunk(2) if self.values is None else (self.weight, self.values)
            )
            return private.linear_with(
                x, private.linear(x, gates, None, "gelu"), values, None, "mul"
            )
        gate, value = F.linear(x, self.weight).chunk(2, dim=-1)
        return F.gelu(gate) * value


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
    bias = q.new_zeros(1, 1, 1, 1)  # or [1 or B, 1 or H, 1 or T, T], what the mask adds
    if mask is not None and mask.dtype == torch.bool:
        bias = q.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)
    elif mask is not None:
        bias = mask.to(q.dtype)
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


def attention_kernel(q: torch.Tensor, mask: torch.Tensor | None) -> str:
    """Return the kernel that :func:`attend` runs for a query ``[B, H, T, d]`` like this.

    It is ``flash_attention``, ``efficient_attention``, ``cudnn_attention`` or ``math`` (unfused).
    """
    if _one_by_one(q):
        return "math"
    return private.chosen_kernel(q, mask)
