"""Linear layers in 8 bit: twice the rate of 16 bit on the tensor cores of Ada, Hopper, Blackwell.

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
from virnucpro.compute.linear import GatedLinear, Linear

FP8 = torch.float8_e4m3fn
MOST = torch.finfo(FP8).max  # 448
LEAST_SCALE = 1e-12  # of a row of zeros
# Blocks at either end that stay in 16 bits: what enters and leaves there is not averaged.
BLOCKS_IN_16_BITS = 1


def use_fp8_layers(stack: Stack) -> None:
    """Put 8-bit layers in place of the linear ones of all blocks but the first and the last."""
    for block in stack[BLOCKS_IN_16_BITS : len(stack) - BLOCKS_IN_16_BITS]:
        for name, layer in list(block.named_children()):
            if isinstance(layer, GatedLinear):
                setattr(block, name, Fp8GatedLinear(layer))
            elif isinstance(layer, Linear):
                setattr(block, name, Fp8Linear(layer))


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows ``[M, K]`` as float8 and the float32 scale of each, ``[M, 1]``.

    The product of both is x.
    """
    x = x.float()  # or a compiled scale is rounded to x's type in one of the kernels that use it
    scale = (x.abs().amax(dim=-1, keepdim=True) / MOST).clamp(min=LEAST_SCALE)
    # The largest may come out a little above MOST, and is rounded to it: the next would be 480.
    return (x * (1 / scale)).to(FP8), scale


class Fp8Linear(nn.Module):
    """A :class:`virnucpro.compute.linear.Linear` that computes in 8 bits."""

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

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """GELU (erf) of the product."""
        return F.gelu(self._product(x)).to(x.dtype)

    def added(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The product plus ``other``, which has its shape."""
        return (other.float() + self._product(x)).to(x.dtype)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        """In float32 from where the product leaves the tensor cores, in bfloat16 as they give it.

        A compiler keeps the float32 numbers in registers.
        """
        rows, scale = rounded(x.flatten(0, -2))
        raw = self._raw(rows)
        product = raw.float() * scale * self.scale
        if self.bias is not None:
            product = product + self.bias.float()
        return product.view(*x.shape[:-1], -1)

    def _raw(self, rows: torch.Tensor) -> torch.Tensor:
        """float8 ``[M, K]`` to bfloat16 ``[M, N]``, without scales."""
        if rows.device.type == "cpu":  # for trials alone: its own takes two hundred times as long
            return torch.mm(rows.float(), self.weight.float().t()).to(torch.bfloat16)
        # F.scaled_mm, its public name, is not compiled by torch 2.10 (pytorch/pytorch#180604).
        return torch._scaled_mm(
            rows,
            self.weight.t(),
            scale_a=self.one,
            scale_b=self.one,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )


class Fp8GatedLinear(Fp8Linear):
    """A :class:`virnucpro.compute.linear.GatedLinear` that computes in 8 bits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``gelu(x G^T) * (x V^T)``, ``[..., K]`` to ``[..., N]``."""
        gate, value = self._product(x).chunk(2, dim=-1)
        return (F.gelu(gate) * value).to(x.dtype)
