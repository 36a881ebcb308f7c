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
MATMUL_SHARE, ESM_RATE, DNABERT_RATE, FP8_GAIN = 0.75, 600.0, 10_000.0, 1.4

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
        document: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document


def compare_with_goals(work: Path, scale: Scale) -> list[Goal]:
    """Return the goals of the models alone, and of the same models in a whole run."""
    half, eighth, name = scale.half, scale.eighth, f"ESM-2 {scale.esm}"
    esm, dnabert, both_esm, both_dnabert = (
        read_json(work / f"{part}.json") for part in ("esm2", "dnabert-s", "esm2-fp8", "dnabert-s-fp8")
    )  # fmt: skip
    pools = {p: read_json(work / f"pool-{p}.json") for p in (half, eighth)}

    def worker(precision: str, stage: str, key: str) -> Figure:
        figure: Figure = pools[precision].get("rates", {}).get(stage, {}).get(key)
        return figure

    protein, nucleotide = "protein_embeddings", "nucleotide_embeddings"  # names of stages
    tokens = worker(half, protein, "tokens_per_second_of_worker")
    sequences = "sequences_per_second_of_worker"
    return [
        Goal(f"{name} {half}, share of the matrix product", MATMUL_SHARE,
             own_result(esm, half, "share_of_matmul")),
        Goal(f"{name} {half}, sequences of {FULL_FRAME} tokens per second", ESM_RATE,
             quotient(own_result(esm, half, "tokens_per_second"), FULL_FRAME)),
        Goal(f"{name} {eighth}, times {half}", FP8_GAIN, gain(both_esm, eighth, half)),
        Goal(f"{scale.dnabert} {half}, sequences per second", DNABERT_RATE,
             own_result(dnabert, half, "sequences_per_second")),
        Goal(f"{scale.dnabert} {half}, sequences of {REAL_TOKENS} tokens per second", DNABERT_RATE,
             quotient(own_result(dnabert, half, "tokens_per_second"), REAL_TOKENS)),
        Goal(f"{scale.dnabert} {eighth}, times {half}", FP8_GAIN,
             gain(both_dnabert, eighth, half)),
        Goal(f"{name} {half} through the pool, share of the matrix product", MATMUL_SHARE,
             quotient(product_of(tokens, flops_per_token(esm)), matmul_rate(esm, half))),
        Goal(f"{name} {half} through the pool, sequences of {FULL_FRAME} tokens per second",
             ESM_RATE, quotient(tokens, FULL_FRAME)),
        Goal(f"{name} {eighth} through the pool, times {half}", FP8_GAIN,
             quotient(worker(eighth, protein, sequences), worker(half, protein, sequences))),
        Goal(f"{scale.dnabert} {half} through the pool, sequences per second", DNABERT_RATE,
             worker(half, nucleotide, sequences)),
        Goal(f"{scale.dnabert} {eighth} through the pool, times {half}", FP8_GAIN,
             quotient(worker(eighth, nucleotide, sequences), worker(half, nucleotide, sequences))),
    ]  # fmt: skip


def own_result(document: Mapping[str, Any], precision: str, key: str) -> Figure:
    """Return a result of this program for the only model of a benchmark."""
    for model in document.get("models", ()):
        for row in model["results"]:
            if row["implementation"] == "virnucpro" and row["precision"] == precision:
                figure: Figure = row.get(key)
                return figure
    return None


def gain(document: Mapping[str, Any], precision: str, other_precision: str) -> Figure:
    """Return how many times as fast a precision is as another, measured in turns."""
    rates = (own_result(document, p, "sequences_per_second") for p in (precision, other_precision))
    return quotient(*rates)


def flops_per_token(document: Mapping[str, Any]) -> Figure:
    """Return the floating-point operations per token, with those of attention."""
    return next((m["flops"] / m["tokens"] for m in document.get("models", ())), None)


def matmul_rate(document: Mapping[str, Any], precision: str) -> Figure:
    """Return the operations per second of the matrix product."""
    models = document.get("models", ())
    return next((m["matmul_flops_per_second"].get(precision) for m in models), None)


def quotient(dividend: Figure, divisor: Figure) -> Figure:
    """Divide two values. The result is None where either was not measured."""
    return dividend / divisor if dividend is not None and divisor else None


def product_of(value: Figure, other_value: Figure) -> Figure:
    """Multiply two values. The result is None where either was not measured."""
    return value * other_value if value is not None and other_value is not None else None


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
    ("SM MHz", ".0f", lambda row: row.get("sm_clock_mhz")),
    ("W", ".0f", lambda row: row.get("power_watts")),
)


def benchmark_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per implementation and precision of a benchmark."""
    keys = ("implementation", "precision", "check", "least_cosine", "compiled", "compile_failed",
            "first_call_seconds", "uncompiled_calls", "uncompiled_reason")  # fmt: skip
    return [
        {"model": model["model"], "throttle_reasons": row.get("throttle_reasons")}
        | {key: row[key] for key in keys}
        | {name: figure(row) for name, _, figure in COLUMNS}
        for model in document.get("models", ())
        for row in model["results"]
    ]


def text_lines(part: Mapping[str, Any]) -> list[str]:
    """Return the figures of a part as text."""
    lines = []
    for row in part.get("rows", ()):
        figures = (f"{name} {row[name]:{form}}" for name, form, _ in COLUMNS
                   if row[name] is not None)  # fmt: skip
        failed = [f"NOT COMPILED: {row['compile_failed']}"] if row["compile_failed"] else []
        if row["uncompiled_calls"]:
            reason = row["uncompiled_reason"]
            failed.append(f"{row['uncompiled_calls']} CALLS WERE NOT COMPILED: {reason}")
        words = [row["model"], row["implementation"], row["precision"], row["check"]]
        lines.append("  ".join(["   ", " ".join(words), *figures, *failed]))
    for row in part.get("stages", ()):
        lines.append(f"     {row['stage']}  {row['frames_per_second']:,.0f} frames/s")
    for row in part.get("workers", ()):
        if "compile_failed" in row:
            lines.append(f"     {row['stage']} NOT COMPILED: {row['compile_failed']}")
    for stage, row in part.get("rates", {}).items():
        figures = (f"{name} {value:,.3g}" for name, value in row.items() if value is not None)
        lines.append("  ".join(["   ", stage, *figures]))
    for test in part.get("failed_tests", ()):
        lines.append(f"     FAILED {test}")
    for mode, breakdown in part.get("modes", {}).items():
        kinds = (f"{kind} {ms:,.2f} ms" for kind, ms in breakdown["milliseconds_by_kind"].items())
        forward = f"{breakdown['forward']['milliseconds']:,.2f} ms"
        lines.append("  ".join([f"     forward {mode}: {forward}", *kinds]))
    for group, ways in part.get("groups", {}).items():
        for way, row in ways.items():
            result = (row["failed"] if "failed" in row else
                       f"{row['milliseconds']:.4f} ms, {row['times_as_fast']:.3f} times as fast")  # fmt: skip
            lines.append(f"     {group}: {way}: {result}")
    for point in part.get("points", ()):
        lines.append(f"     budget {point['budget']:,}: {point['tokens_per_second']:,.0f} tokens/s")
    for row in part.get("accuracy", {}).get("precisions", ()):
        lines.append(f"     calls of fp32 in {row['precision']}: {row['labels']}")
    return lines
