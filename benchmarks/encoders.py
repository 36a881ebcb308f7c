"""Measure encoders at each precision beside other implementations, with the same random weights.

    python -m benchmarks.encoders
    python -m benchmarks.encoders esm2_t33_650M_UR50D DNABERT-S --precision bf16,fp8 --json here.json
    python -m benchmarks.encoders esm2:6x320x20 --device cpu --no-peers

A MODEL is the name of a released one, or FAMILY:LAYERSxWIDTHxHEADS. Implementations take turns, with a
large matrix product at each precision. One that gives other embeddings than this program in fp32
is reported and its speed is not measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.models import (
    count_work,
    frame_lengths,
    parse_model,
    random_encoder,
)
from benchmarks.peers import (
    FAIR_ESM,
    ONE_BY_ONE,
    TRANSFORMERS,
    VIRNUCPRO,
    Implementation,
    other_implementations,
    own_embed,
)
from benchmarks.timing import MatrixProduct, machine_facts, ratio, time_in_turns
from benchmarks.tolerances import TOLERANCES
from virnucpro.compute.budget import random_sequences
from virnucpro.compute.threads import call_mkl_functions_once
from virnucpro.contracts import Device
from virnucpro.devices import visible_gpus
from virnucpro.encoders.registry import family_named
from virnucpro.precision import choose_precision

# Without MODEL: what predict takes; a CPU would need minutes per batch for the 3B.
MODELS = {"cuda": ["esm2_t36_3B_UR50D", "DNABERT-S"], "cpu": ["esm2_t12_35M_UR50D", "DNABERT-S"]}
SEQUENCES = {"cuda": 1024, "cpu": 32}
ROUNDS = 3  # at least; the median of fewer is not better than a single measurement
# The columns of the table, with the key of each figure and its form.
COLUMNS = (
    ("sequences/s", "sequences_per_second", ",.1f"),
    ("tokens/s", "tokens_per_second", ",.0f"),
    ("of matmul", "share_of_matmul", ".0%"),
    ("x original", "ratio_to_original", ".2f"),
    ("x transformers", "ratio_to_transformers", ".2f"),
    ("cosine", "least_cosine", ".6f"),
)


def main() -> int:
    """Measure, save and print; return 1 where an implementation gives other embeddings."""
    options = _options()
    call_mkl_functions_once()  # fair-esm and transformers make their rotary tables with torch
    gpus = visible_gpus() if options.device != "cpu" else []
    if options.device == "cuda" and not gpus:
        sys.exit("no usable NVIDIA GPU: see nvidia-smi, or use --device cpu")
    device = gpus[0] if gpus else Device("cpu")
    precisions = [choose_precision(p, [device]) for p in options.precision.split(",")]
    options.sequences = options.sequences or SEQUENCES[device.kind]
    document: dict[str, Any] = {"machine": machine_facts(), "models": []}
    print(f"{device.name}: {', '.join(precisions)}")
    for family, size in options.models or map(parse_model, MODELS[device.kind]):
        measured = measure_model(family, size, device.kind, precisions, options)
        document["models"].append(measured)
        if options.json:
            options.json.write_text(json.dumps(document, indent=1) + "\n")
        print_table(measured)
        gc.collect()  # one model is freed before the next is opened
        if device.kind == "cuda":
            torch.cuda.empty_cache()
    rows = [row for model in document["models"] for row in model["results"]]
    return int(any(row["check"] == "differs" for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=parse_model, metavar="MODEL")
    parser.add_argument("--sequences", type=int, help="frames (default 1024; on a CPU 32)")
    parser.add_argument("--precision", default="auto", help="one or several, as for predict")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: a GPU if there is one")
    parser.add_argument("--seconds", type=float, default=5.0, help="per implementation")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--json", type=Path, help="save all figures here, after every model")
    return parser.parse_args()


def measure_model(
    family: str, size: str, device: str, precisions: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """Check every implementation of a model, time them in turns, and return all figures.

    They are compared with the first: beside other programs, with this one in fp32.
    """
    about, count = family_named(family), options.sequences
    sequences = random_sequences(about.alphabet, frame_lengths(about.molecule, count), count)
    own = ["fp32"] if options.peers else []
    own += [about.instead.get(each, each) for each in precisions]
    results: list[dict[str, Any]] = []
    timed: dict[str, Implementation] = {}
    reference: torch.Tensor | None = None
    tokens = flops = 0
    for implementation in _implementations(family, size, device, own, peers=options.peers):
        print(f"{size}: checking {implementation.name}", flush=True)
        rows, row = _first_call(implementation, sequences)
        if reference is None:
            reference = rows
            tokens, flops = count_work(implementation.encoder, sequences)
        else:
            row |= compared(rows, reference, implementation.precision)
        if row["check"] != "differs":
            timed[implementation.name] = implementation
        results.append(row)
    on = torch.device(device)
    products = {p: MatrixProduct(on, p) for p in {i.precision: None for i in timed.values()}}
    works = {name: partial(one.embed, sequences) for name, one in timed.items()} | products
    times = time_in_turns(works, on, ROUNDS, options.seconds)
    # The way of the original, and at the same precision transformers, are what each is compared with.
    original = times.get(f"{FAIR_ESM} fp32") or times.get(f"{ONE_BY_ONE} fp32", [])
    for row in results:
        name = f"{row['implementation']} {row['precision']}"
        if name in timed:
            product, once = products[row["precision"]], median(times[name])
            beside = ratio(times[row["precision"]], times[name]) or 0.0
            row["sequences_per_second"] = len(sequences) / once
            row["tokens_per_second"] = tokens / once
            row["share_of_matmul"] = flops / product.flops * beside
            row["seconds"] = times[name]
            row["ratio_to_original"] = ratio(original, times[name])
            other = times.get(f"{TRANSFORMERS} {row['precision']}", [])
            row["ratio_to_transformers"] = ratio(other, times[name])
    rates = {p: one.flops / median(times[p]) for p, one in products.items()}
    return {
        **{"model": size, "family": family, "sequences": len(sequences)},
        **{"tokens": tokens, "flops": flops},
        "matmul_flops_per_second": rates,
        "results": results,
    }


def _implementations(
    family: str, size: str, device: str, precisions: Sequence[str], *, peers: bool
) -> Iterator[Implementation]:
    """Yield the implementations in the order of their turns, ours at each precision first."""
    for precision in dict.fromkeys(precisions):
        encoder = random_encoder(family, size, device, precision)
        # The peers share these weights, so they are made before the weights are packed.
        others = [*other_implementations(encoder, precision)] if peers else []
        encoder.optimise()
        yield Implementation(VIRNUCPRO, precision, own_embed(encoder), encoder)
        yield from others


def _first_call(
    implementation: Implementation, sequences: list[str]
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the embeddings, and what is known of an implementation before it is timed."""
    encoder = implementation.encoder
    rows = implementation.embed(sequences)
    facts = encoder.facts() if implementation.program == VIRNUCPRO else {}
    return rows, {
        "implementation": implementation.program,
        "precision": implementation.precision,
        "check": "reference",
        "uncompiled_calls": encoder.network.blocks.calls.uncompiled if facts else 0,
        **{"compiled": False, "compile_seconds": 0.0, "compile_failed": None, **facts},
    }


def compared(rows: torch.Tensor, reference: torch.Tensor, precision: str) -> dict[str, Any]:
    """Compare two float32 ``[n, dim]`` row by row, in float64. NaN differs."""
    one, other = rows.double(), reference.double()
    cosine = float(F.cosine_similarity(one, other).min())
    return {
        "check": "same" if cosine >= TOLERANCES[precision].cosine else "differs",
        "least_cosine": cosine,
        "largest_difference": float((one - other).abs().max()),
    }


def print_table(model: Mapping[str, Any]) -> None:
    """Print a line per implementation and precision."""
    print(f"{model['model']:30}", *(f"{name:>14}" for name, _, _ in COLUMNS))
    for row in model["results"]:
        cells = ("-" if row.get(key) is None else f"{row[key]:{form}}" for _, key, form in COLUMNS)
        name = f"{row['implementation']} {row['precision']}"
        print(f"{name:30}", *(f"{cell:>14}" for cell in cells), row["check"])
        if row["compile_failed"] or row["uncompiled_calls"]:
            print("    NOT COMPILED:", row["compile_failed"] or "torch would compile it again")


if __name__ == "__main__":
    sys.exit(main())
