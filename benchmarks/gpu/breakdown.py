"""Show what one forward of a model spends its time on, as written and compiled.

    python -m benchmarks.gpu.breakdown esm2_t36_3B_UR50D --precision bf16 --json FILE

One full batch of equal lengths goes through a model with random weights, as written and compiled, and
a padded batch of many lengths as compiled. Several forwards are timed without the profiler of torch.
Then one is profiled and summed up: milliseconds of each kernel, TFLOP/s of matrix products, and
the time between kernels. Small traces are stored beside FILE, for https://ui.perfetto.dev.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.timing import time_variants
from virnucpro.benchmark.budget_curve import random_sequences
from virnucpro.benchmark.machine import synchronise
from virnucpro.benchmark.models import count_work, open_model, parse_model
from virnucpro.encoders.batched import Batch, BatchedEncoder
from virnucpro.encoders.family import LETTERS_PER_FRAME

LARGEST_TRACE = 1 << 20  # bytes of a compressed trace that is stored
SHOWN = 40  # kernels and operations
SHORTEST = 0.2  # of the longest in a padded batch
# What a kernel is for, by a part of its name.
KINDS = {
    "compiled": ("triton",),  # whose names tell what was fused, such as a copy
    "attention": ("attention", "flash", "fmha"),
    "matrix product": ("mm", "nvjet", "cutlass", "linear"),
    "copy": ("memcpy", "memset", "copy"),
}


def main() -> int:
    """Save the breakdown of each batch when it is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="as for virnucpro benchmark")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--budget", type=int, help="of the batch; the largest by default")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    model = parse_model(options.model, "random")
    encoder = open_model(model, options.device, options.precision, 1)
    encoder.set_budget(options.budget or encoder.bounds.most)
    longest = LETTERS_PER_FRAME[model.molecule]
    draw = random.Random(0)
    mixed = [draw.randint(round(SHORTEST * longest), longest) for _ in range(64)]
    document: dict[str, Any] = {"model": options.model, "precision": options.precision}
    for mode, lengths in (
        ("as written", [longest]),
        ("compiled", [longest]),
        ("compiled, padded", mixed),
    ):
        if mode == "compiled":
            _compile(encoder)
        sequences = random_sequences(model.family, lengths, 2 * _count(encoder))
        batch = max(encoder.batches(sequences), key=lambda batch: batch.tokens)
        flops = count_work(encoder, [sequences[i] for i in batch.indices])[1]
        document[mode] = broken_down(encoder, batch, flops)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        _print_table(mode, document[mode])
        trace = options.json.with_name(
            f"{options.json.stem}.{mode.replace(' ', '-')}.trace.json.gz"
        )
        _store_trace(encoder, batch, trace)
    return 0


def _count(encoder: BatchedEncoder) -> int:
    """Return the sequences of a full batch."""
    budget = encoder.budget.amount
    unit = 1 if encoder.bounds.unit == "sequences" else encoder.typical_tokens
    return max(2, budget // unit)


def _compile(encoder: BatchedEncoder) -> None:
    """Compile as predict does. On a CPU the graphs are made, and run without a compiler."""
    if encoder.device.type == "cuda":
        encoder.compile()
    else:
        encoder.network.blocks.fuse(encoder.compile_examples(), backend="eager")  # type: ignore[union-attr, operator]


def broken_down(encoder: BatchedEncoder, batch: Batch, flops: int) -> dict[str, Any]:
    """Return the time of a forward, and the share of each of its kernels.

    On a CPU there are no kernels, and the operations take their place.
    """
    inputs = tuple(tensor.to(encoder.device) for tensor in batch.inputs)

    def forward() -> torch.Tensor:
        with torch.inference_mode():
            return encoder.forward(*inputs)

    figures = time_variants({"forward": forward}, encoder.device, 5)["forward"]
    figures["teraflops_per_second"] = round(flops / figures["milliseconds"] / 1e9, 2)
    profiler = _profiled(encoder, batch)
    operations = profiler.key_averages(group_by_input_shape=True)
    events = [e for e in profiler.events() or () if e.device_type == DeviceType.CUDA]
    kernels = [e for e in events if not getattr(e, "is_user_annotation", False)]
    milliseconds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    timed = [(e.name, e.time_range.elapsed_us(), 1) for e in kernels] or [
        (e.key, e.self_cpu_time_total, e.count) for e in operations
    ]
    for name, microseconds, count in timed:
        milliseconds[name] += microseconds / 1e3
        calls[name] += count
    by_kind: Counter[str] = Counter()
    for name, spent in milliseconds.items():
        by_kind[kind_of(name)] += spent
    between = None
    if kernels:
        starts, ends = zip(*((e.time_range.start, e.time_range.end) for e in kernels), strict=True)
        between = round((max(ends) - min(starts)) / 1e3 - milliseconds.total(), 4)
    return {
        "forward": figures,
        "encoder": dict(encoder.facts()),
        "block_calls": asdict(encoder.block_calls),
        "shapes": [list(tensor.shape) for tensor in inputs],
        "tokens": batch.tokens,
        "timed": "kernels" if kernels else "operations on the CPU",
        "milliseconds": round(milliseconds.total(), 4),
        "milliseconds_between_kernels": between,
        "milliseconds_by_kind": {kind: round(ms, 4) for kind, ms in by_kind.items()},
        "kernels": [
            {"kernel": name, "milliseconds": round(spent, 4), "calls": calls[name]}
            for name, spent in milliseconds.most_common(SHOWN)
        ],
        "products": products(operations, on_gpu=bool(kernels)),
    }


def products(operations: Sequence[Any], *, on_gpu: bool) -> list[dict[str, Any]]:
    """Return the matrix products with their shapes and rates, the longest first."""
    rows = []
    for event in operations:
        flops = event.flops
        if event.key == "aten::_scaled_mm":  # whose operations the profiler does not count
            (rows_of_left, inner), (_, columns) = event.input_shapes[:2]
            flops = 2 * rows_of_left * inner * columns * event.count
        microseconds = event.device_time_total if on_gpu else event.cpu_time_total
        if flops and microseconds and kind_of(event.key) == "matrix product":
            rows.append(
                {
                    "operation": event.key,
                    "shapes": [shape for shape in event.input_shapes if shape],
                    "calls": event.count,
                    "milliseconds": round(microseconds / 1e3, 4),
                    "teraflops_per_second": round(flops / microseconds / 1e6, 2),
                }
            )
    return sorted(rows, key=lambda row: -row["milliseconds"])[:SHOWN]


def kind_of(kernel: str) -> str:
    """Return what a kernel is for: attention, a matrix product, a compiled kernel, a copy or other."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(p in name for p in parts)), "other")


def _profiled(encoder: BatchedEncoder, batch: Batch) -> Any:
    """Return the profiler of one forward."""
    activities = [ProfilerActivity.CPU]
    if encoder.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    inputs = tuple(tensor.to(encoder.device) for tensor in batch.inputs)
    with profile(activities=activities, record_shapes=True, with_flops=True) as profiler:
        with torch.inference_mode():
            encoder.forward(*inputs)
        synchronise(encoder.device)
    return profiler


def _store_trace(encoder: BatchedEncoder, batch: Batch, path: Path) -> None:
    _profiled(encoder, batch).export_chrome_trace(str(path))
    if path.stat().st_size > LARGEST_TRACE:
        path.unlink()


def _print_table(mode: str, breakdown: dict[str, Any]) -> None:
    forward = breakdown["forward"]
    print(f"{mode}: {forward['milliseconds']:.2f} ms, {forward['teraflops_per_second']} TFLOP/s, "
          f"{breakdown['milliseconds_by_kind']}, between kernels "
          f"{breakdown['milliseconds_between_kernels']} ms", flush=True)  # fmt: skip
    if breakdown["block_calls"]["uncompiled"]:
        print(f"    CALLS WERE NOT COMPILED: {breakdown['block_calls']}")
    for row in breakdown["kernels"][:10]:
        print(f"{row['milliseconds']:9.3f} ms {row['calls']:5}  {row['kernel'][:90]}")


if __name__ == "__main__":
    sys.exit(main())
