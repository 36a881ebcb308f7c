"""Other ways to compute a block, to be measured beside the way in which it is computed.

None is used by ``predict``. A variant changes the blocks of an encoder before they are compiled, so
that a block can be timed with and without it, and embeddings and labels can be compared::

    variant.change(encoder.network.blocks)
    with variant.context():
        encoder.network.blocks.fuse(encoder.compile_examples(), options=variant.options)
        rows = encoder.encode(sequences, report)

One that is ``exact`` computes the same function, but for rounding. Another one changes the model:
it may only become the default where the labels of a large sample stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from virnucpro.compute.compiled import CompilerOptions, Stack
from virnucpro.compute.linear import Linear

# GELU(x) = x * sigmoid(x * (A + B x^2 + C x^4)), to 2.6e-5 for every x: least squares with weights
# that even out the largest errors. Beyond x^2 = 20 the sigmoid is 0 or 1 in 16 bits.
GELU_A, GELU_B, GELU_C, GELU_REACH = 1.5950156, 0.074011401, -0.00070305045, 20.0


def sigmoid_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU (erf) to 2.6e-5: with one exponential in place of the error function."""
    y = x.float()
    square = (y * y).clamp(max=GELU_REACH)
    slope = (GELU_C * square + GELU_B) * square + GELU_A
    return (y * torch.sigmoid(y * slope)).to(x.dtype)


class SigmoidGeluLinear(Linear):
    """A linear layer with :func:`sigmoid_gelu`."""

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """GELU of the product."""
        return sigmoid_gelu(F.linear(x, self.weight, self.bias))


class TanhGeluLinear(Linear):
    """A linear layer whose product computes GELU before it leaves the processor, by the tanh form.

    The tanh form differs from GELU by up to 4.8e-4, and the models were trained with GELU.
    """

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """GELU (tanh) of the product."""
        product: torch.Tensor = torch._addmm_activation(
            self.bias, x.flatten(0, -2), self.weight.t(), use_gelu=True
        )
        return product.view(*x.shape[:-1], -1)


def rotate_without_masks(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor | None
) -> torch.Tensor:
    """Apply rotary positions as :func:`virnucpro.encoders.esm2_network.rotate` does, with ``sin``.

    Each number is computed from itself and its partner in the other half. Put together from two
    halves, a compiler computes both for every number and keeps one.
    """
    assert sin is not None
    halves = x.float().view(*x.shape[:-1], 2, -1)  # [B, T, ..., 2, d/2]
    sign = torch.arange(-1, 2, 2, device=x.device, dtype=torch.float32)[:, None]  # -1, then 1
    partners = halves.flip(-2) * (sin.unsqueeze(-2) * sign)
    rotated: torch.Tensor = halves * cos.unsqueeze(-2) + partners
    return rotated.to(x.dtype).flatten(-2)


def _replace_linear_layers(kind: type[Linear]) -> Callable[[Stack], None]:
    """Return a function that puts ``kind`` in place of the 16-bit layers; it shares the weights."""

    def change(stack: Stack) -> None:
        for block in stack:
            for layer in block.children():
                if type(layer) is Linear:
                    layer.__class__ = kind

    return change


def _replace_rotation(stack: Stack) -> None:
    """Use :func:`rotate_without_masks` where blocks have rotary positions."""
    for block in stack:
        if hasattr(block, "rotate"):
            vars(block)["rotate"] = rotate_without_masks


def _change_nothing(stack: Stack) -> None:
    """Leave the blocks as they are."""


def _prefer_cudnn() -> AbstractContextManager[None]:
    """Let cuDNN compute attention where it can."""
    kernels = [
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ]
    return sdpa_kernel(kernels, set_priority=True)


@dataclass(frozen=True)
class BlockVariant:
    """One way.

    Attributes:
        exact: whether it computes the same function, but for rounding.
        change: changes the blocks in place.
        options: of the compiler, in place of those of the program; see :meth:`Stack.fuse`.
        context: surrounds compiling and computing.
    """

    exact: bool
    change: Callable[[Stack], None] = _change_nothing
    options: CompilerOptions = field(default_factory=dict)
    context: Callable[[], AbstractContextManager[None]] = nullcontext


BLOCK_VARIANTS: Mapping[str, BlockVariant] = {
    "GELU with one exponential": BlockVariant(
        exact=True, change=_replace_linear_layers(SigmoidGeluLinear)
    ),
    "GELU (tanh) in the product": BlockVariant(
        exact=False, change=_replace_linear_layers(TanhGeluLinear)
    ),
    "rotary without masks": BlockVariant(exact=True, change=_replace_rotation),
    # At width 2560 the deterministic layer norm has 38 % of its lanes idle.
    "reductions chosen by speed": BlockVariant(exact=True, options={"deterministic": False}),
    "cuDNN attention": BlockVariant(exact=True, context=_prefer_cudnn),
}
