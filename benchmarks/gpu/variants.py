"""Compare ways to compute a block, by events of the GPU.

    python -m benchmarks.gpu.variants --json FILE

For each family and precision, one block is computed as written, as the program compiles it, and in the
ways of ``VARIANTS`` that change something there. They take turns. To try another way, add a row. A
way that fails or that this GPU does not have is a row that says so. None is used by ``predict``. A way
that is not exact changes the model: it may only be taken where calls of a large sample stay the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.timing import time_variants
from virnucpro.benchmark.models import TRUNCATION
from virnucpro.compute.compiled import COMPILER_ERRORS, CompilerOptions, Example, Stack
from virnucpro.compute.linear import Linear
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.registry import random_encoder

Work = Callable[[], torch.Tensor]
Kind = tuple[str, str]  # family and precision
ESM2, ESM2_FP8 = ("esm2", "bf16"), ("esm2", "fp8")
ALL_KINDS = (ESM2, ESM2_FP8, ("dnabert-s", "bf16"), ("dnabert-s", "fp8"))
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
    for block in stack:
        vars(block)["rotate"] = rotate_without_masks


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
        kinds: the families and precisions in which it changes something.
        exact: whether it computes the same function, but for rounding.
        change: changes the blocks in place.
        options: of the compiler, in place of those of the program; see :meth:`Stack.fuse`.
        context: surrounds compiling and computing.
    """

    kinds: tuple[Kind, ...] = ALL_KINDS
    exact: bool = True
    change: Callable[[Stack], None] | None = None
    options: CompilerOptions = field(default_factory=dict)
    context: Callable[[], AbstractContextManager[None]] = nullcontext


VARIANTS: Mapping[str, BlockVariant] = {
    "compiled": BlockVariant(),
    "GELU with one exponential": BlockVariant(
        (ESM2,), change=_replace_linear_layers(SigmoidGeluLinear)
    ),
    "GELU (tanh) in the product": BlockVariant(
        (ESM2,), exact=False, change=_replace_linear_layers(TanhGeluLinear)
    ),
    "rotary without masks": BlockVariant((ESM2, ESM2_FP8), change=_replace_rotation),
    # At width 2560 the deterministic layer norm has 38 % of its lanes idle.
    "reductions chosen by speed": BlockVariant(options={"deterministic": False}),
    "cuDNN attention": BlockVariant(context=_prefer_cudnn),
}


def compiled_stack(encoder: BatchedEncoder, variant: BlockVariant, stack: Stack) -> Stack:
    """Change blocks of ``encoder`` in place, and compile them; on a CPU only graphs are made."""
    if variant.change is not None:
        variant.change(stack)
    backend = "inductor" if encoder.device.type == "cuda" else "eager"
    with variant.context():
        stack.fuse(encoder.compile_examples()[:1], backend=backend, options=variant.options)
    return stack


def block_ways(kind: Kind, size: str, device: str) -> dict[str, Work]:
    """Return the ways to compute one block that is neither the first nor the last.

    The batch is a full one of equal lengths. Each way has a model of its own, with the same weights,
    which is made at its first call, so that a failure is that of the way.
    """

    def opened() -> BatchedEncoder:
        encoder = random_encoder(*(kind[0], size, device, kind[1]), budget=1, truncation=TRUNCATION)
        if encoder.device.type == "cuda":
            encoder.set_budget(encoder.bounds.most)  # which the examples follow
        return encoder

    def middle(encoder: BatchedEncoder) -> Stack:
        blocks: Any = encoder.network.blocks
        return Stack([blocks[1]])

    reference = opened()
    batch = inputs_of(reference.compile_examples()[0])

    def way(variant: BlockVariant | None) -> Work:
        ready: list[Stack] = []

        def forward() -> torch.Tensor:
            if not ready:
                encoder = opened()
                stack = middle(encoder)
                ready.append(stack if variant is None else compiled_stack(encoder, variant, stack))
            with torch.inference_mode(), (variant or VARIANTS["compiled"]).context():
                state: torch.Tensor = ready[0](*batch)
            if ready[0].calls.uncompiled:
                reason = ready[0].calls.reason
                raise RuntimeError(f"the compiled block was not used: {reason}")
            return state

        return forward

    ways = {name: way(variant) for name, variant in VARIANTS.items() if kind in variant.kinds}
    return {"as written": way(None), **ways}


def inputs_of(example: Example) -> list[torch.Tensor | None]:
    """Return the inputs of an example as tensors of inference, which compiled code expects."""
    with torch.inference_mode():
        return [tensor if tensor is None else tensor.clone() for tensor in example.inputs]


def measured(ways: Mapping[str, Work], device: torch.device, rounds: int) -> dict[str, Any]:
    """Return the figures of each way, with its agreement with the first one, or why it failed."""
    works: dict[str, Work] = {}
    rows: dict[str, dict[str, Any]] = {}
    reference: torch.Tensor | None = None
    for name, work in ways.items():
        try:
            result = work().float()
        except COMPILER_ERRORS as error:
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
            continue
        reference = result if reference is None else reference
        works[name] = work
        rows[name] = {
            "largest_difference": float((result - reference).abs().max()),
            "least_cosine": float(F.cosine_similarity(result, reference, dim=-1).min()),
        }
    for name, figures in (time_variants(works, device, rounds) if works else {}).items():
        rows[name] |= figures
    return rows


def main() -> int:
    """Measure every kind of block, and save the figures after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    sizes = {
        "esm2": "3x2560x40" if on_gpu else "3x64x2",
        "dnabert-s": "3x768x12" if on_gpu else "3x48x2",
    }
    document: dict[str, Any] = {}
    for kind in ALL_KINDS:
        if not on_gpu and kind[1] == "fp8":
            continue  # a CPU has no such products
        torch._dynamo.reset()
        ways = block_ways(kind, sizes[kind[0]], options.device)
        rows = measured(ways, torch.device(options.device), 7 if on_gpu else 1)
        name = " ".join(kind)
        document[name] = rows
        options.json.write_text(json.dumps({"blocks": document}, indent=1) + "\n")
        for way, row in rows.items():
            figures = row.get("failed") or (
                f"{row['milliseconds']:.4f} ms, {row['times_as_fast']:.3f} times as fast, least "
                f"cosine {row['least_cosine']:.6f}"
            )
            print(f"{name}, {way}: {figures}", flush=True)
        if on_gpu:
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
