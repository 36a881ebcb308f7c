"""The goals of the GPU path beside what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import Scale

FULL = 168  # tokens of a full frame of a 500 bp chunk
REAL = 100  # tokens of 499 bases: the real tokenizer's; the made-up one has some 130
SHARE, ESM, DNABERT, FP8 = 0.75, 600.0, 10_000.0, 1.3

Figure = float | None


@dataclass(frozen=True)
class Goal:
    """``wanted`` at least; ``measured`` is None where it was not."""

    what: str
    wanted: float
    measured: Figure

    @property
    def met(self) -> str:
        """``yes``, ``no`` or ``not measured``."""
        if self.measured is None:
            return "not measured"
        return "yes" if self.measured >= self.wanted else "no"

    def row(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "goal": self.what,
            "wanted": self.wanted,
            "measured": self.measured,
            "met": self.met,
        }


def read(path: Path) -> dict[str, Any]:
    """What a part has saved; empty where it has not, or only half of it."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def goals(out: Path, scale: Scale) -> list[Goal]:
    """Those of the model alone, and the same through the pool."""
    esm, dnabert = read(out / "esm2.json"), read(out / "dnabert-s.json")
    pools = {p: read(out / f"pool-{p}.json") for p in (scale.low, scale.lower)}
    low, lower, name = scale.low, scale.lower, f"ESM-2 {scale.esm}"

    def worker(precision: str, stage: str, rate: str) -> Figure:
        found: Figure = pools[precision].get("rates", {}).get(stage, {}).get(rate)
        return found

    tokens = worker(low, "protein_embeddings", "tokens_a_second_of_worker")
    sequences = "sequences_a_second_of_worker"
    return [
        Goal(f"{name} {low}, share of the matrix product", SHARE,
             ours(esm, low, "share_of_matmul")),
        Goal(f"{name} {low}, sequences of {FULL} tokens a second", ESM,
             over(ours(esm, low, "tokens_a_second"), FULL)),
        Goal(f"{name} {lower}, times {low}", FP8, over(*rates(esm, lower, low))),
        Goal(f"{scale.dnabert} {low}, sequences a second", DNABERT,
             ours(dnabert, low, "sequences_a_second")),
        Goal(f"{scale.dnabert} {low}, sequences of {REAL} tokens a second", DNABERT,
             over(ours(dnabert, low, "tokens_a_second"), REAL)),
        Goal(f"{scale.dnabert} {lower}, times {low}", FP8, over(*rates(dnabert, lower, low))),
        Goal(f"{name} {low} through the pool, share of the matrix product", SHARE,
             over(times(tokens, operations(esm)), product(esm, low))),
        Goal(f"{name} {low} through the pool, sequences of {FULL} tokens a second", ESM,
             over(tokens, FULL)),
        Goal(f"{name} {lower} through the pool, times {low}", FP8,
             over(worker(lower, "protein_embeddings", sequences), worker(low, "protein_embeddings", sequences))),
        Goal(f"{scale.dnabert} {low} through the pool, sequences a second", DNABERT,
             worker(low, "nucleotide_embeddings", sequences)),
        Goal(f"{scale.dnabert} {lower} through the pool, times {low}", FP8,
             over(worker(lower, "nucleotide_embeddings", sequences), worker(low, "nucleotide_embeddings", sequences))),
    ]  # fmt: skip


def ours(document: Mapping[str, Any], precision: str, key: str) -> Figure:
    """A figure of ours of the only model of a benchmark."""
    for model in document.get("models", ()):
        for row in model["results"]:
            if row["implementation"] == "virnucpro" and row["precision"] == precision:
                found: Figure = row.get(key)
                return found
    return None


def rates(document: Mapping[str, Any], *precisions: str) -> list[Figure]:
    """Sequences a second."""
    return [ours(document, precision, "sequences_a_second") for precision in precisions]


def operations(document: Mapping[str, Any]) -> Figure:
    """Floating-point operations of one token, attention too."""
    return next((m["flops"] / m["tokens"] for m in document.get("models", ())), None)


def product(document: Mapping[str, Any], precision: str) -> Figure:
    """Operations of the matrix product a second."""
    models = document.get("models", ())
    return next((m["matmul_flops_a_second"].get(precision) for m in models), None)


def over(one: Figure, other: Figure) -> Figure:
    """One divided by the other; None where either was not measured."""
    return one / other if one is not None and other else None


def times(one: Figure, other: Figure) -> Figure:
    """One times the other; None where either was not measured."""
    return one * other if one is not None and other is not None else None


COLUMNS: Sequence[tuple[str, str, Callable[[Mapping[str, Any]], Figure]]] = (
    ("sequences/s", ",.1f", lambda row: row.get("sequences_a_second")),
    ("tokens/s", ",.0f", lambda row: row.get("tokens_a_second")),
    ("of matmul", ".1%", lambda row: row.get("share_of_matmul")),
    ("x original", ".2f", lambda row: row["ratio_to_original"]),
    ("x transformers", ".2f", lambda row: row["ratio_to_transformers"]),
    ("x bf16", ".2f", lambda row: row["ratio_to_bf16"]),
    ("compile s", ".1f", lambda row: row["compile_seconds"]),
    ("waited", ".1%", lambda row: row.get("host_wait")),
    ("GiB", ".1f", lambda row: over(row["peak_memory"], 2**30)),
)


def benchmark_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of a benchmark: a row an implementation and precision."""
    keep = ("implementation", "precision", "check", "least_cosine", "compiled", "compile_failed")
    return [
        {"model": model["model"]}
        | {key: row[key] for key in keep}
        | {name: figure(row) for name, _, figure in COLUMNS}
        for model in document.get("models", ())
        for row in model["results"]
    ]


def lines(part: Mapping[str, Any]) -> list[str]:
    """The rows of a part as text."""
    found = []
    for row in part.get("rows", ()):
        figures = (f"{name} {row[name]:{form}}" for name, form, _ in COLUMNS
                   if row[name] is not None)  # fmt: skip
        failed = [f"NOT COMPILED: {row['compile_failed']}"] if row["compile_failed"] else []
        words = [row["model"], row["implementation"], row["precision"], row["check"]]
        found.append("  ".join(["   ", " ".join(words), *figures, *failed]))
    for row in part.get("stages", ()):
        found.append(f"     {row['stage']}  {row['frames_a_second']:,.0f} frames/s")
    for row in part.get("workers", ()):
        if "compile_failed" in row:
            found.append(f"     {row['stage']} NOT COMPILED: {row['compile_failed']}")
    for stage, row in part.get("rates", {}).items():
        figures = (f"{name} {value:,.3g}" for name, value in row.items() if value is not None)
        found.append("  ".join(["   ", stage, *figures]))
    return found
