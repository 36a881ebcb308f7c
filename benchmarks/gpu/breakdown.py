"""Show what one forward of a model spends its time on, as written and compiled.

    python -m benchmarks.gpu.breakdown esm2_t36_3B_UR50D --precision bf16 --json FILE

One full batch goes through a model with random weights. Several forwards are timed without the
profiler, then one is profiled and summed up by kernel: milliseconds, share, TFLOP/s of matrix
products and attention, GB/s of the rest where the tensors are known, and the pauses between kernels.
The compiled model also shows the configurations that autotuning chose, and how many graphs there are.
The trace itself is stored beside FILE, for https://ui.perfetto.dev.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.timing import time_variants
from benchmarks.gpu.trace import read_trace, summed
from virnucpro.benchmark.budget_curve import random_sequences
from virnucpro.benchmark.machine import synchronise
from virnucpro.benchmark.models import count_work, open_model, parse_model
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.family import LETTERS_PER_FRAME

LARGEST_TRACE = 3 << 20  # bytes of a compressed trace that is stored


def main() -> int:
    """Save the breakdown as written, then that of the compiled model as well."""
    options = _options()
    document: dict[str, Any] = {"model": options.model, "precision": options.precision}
    encoder, inputs, work = _opened(options, document)
    for mode in ("as written", "compiled"):
        if mode == "compiled":
            _compile(encoder)
        document.setdefault("modes", {})[mode] = _broken_down(encoder, inputs, work, mode, options)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.change_setting:  # torch compiled for the other value, and is told not to do it again
        torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32
        mode = "after a change of settings"
        document["modes"][mode] = _broken_down(encoder, inputs, work, mode, options)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32
    print_tables(document)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="as for virnucpro benchmark")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--budget", type=int, help="of the batch; the largest by default")
    parser.add_argument("--rounds", type=int, default=5, help="forwards that are timed")
    parser.add_argument(
        "--change-setting",
        action="store_true",
        help="also change a setting of torch after compiling, to see that calls of blocks that are "
        "then not run as compiled are counted",
    )
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


def _opened(
    options: argparse.Namespace, document: dict[str, Any]
) -> tuple[BatchedEncoder, tuple[torch.Tensor, ...], int]:
    """Return a model, the inputs of a batch on its device, and the operations of a forward."""
    model = parse_model(options.model, "random")
    encoder = open_model(model, options.device, options.precision, 1)
    bounds = encoder.bounds
    budget = options.budget or bounds.most
    encoder.set_budget(budget)
    count = budget if bounds.unit == "sequences" else max(2, budget // encoder.typical_tokens)
    sequences = random_sequences(model.family, [LETTERS_PER_FRAME[model.molecule]], count)
    batch = max(encoder.batches(sequences), key=lambda batch: batch.tokens)
    _, flops = count_work(encoder, [sequences[i] for i in batch.indices])
    document |= {"sequences": len(batch.indices), "tokens": batch.tokens, "flops": flops}
    inputs = tuple(tensor.to(encoder.device) for tensor in batch.inputs)
    document["shapes"] = [list(tensor.shape) for tensor in inputs]
    return encoder, inputs, flops


def _compile(encoder: BatchedEncoder) -> None:
    """Compile as predict does. On a CPU the graphs are made, and run without a compiler."""
    counters.clear()
    if encoder.device.type == "cuda":
        encoder.compile()
    else:
        encoder.network.blocks.fuse(encoder.compile_examples(), backend="eager")  # type: ignore[union-attr, operator]


def _broken_down(
    encoder: BatchedEncoder,
    inputs: tuple[torch.Tensor, ...],
    flops: int,
    mode: str,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return the time of a forward, and that of each of its kernels."""

    def forward() -> torch.Tensor:
        with torch.inference_mode():
            return encoder.forward(*inputs)

    figures = time_variants({mode: forward}, encoder.device, options.rounds)[mode]
    figures["teraflops_per_second"] = round(flops / figures["milliseconds"] / 1e9, 2)
    activities = [ProfilerActivity.CPU]
    if encoder.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True) as profiler:
        forward()
        synchronise(encoder.device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        kernels = summed(read_trace(path))
        compressed = gzip.compress(path.read_bytes(), 6)
    if len(compressed) <= LARGEST_TRACE:
        name = f"{options.json.stem}.{mode.replace(' ', '-')}.trace.json.gz"
        options.json.with_name(name).write_bytes(compressed)
    if encoder.device.type == "cuda" and kernels["timed"] != "kernels":
        kernels["problem"] = "the profiler saw no kernels: CUPTI is missing or not allowed"
    return {
        "forward": figures,
        "encoder": dict(encoder.facts()),
        "block_calls": asdict(encoder.block_calls),
        "graphs": {kind: dict(counts) for kind, counts in counters.items() if counts},
        "autotuned": autotuned_kernels(),
        **kernels,
    }


def autotuned_kernels() -> list[dict[str, Any]]:
    """Return the compiled Triton kernels of this process with the configuration that was chosen.

    Inductor has no list of them, so that they are looked for among all objects.
    """
    rows = []
    for tuner in gc.get_objects():
        if type(tuner).__name__ != "CachingAutotuner":
            continue
        launchers: list[Any] = getattr(tuner, "launchers", [])
        chosen = launchers[0] if len(launchers) == 1 else None
        configuration = getattr(chosen, "config", None)
        rows.append(
            {
                "kernel": getattr(tuner.fn, "__name__", "?"),
                "candidates": len(getattr(tuner, "configs", None) or launchers),
                "chosen": None if configuration is None else str(configuration),
                "registers": getattr(chosen, "n_regs", None),
                "spills": getattr(chosen, "n_spills", None),
                "shared_bytes": getattr(chosen, "shared", None),
            }
        )
    return sorted(rows, key=lambda row: str(row["kernel"]))


def print_tables(document: dict[str, Any]) -> None:
    """Print the kernels that take the most time."""
    for mode, breakdown in document["modes"].items():
        forward = breakdown["forward"]
        print(f"{document['model']} {document['precision']} {mode}: "
              f"{forward['milliseconds']:.2f} ms, {forward['teraflops_per_second']} TFLOP/s")  # fmt: skip
        calls = breakdown["block_calls"]
        if calls["uncompiled"]:
            print(f"    {calls['uncompiled']} CALLS WERE NOT COMPILED: {calls['reason']}")
        for row in breakdown["kernels"][:25]:
            rates = (
                f"{row[key]:,.0f} {unit}"
                for key, unit in (("teraflops_per_second", "TFLOP/s"), ("gigabytes_per_second", "GB/s"))
                if row[key] is not None
            )  # fmt: skip
            words = f"{row['milliseconds']:9.3f} ms {row['share']:6.1%} {row['calls']:5}"
            print("  ".join([words, row["kernel"][:70], row["shapes"][:50], *rates]))


if __name__ == "__main__":
    sys.exit(main())
