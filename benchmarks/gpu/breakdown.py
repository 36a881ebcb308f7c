"""Show what one forward of a model spends its time on, as written and compiled.

    python -m benchmarks.gpu.breakdown esm2_t36_3B_UR50D --precision bf16 --json FILE

One full batch of equal lengths goes through a model with random weights, as written and compiled, and
a padded batch of many lengths as compiled. Several forwards are timed without the profiler of torch.
Then one is profiled: FILE has the milliseconds by kind of kernel and between kernels, and the profiler's
table of kernels and operations is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.models import count_work, parse_model, random_encoder, sequences_for
from benchmarks.timing import synchronise, time_in_turns
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.family import LETTERS_PER_FRAME
from virnucpro.encoders.registry import family_named

ROWS, COLUMN = 30, 70  # of the printed table; characters of a name
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
    parser.add_argument("model", type=parse_model, help="as for benchmarks.encoders")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--budget", type=int, help="of the batch; the largest by default")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    family, size = options.model
    encoder = random_encoder(family, size, options.device, options.precision, budget=1)
    encoder.set_budget(options.budget or encoder.bounds.most)
    unit = 1 if encoder.bounds.unit == "sequences" else encoder.typical_tokens
    count = max(2, encoder.budget.amount // unit)
    longest = LETTERS_PER_FRAME[family_named(family).molecule]
    draw = random.Random(0)
    mixed = [draw.randint(round(SHORTEST * longest), longest) for _ in range(64)]
    document: dict[str, Any] = {}
    modes = {"as written": [longest], "compiled": [longest], "compiled, padded": mixed}
    for mode, lengths in modes.items():
        if mode == "compiled":
            compile_blocks(encoder)
        print(f"{size} {options.precision} {mode}", flush=True)
        document[mode] = broken_down(encoder, sequences_for(family, lengths, 2 * count))
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(document[mode]), flush=True)
    return 0


def compile_blocks(encoder: BatchedEncoder) -> None:
    """Compile as predict does. On a CPU the graphs are made, and run without a compiler."""
    if encoder.device.type == "cuda":
        encoder.compile()
    else:
        encoder.network.blocks.fuse(encoder.compile_examples(), backend="eager")


def broken_down(encoder: BatchedEncoder, sequences: list[str]) -> dict[str, Any]:
    """Return the time of a forward of the largest batch of ``sequences``, and what it consists of.

    On a CPU there are no kernels, and the operations take their place.
    """
    batch = max(encoder.batches(sequences), key=lambda batch: batch.tokens)
    inputs = tuple(tensor.to(encoder.device) for tensor in batch.inputs)

    def forward() -> torch.Tensor:
        with torch.inference_mode():
            return encoder.forward(*inputs)

    forward()
    *_, figures = time_in_turns({"forward": forward}, encoder.device, 5, short=True)
    on_gpu = encoder.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, record_shapes=True, with_flops=True) as profiler:
        forward()
        synchronise(encoder.device)
    operations = profiler.key_averages(group_by_input_shape=True)
    order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    print(operations.table(sort_by=order, row_limit=ROWS, max_name_column_width=COLUMN))
    events = [e for e in profiler.events() or () if e.device_type == DeviceType.CUDA]
    kernels = [e for e in events if not getattr(e, "is_user_annotation", False)]
    milliseconds: Counter[str] = Counter()
    for event in kernels:
        milliseconds[kind_of(event.name)] += event.time_range.elapsed_us() / 1e3
    for row in [] if kernels else operations:
        milliseconds[kind_of(row.key)] += row.self_cpu_time_total / 1e3
    ends = [moment for e in kernels for moment in (e.time_range.start, e.time_range.end)]
    between = (max(ends) - min(ends)) / 1e3 - milliseconds.total() if ends else None
    flops = count_work(encoder, [sequences[i] for i in batch.indices])[1]
    spent = figures["forward"]["milliseconds"]
    return {
        **figures["forward"],
        "teraflops_per_second": round(flops / spent / 1e9, 2),
        "encoder": dict(encoder.facts()),
        "block_calls": asdict(encoder.block_calls),
        "shapes": [list(tensor.shape) for tensor in inputs],
        "tokens": batch.tokens,
        "timed": "kernels" if kernels else "operations on the CPU",
        "milliseconds_between_kernels": between,
        "milliseconds_by_kind": {kind: round(ms, 4) for kind, ms in milliseconds.items()},
    }


def kind_of(kernel: str) -> str:
    """Return what a kernel is for: a compiled kernel, attention, a matrix product, a copy or other."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(p in name for p in parts)), "other")


if __name__ == "__main__":
    sys.exit(main())
