"""Compare ways to compute a block, by events of the GPU.

    python -m benchmarks.gpu.variants --json FILE

For each family and precision, one block is computed as written, as the program compiles it, and in the
ways of ``VARIANTS`` that change something there. They take turns. To try another way, add a row. A
way that fails or that this GPU does not have is a row that says so. None is used by ``predict``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.models import random_encoder
from benchmarks.timing import ratio, time_in_turns
from virnucpro.compute.compiled import COMPILER_ERRORS, Stack
from virnucpro.compute.layers import Linear
from virnucpro.encoders.batched import BatchedEncoder

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

    The tanh form differs from GELU by up to 4.8e-4, and the models were trained with GELU. It may
    only be taken where the calls of a large sample stay the same.
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
    """Apply rotary positions as :func:`virnucpro.encoders.esm2.rotate` does, with ``sin``.

    Each number is computed from itself and its partner in the other half. Put together from two
    halves, a compiler computes both for every number and keeps one.
    """
    assert sin is not None
    halves = x.float().view(*x.shape[:-1], 2, -1)  # [B, T, ..., 2, d/2]
    sign = torch.arange(-1, 2, 2, device=x.device, dtype=torch.float32)[:, None]  # -1, then 1
    partners = halves.flip(-2) * (sin.unsqueeze(-2) * sign)
    rotated: torch.Tensor = halves * cos.unsqueeze(-2) + partners
    return rotated.to(x.dtype).flatten(-2)


Change = Callable[[Stack], AbstractContextManager[None]]


def nothing(stack: Stack) -> AbstractContextManager[None]:
    """Change nothing."""
    return nullcontext()


def linear_layers(kind: type[Linear]) -> Change:
    """Put ``kind`` in place of the 16-bit layers; it shares the weights."""

    @contextmanager
    def change(stack: Stack) -> Iterator[None]:
        for block in stack:
            for layer in block.children():
                if type(layer) is Linear:
                    layer.__class__ = kind
        yield

    return change


@contextmanager
def rotation(stack: Stack) -> Iterator[None]:
    """Use :func:`rotate_without_masks`."""
    for block in stack:
        vars(block)["rotate"] = rotate_without_masks
    yield


def prefer_cudnn(stack: Stack) -> AbstractContextManager[None]:
    """Let cuDNN compute attention where it can."""
    others = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, *others], set_priority=True)


# The families and precisions in which a way changes something, and what surrounds compiling and
# computing the blocks.
VARIANTS: Mapping[str, tuple[tuple[Kind, ...], Change]] = {
    "compiled": (ALL_KINDS, nothing),
    "GELU with one exponential": ((ESM2,), linear_layers(SigmoidGeluLinear)),
    "GELU (tanh) in the product": ((ESM2,), linear_layers(TanhGeluLinear)),
    "rotary without masks": ((ESM2, ESM2_FP8), rotation),
    "cuDNN attention": (ALL_KINDS, prefer_cudnn),
}


def compile_changed(encoder: BatchedEncoder, stack: Stack, change: Change) -> None:
    """Change blocks of ``encoder`` in place, and compile them; on a CPU only graphs are made."""
    backend = "inductor" if encoder.device.type == "cuda" else "eager"
    with change(stack):
        stack.fuse(encoder.compile_examples()[:1], backend=backend)


def way(kind: Kind, size: str, device: str, change: Change | None) -> Callable[[], torch.Tensor]:
    """Return a function that computes one block, which is neither the first nor the last.

    The batch is a full one of equal lengths. Each way has a model of its own with the same weights,
    and compiles it when it is first called; with ``change`` None, the block stays as written.
    """
    encoder = random_encoder(kind[0], size, device, kind[1], budget=1)
    if device == "cuda":
        encoder.set_budget(encoder.bounds.most)  # which the examples follow
    blocks: Any = encoder.network.blocks
    stack = Stack([blocks[1]])
    with torch.inference_mode():  # compiled code takes other tensors for another kind of input
        inputs = encoder.compile_examples()[0].inputs
        batch = [tensor if tensor is None else tensor.clone() for tensor in inputs]

    def forward() -> torch.Tensor:
        if change is not None and not stack.fused:
            compile_changed(encoder, stack, change)
        with torch.inference_mode(), (change or nothing)(stack):
            state: torch.Tensor = stack(*batch)
        if stack.calls.uncompiled:
            raise RuntimeError("the compiled block was not used")
        return state

    return forward


def measured(kind: Kind, size: str, device: str, rounds: int) -> dict[str, Any]:
    """Return the figures of each way, with its agreement with the block as written, or why it failed."""
    changes = {name: change for name, (kinds, change) in VARIANTS.items() if kind in kinds}
    works: dict[str, Callable[[], torch.Tensor]] = {}
    rows: dict[str, dict[str, Any]] = {}
    reference: torch.Tensor | None = None
    for name, change in {"as written": None, **changes}.items():
        work = way(kind, size, device, change)
        try:
            result = work().float()
        except COMPILER_ERRORS as error:
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
            continue
        reference = result if reference is None else reference
        works[name] = work
        rows[name] = {"least_cosine": float(F.cosine_similarity(result, reference, dim=-1).min())}
    *_, figures = time_in_turns(works, torch.device(device), rounds, short=True)
    first = next(iter(figures.values()))["seconds"]
    for name, own in figures.items():
        rows[name] |= {"times_as_fast": ratio(first, own["seconds"]), **own}
    return rows


def main() -> int:
    """Measure every kind of block, and save the figures after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    sizes = ("3x2560x40", "3x768x12") if on_gpu else ("3x64x2", "3x48x2")
    kinds = [kind for kind in ALL_KINDS if on_gpu or kind[1] == "bf16"]  # a CPU has no fp8
    document: dict[str, Any] = {}
    for kind in kinds:
        torch._dynamo.reset()
        size = sizes[kind[0] == "dnabert-s"]
        rows = measured(kind, size, options.device, 7 if on_gpu else 1)
        document[" ".join(kind)] = rows
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        for way, row in rows.items():
            print(" ".join(kind), way, json.dumps(row), flush=True)
        if on_gpu:
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
