"""How the blocks of a model are prepared for a precision (:mod:`virnucpro.precision`).

Linear layers in 8 bit have twice the rate of 16 bit on the tensor cores of Ada, Hopper, Blackwell.
Weights are stored, and inputs rounded on the way, as float8 e4m3 (Micikevicius et al. 2022,
arXiv:2209.05433), each row of either scaled by its own largest value. The scales are applied after
the product, in the kernel that adds the bias anyway. So the product itself is the one that cuBLAS
has for every such GPU: products that scale rows themselves are missing for some
(pytorch/pytorch#192707).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.compute.compiled import Stack
from virnucpro.compute.layers import Linear
from virnucpro.compute.private import fp8_product
from virnucpro.precision import PRECISIONS

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
