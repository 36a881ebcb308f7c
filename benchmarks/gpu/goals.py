"""Compare what was measured on a GPU with the goals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import Scale

FULL_FRAME = 168  # tokens of ESM-2 in a full frame of a 500 bp chunk
REAL_TOKENS = 100  # of 499 bases with the real tokenizer; the random one makes some 130
# The goals: share of the matrix product, sequences per second of both encoders, fp8 over bf16.
MATMUL_SHARE, ESM_RATE, DNABERT_RATE, FP8_GAIN = 0.75, 600.0, 10_000.0, 1.3

Figure = float | None


@dataclass(frozen=True)
class Goal:
    """A rate or ratio of which at least ``required`` is the goal.

    ``measured`` is None where it was not measured.
    """

    name: str
    required: float
    measured: Figure

    @property
    def met(self) -> str:
        """Whether the goal is met: ``yes``, ``no`` or ``not measured``."""
        if self.measured is None:
            return "not measured"
        return "yes" if self.measured >= self.required else "no"

    def row(self) -> dict[str, Any]:
        """Return the goal for the summary."""
        return {
            "goal": self.name,
            "required": self.required,
            "measured": self.measured,
            "met": self.met,
        }


def read_json(path: Path) -> dict[str, Any]:
    """Return what a part has saved, or nothing where its file is missing or incomplete."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def goals(out: Path, scale: Scale) -> list[Goal]:
    """Return the goals of the models alone, and of the same models in a whole run."""
    esm, dnabert = read_json(out / "esm2.json"), read_json(out / "dnabert-s.json")
    pools = {p: read_json(out / f"pool-{p}.json") for p in (scale.low, scale.lower)}
    low, lower, name = scale.low, scale.lower, f"ESM-2 {scale.esm}"

    def worker(precision: str, stage: str, rate: str) -> Figure:
        found: Figure = pools[precision].get("rates", {}).get(stage, {}).get(rate)
        return found

    protein, nucleotide = "protein_embeddings", "nucleotide_embeddings"  # names of stages
    tokens = worker(low, protein, "tokens_per_second_of_worker")
    sequences = "sequences_per_second_of_worker"
    return [
        Goal(f"{name} {low}, share of the matrix product", MATMUL_SHARE,
             own_result(esm, low, "share_of_matmul")),
        Goal(f"{name} {low}, sequences of {FULL_FRAME} tokens per second", ESM_RATE,
             quotient(own_result(esm, low, "tokens_per_second"), FULL_FRAME)),
        Goal(f"{name} {lower}, times {low}", FP8_GAIN, quotient(*rates(esm, lower, low))),
        Goal(f"{scale.dnabert} {low}, sequences per second", DNABERT_RATE,
             own_result(dnabert, low, "sequences_per_second")),
        Goal(f"{scale.dnabert} {low}, sequences of {REAL_TOKENS} tokens per second", DNABERT_RATE,
             quotient(own_result(dnabert, low, "tokens_per_second"), REAL_TOKENS)),
        Goal(f"{scale.dnabert} {lower}, times {low}", FP8_GAIN, quotient(*rates(dnabert, lower, low))),
        Goal(f"{name} {low} through the pool, share of the matrix product", MATMUL_SHARE,
             quotient(product_of(tokens, operations_per_token(esm)), matmul_rate(esm, low))),
        Goal(f"{name} {low} through the pool, sequences of {FULL_FRAME} tokens per second", ESM_RATE,
             quotient(tokens, FULL_FRAME)),
        Goal(f"{name} {lower} through the pool, times {low}", FP8_GAIN,
             quotient(worker(lower, protein, sequences), worker(low, protein, sequences))),
        Goal(f"{scale.dnabert} {low} through the pool, sequences per second", DNABERT_RATE,
             worker(low, nucleotide, sequences)),
        Goal(f"{scale.dnabert} {lower} through the pool, times {low}", FP8_GAIN,
             quotient(worker(lower, nucleotide, sequences), worker(low, nucleotide, sequences))),
    ]  # fmt: skip


def own_result(document: Mapping[str, Any], precision: str, key: str) -> Figure:
    """Return a result of this program for the only model of a benchmark."""
    for model in document.get("models", ()):
        for row in model["results"]:
            if row["implementation"] == "virnucpro" and row["precision"] == precision:
                found: Figure = row.get(key)
                return found
    return None


def rates(document: Mapping[str, Any], *precisions: str) -> list[Figure]:
    """Return the sequences per second at each of the precisions."""
    return [own_result(document, precision, "sequences_per_second") for precision in precisions]


def operations_per_token(document: Mapping[str, Any]) -> Figure:
    """Return the floating-point operations per token, with those of attention."""
    return next((m["flops"] / m["tokens"] for m in document.get("models", ())), None)


def matmul_rate(document: Mapping[str, Any], precision: str) -> Figure:
    """Return the operations per second of the matrix product."""
    models = document.get("models", ())
    return next((m["matmul_flops_per_second"].get(precision) for m in models), None)


def quotient(one: Figure, other: Figure) -> Figure:
    """Divide two values. The result is None where either was not measured."""
    return one / other if one is not None and other else None


def product_of(one: Figure, other: Figure) -> Figure:
    """Multiply two values. The result is None where either was not measured."""
    return one * other if one is not None and other is not None else None


COLUMNS: Sequence[tuple[str, str, Callable[[Mapping[str, Any]], Figure]]] = (
    ("sequences/s", ",.1f", lambda row: row.get("sequences_per_second")),
    ("tokens/s", ",.0f", lambda row: row.get("tokens_per_second")),
    ("of matmul", ".1%", lambda row: row.get("share_of_matmul")),
    ("x original", ".2f", lambda row: row["ratio_to_original"]),
    ("x transformers", ".2f", lambda row: row["ratio_to_transformers"]),
    ("x bf16", ".2f", lambda row: row["ratio_to_bf16"]),
    ("compile s", ".1f", lambda row: row["compile_seconds"]),
    ("waited", ".1%", lambda row: row.get("host_wait")),
    ("GiB", ".1f", lambda row: quotient(row["peak_memory"], 2**30)),
)


def benchmark_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per implementation and precision of a benchmark."""
    keep = ("implementation", "precision", "check", "least_cosine", "compiled", "compile_failed")
    return [
        {"model": model["model"]}
        | {key: row[key] for key in keep}
        | {name: figure(row) for name, _, figure in COLUMNS}
        for model in document.get("models", ())
        for row in model["results"]
    ]


def text_lines(part: Mapping[str, Any]) -> list[str]:
    """Return the rows of a part as text."""
    found = []
    for row in part.get("rows", ()):
        figures = (f"{name} {row[name]:{form}}" for name, form, _ in COLUMNS
                   if row[name] is not None)  # fmt: skip
        failed = [f"NOT COMPILED: {row['compile_failed']}"] if row["compile_failed"] else []
        words = [row["model"], row["implementation"], row["precision"], row["check"]]
        found.append("  ".join(["   ", " ".join(words), *figures, *failed]))
    for row in part.get("stages", ()):
        found.append(f"     {row['stage']}  {row['frames_per_second']:,.0f} frames/s")
    for row in part.get("workers", ()):
        if "compile_failed" in row:
            found.append(f"     {row['stage']} NOT COMPILED: {row['compile_failed']}")
    for stage, row in part.get("rates", {}).items():
        figures = (f"{name} {value:,.3g}" for name, value in row.items() if value is not None)
        found.append("  ".join(["   ", stage, *figures]))
    return found
