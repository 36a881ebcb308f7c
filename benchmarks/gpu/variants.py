"""Compare ways to compute one step of a block, and the block itself, by events of the GPU.

    python -m benchmarks.gpu.variants --json FILE [--groups gelu,attention]

Each group computes the same thing in several ways, which take turns; the first way is the one that
the others are compared with. To try another way, add a row to its group. A way that fails or that
this GPU does not have is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.timing import time_variants
from virnucpro.benchmark.models import TRUNCATION
from virnucpro.compute.compiled import COMPILER_ERRORS, OPTIONS, Example, Stack
from virnucpro.compute.fp8 import FP8, LOWEST_GELU, MOST, rounded, rounded_gelu
from virnucpro.compute.variants import BLOCK_VARIANTS, BlockVariant
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2_network import TwoPassLayerNorm
from virnucpro.encoders.registry import random_encoder

Work = Callable[[], torch.Tensor]
Ways = Iterator[tuple[str, Work]]
Step = Callable[..., torch.Tensor]
SIGMOID_SLOPE, SIGMOID_CUBE = 1.5957691216057308, 0.044715  # the tanh form, written with a sigmoid


@dataclass(frozen=True)
class BlockSizes:
    """The sizes of one block and of its batch.

    Attributes:
        precisions: those whose blocks are compared.
        examples: numbers of sequences that a block is compiled with.
    """

    device: torch.device
    precisions: tuple[str, ...]
    esm: str
    dnabert: str
    sequences: int
    tokens: int
    width: int
    heads: int
    examples: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The tokens of the batch."""
        return self.sequences * self.tokens

    def random(self, *shape: int) -> torch.Tensor:
        """Return random bf16 numbers on the device, always the same ones."""
        generator = torch.Generator(self.device).manual_seed(0)
        numbers = torch.randn(shape, generator=generator, device=self.device)
        return numbers.to(torch.bfloat16)


# A batch of 32,760 tokens of ESM-2 3B, and 256 sequences of DNABERT-S; of the latter only the block.
REAL_SIZES = BlockSizes(
    torch.device("cuda"), ("bf16", "fp8"), "3x2560x40", "3x768x12", 195, 168, 2560, 40, (13,)
)
SMALL_SIZES = BlockSizes(
    torch.device("cpu"), ("bf16",), "3x64x2", "3x48x2", 5, 168, 64, 2, (13,)
)  # fmt: skip


def compiled(step: Step, device: torch.device, **options: Any) -> Step:
    """Compile a step with the options of the blocks. On a CPU only its graph is made."""
    if device.type != "cuda":
        return torch.compile(step, fullgraph=True, dynamic=False, backend="eager")
    from torch._inductor import list_options

    known = list_options()
    own = {name: value for name, value in (OPTIONS | options).items() if name in known}
    return torch.compile(step, fullgraph=True, dynamic=False, options=own)


def called(step: Step, sizes: BlockSizes, *inputs: torch.Tensor, **options: Any) -> Work:
    """Return a function that calls the compiled step; the number of tokens is a symbol to it."""
    from torch._dynamo import mark_dynamic

    made = compiled(step, sizes.device, **options)

    def work() -> torch.Tensor:
        with torch.inference_mode():
            return made(*inputs)

    for tensor in inputs:
        if tensor.dim() and tensor.shape[0] in (sizes.rows, sizes.sequences):
            mark_dynamic(tensor, 0)
    return work


# --- steps ---------------------------------------------------------------------------------------


def gelu_erf(x: torch.Tensor) -> torch.Tensor:
    """GELU as the models were trained with."""
    return F.gelu(x)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """The tanh form of GELU."""
    return F.gelu(x, approximate="tanh")


def gelu_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """The tanh form of GELU, with one exponential."""
    y = x.float()
    gate = torch.sigmoid(SIGMOID_SLOPE * y * (1 + SIGMOID_CUBE * y * y))
    return (y * gate).to(x.dtype)


def gelu_ways(sizes: BlockSizes) -> Ways:
    """GELU of the wide state alone."""
    x = sizes.random(sizes.rows, 4 * sizes.width)
    for name, step in (("erf", gelu_erf), ("tanh", gelu_tanh), ("sigmoid", gelu_sigmoid)):
        yield name, called(step, sizes, x)


def product_ways(sizes: BlockSizes) -> Ways:
    """The first product of the feed-forward layer, with GELU."""
    x, bias = sizes.random(sizes.rows, sizes.width), sizes.random(4 * sizes.width)
    weight = sizes.random(4 * sizes.width, sizes.width) / sizes.width**0.5

    def inside(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)

    def after(gelu: Step) -> Step:
        return lambda x, weight, bias: gelu(F.linear(x, weight, bias))

    yield "erf after the product", called(after(gelu_erf), sizes, x, weight, bias)
    yield "tanh after the product", called(after(gelu_tanh), sizes, x, weight, bias)
    yield "sigmoid after the product", called(after(gelu_sigmoid), sizes, x, weight, bias)
    yield "tanh in the product", called(inside, sizes, x, weight, bias)


def quantisation_ways(sizes: BlockSizes) -> Ways:
    """GELU of a product in 8 bits, rounded to 8 bits for the next one. The result is that times its scale."""
    raw, bias = sizes.random(sizes.rows, 4 * sizes.width), sizes.random(4 * sizes.width)
    scale = sizes.random(sizes.rows, 1).float().abs()
    weight_scale = sizes.random(4 * sizes.width).float().abs()

    def product(
        raw: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        return raw.float() * scale * weight + bias.float()

    def gelu_first(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return rounded(F.gelu(product(*inputs)).to(torch.bfloat16))

    def bound_first(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return rounded_gelu(product(*inputs))

    def bound_first_sigmoid(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = product(*inputs)
        bound = y.amax(-1, keepdim=True).clamp(min=LOWEST_GELU) / MOST
        return (gelu_sigmoid(y) * (1 / bound)).to(FP8), bound

    inputs = (raw, scale, weight_scale, bias)
    for name, step in (
        ("GELU (erf), then the maximum of the row", gelu_first),
        ("a bound of the row, then GELU (erf), as the program does", bound_first),
        ("a bound of the row, then GELU (sigmoid)", bound_first_sigmoid),
    ):
        yield name, called(step, sizes, *inputs)  # type: ignore[arg-type]


def attention_ways(sizes: BlockSizes) -> Ways:
    """Attention of sequences of equal length, by the kernels of torch."""
    head = sizes.width // sizes.heads
    q, k, v = (
        sizes.random(sizes.sequences, sizes.tokens, sizes.heads, head).transpose(1, 2)
        for _ in range(3)
    )

    def with_kernel(backend: SDPBackend) -> Work:
        def work() -> torch.Tensor:
            with torch.inference_mode(), sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v)

        return work

    kernels = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    for name, backend in kernels.items():
        yield name, with_kernel(backend)


def norm_ways(sizes: BlockSizes) -> Ways:
    """The layer norm before a product."""
    x = sizes.random(sizes.rows, sizes.width)
    norm = TwoPassLayerNorm(sizes.width, device=sizes.device, dtype=torch.bfloat16)
    plain = torch.nn.LayerNorm(sizes.width, device=sizes.device, dtype=torch.bfloat16)

    def eager() -> torch.Tensor:
        with torch.inference_mode():
            result: torch.Tensor = plain(x)
            return result

    yield "two passes, compiled", called(norm, sizes, x)
    yield (
        "two passes, compiled, not deterministic",
        called(norm, sizes, x, deterministic=False),
    )
    yield "torch's own, compiled", called(plain, sizes, x)
    yield "torch's own kernel", eager


# --- blocks --------------------------------------------------------------------------------------


def with_sequences(example: Example, sequences: int) -> Example:
    """Return an example with so many sequences, all of which are like its first."""
    inputs = []
    for tensor, dimensions in zip(example.inputs, example.free, strict=True):
        if tensor is not None and 0 in dimensions:
            tensor = tensor[:1].repeat(sequences, *[1] * (tensor.dim() - 1))
        inputs.append(tensor)
    return Example(inputs, example.free)


def block_ways(sizes: BlockSizes, family: str, architecture: str, precision: str) -> Ways:
    """One block that is neither the first nor the last: as written, compiled, and in other ways.

    It is compiled with examples of several sizes, and in each way of ``BLOCK_VARIANTS``.
    """

    def opened() -> BatchedEncoder:
        return random_encoder(  # always with the same weights
            family, architecture, str(sizes.device), precision, budget=1, truncation=TRUNCATION
        )

    encoder = opened()
    if sizes.device.type == "cuda":
        encoder.set_budget(encoder.bounds.most)  # which the example of the program follows
    example = encoder.compile_examples()[0]  # of a batch without padding, where there are two
    with torch.inference_mode():  # compiled code takes other tensors for another kind of input
        batch = [
            tensor if tensor is None else tensor.clone()
            for tensor in with_sequences(example, sizes.sequences).inputs
        ]
    blocks: Any = encoder.network.blocks

    def work(stack: Stack, context: Callable[[], AbstractContextManager[None]]) -> Work:
        def forward() -> torch.Tensor:
            with torch.inference_mode(), context():
                state: torch.Tensor = stack(*batch)
            if stack.calls.uncompiled:
                raise RuntimeError(f"the compiled block was not used: {stack.calls.reason}")
            return state

        return forward

    def varied(variant: BlockVariant) -> Work:
        ready: list[Work] = []

        def forward() -> torch.Tensor:
            if not ready:  # compiled at the first call, so that a failure is a row of its own
                other: Any = opened().network.blocks  # a variant changes the block it is given
                stack = Stack([other[1]])
                variant.change(stack)
                with variant.context():
                    stack.fuse([example], backend=backend, options=variant.options)
                ready.append(work(stack, variant.context))
            return ready[0]()

        return forward

    backend = "inductor" if sizes.device.type == "cuda" else "eager"
    yield "as written", work(Stack([blocks[1]]), nullcontext)
    examples = {"example of the program": example} | {
        f"example of {count} sequences": with_sequences(example, count) for count in sizes.examples
    }
    for name, compile_example in examples.items():
        stack = Stack([blocks[1]])
        stack.fuse([compile_example], backend=backend)
        yield f"compiled, {name}", work(stack, nullcontext)
    for name, variant in BLOCK_VARIANTS.items():
        yield f"compiled, {name}", varied(variant)


def groups(sizes: BlockSizes) -> dict[str, Callable[[], Ways]]:
    """Return the groups in the order of their importance."""
    blocks = {
        f"block of {family} {precision}": lambda f=family, a=size, p=precision: block_ways(
            sizes, f, a, p
        )
        for family, size in (("esm2", sizes.esm), ("dnabert-s", sizes.dnabert))
        for precision in sizes.precisions
    }
    return {
        "product with gelu": lambda: product_ways(sizes),
        "fp8 quantisation": lambda: quantisation_ways(sizes),
        "attention": lambda: attention_ways(sizes),
        "layer norm": lambda: norm_ways(sizes),
        "gelu": lambda: gelu_ways(sizes),
        **blocks,
    }


def measured(ways: Ways, sizes: BlockSizes, rounds: int) -> dict[str, dict[str, Any]]:
    """Return the figures of each way, with its agreement with the first one, or why it failed."""
    works: dict[str, Work] = {}
    rows: dict[str, dict[str, Any]] = {}
    reference: torch.Tensor | None = None
    for name, work in ways:
        try:
            result = _as_one(work())
        except COMPILER_ERRORS as error:
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
            continue
        reference = result if reference is None else reference
        works[name] = work
        rows[name] = {
            "largest_difference": float((result - reference).abs().max()),
            "least_cosine": float(F.cosine_similarity(result, reference, dim=-1).min()),
        }
    for name, figures in (time_variants(works, sizes.device, rounds) if works else {}).items():
        rows[name] |= figures
    return rows


def _as_one(result: Any) -> torch.Tensor:
    """Return float32 numbers; those in 8 bits come with their scale."""
    if isinstance(result, tuple):
        numbers, scale = result
        product: torch.Tensor = numbers.float() * scale
        return product
    single: torch.Tensor = result.float()
    return single


def main() -> int:
    """Measure every group, and save the figures after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--groups", help="only these, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    sizes = REAL_SIZES if options.device == "cuda" else SMALL_SIZES
    all_groups = groups(sizes)
    names = options.groups.split(",") if options.groups else list(all_groups)
    document: dict[str, Mapping[str, Any]] = {"groups": {}}
    failed = False
    for name in names:
        torch._dynamo.reset()
        try:
            rows = measured(all_groups[name](), sizes, options.rounds)
        except COMPILER_ERRORS as error:
            rows, failed = {"-": {"failed": f"{type(error).__name__}: {error}"[:500]}}, True
        document["groups"][name] = rows  # type: ignore[index]
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(name)
        for way, row in rows.items():
            if "failed" in row:
                print(f"    {way}: {row['failed']}")
                continue
            print(f"    {way}: {row['milliseconds']:.4f} ms, {row['times_as_fast']:.3f} times as fast, "
                  f"least cosine {row['least_cosine']:.6f}")  # fmt: skip
        if sizes.device.type == "cuda":
            torch.cuda.empty_cache()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
