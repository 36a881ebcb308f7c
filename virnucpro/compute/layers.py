"""What transformers share: linear layers, in 8 bits too, heads, attention, pooling.

Linear layers do what follows them in the same call, where the processor gains from it. On a CPU
torch multiplies float32 matrices by MKL, which is slow on AMD processors with AVX-512. oneDNN,
which torch ships for its compiler, is twice as fast there (GPU_OPTIMIZATION.md), and computes GELU,
a sum or a product before the result leaves the cache. The numbers are the same but for the last
digits; nothing has to be compiled. It reads weights in an order of its own, into which it brings
them at each product unless they are packed.

Linear layers in 8 bit have twice the rate of 16 bit on the tensor cores of Ada, Hopper, Blackwell.
Weights are stored, and inputs rounded on the way, as float8 e4m3 (Micikevicius et al. 2022,
arXiv:2209.05433), each row of either scaled by its own largest value. The scales are applied after
the product, in the kernel that adds the bias anyway. So the product itself is the one that cuBLAS
has for every such GPU: products that scale rows themselves are missing for some
(pytorch/pytorch#192707).

Shapes: B sequences, T tokens (padded), D width, H heads, d = D / H.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import virnucpro.compute.private as private
from virnucpro.compute.compiled import Stack
from virnucpro.compute.private import fp8_product
from virnucpro.precision import PRECISIONS

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


# --- layers in 8 bits

FP8 = torch.float8_e4m3fn
MOST = torch.finfo(FP8).max  # 448
LEAST_SCALE = 1e-12  # of a row of zeros
LOWEST_GELU = 0.17  # the negative of what GELU is never below: -0.16998 at -0.7518
# Blocks at either end that stay in 16 bits: what enters and leaves there is not averaged.
BLOCKS_IN_16_BITS = 1


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows ``[M, K]`` as float8 and the float32 scale of each, ``[M, 1]``.

    The product of both is x.
    """
    x = x.float()  # or a compiled scale is rounded to x's type in one of the kernels that use it
    scale = (x.abs().amax(dim=-1, keepdim=True) / MOST).clamp(min=LEAST_SCALE)
    # The largest may come out a little above MOST, and is rounded to it: the next would be 480.
    return (x * (1 / scale)).to(FP8), scale


def rounded_gelu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return GELU (erf) of float32 rows ``[M, K]`` as :func:`rounded` returns its rows.

    The largest GELU of a row is not looked for, because a compiler would compute each GELU twice
    for it. It is at most the largest number of the row, or ``LOWEST_GELU`` where that is more:
    GELU is less than its input above zero, and hardly negative below. The row then uses a little
    less than the whole range of 8-bit numbers, which have the same relative precision everywhere.
    """
    scale = x.amax(dim=-1, keepdim=True).clamp(min=LOWEST_GELU) / MOST
    return (F.gelu(x) * (1 / scale)).to(FP8), scale


class Fp8Linear(nn.Module):
    """A :class:`virnucpro.compute.layers.Linear` that computes in 8 bits."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = rounded(layer.weight.detach())
        self.weight = nn.Parameter(weight, requires_grad=False)  # [N, K]
        self.scale = nn.Parameter(scale.reshape(-1), requires_grad=False)  # [N]
        self.one = nn.Parameter(scale.new_ones(()), requires_grad=False)
        self.bias = layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product, ``[..., K]`` to ``[..., N]``, in ``x``'s type."""
        return self._product(x).to(x.dtype)

    def added(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product plus ``other``, which has its shape."""
        return (other.float() + self._product(x)).to(x.dtype)

    def gelu_into(self, following: Fp8Linear, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """``other`` plus what ``following`` makes of GELU of the product."""
        product = following._product_of_rows(*rounded_gelu(self._product(x).flatten(0, -2)))
        return (other.float() + product.view_as(other)).to(x.dtype)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return self._product_of_rows(*rounded(x.flatten(0, -2))).view(*x.shape[:-1], -1)

    def _product_of_rows(self, rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """float8 ``[M, K]`` and its scales ``[M, 1]`` to float32 ``[M, N]``.

        float32 from where the product leaves the tensor cores, in bfloat16 as they give it: a
        compiler keeps the float32 numbers in registers.
        """
        if rows.device.type == "cpu":  # for trials alone: its own takes two hundred times as long
            raw = torch.mm(rows.float(), self.weight.float().t()).to(torch.bfloat16)
        else:
            raw = fp8_product(rows, self.weight, self.one)
        product = raw.float() * scale * self.scale
        return product if self.bias is None else product + self.bias.float()


def torch_dtype(precision: str) -> torch.dtype:
    """Return the type that weights are cast to when they are loaded."""
    dtype: torch.dtype = getattr(torch, PRECISIONS[precision].dtype)
    return dtype


def prepare_blocks(blocks: Stack, precision: str) -> None:
    """Put 8-bit layers in place of the linear ones of inner blocks, cast before, for ``fp8``."""
    if PRECISIONS[precision].linear_layers != "fp8":
        return
    for block in blocks[BLOCKS_IN_16_BITS : len(blocks) - BLOCKS_IN_16_BITS]:
        for name, layer in list(block.named_children()):
            if isinstance(layer, Linear):
                setattr(block, name, Fp8Linear(layer))
