"""Compare what was measured on a GPU with the goals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.parts import Scale

FULL_FRAME = 168  # tokens of ESM-2 in a full frame of a 500 bp chunk
REAL_TOKENS = 100  # of 499 bases with the real tokenizer; the random one makes some 130
# The goals: share of the matrix product, sequences per second of both encoders, fp8 over bf16.
MATMUL_SHARE, ESM_RATE, DNABERT_RATE, FP8_GAIN = 0.75, 600.0, 10_000.0, 1.4

Figure = float | None
Figures = Mapping[str, Mapping[str, Any]]  # what each part has saved


def compare_with_goals(figures: Figures, scale: Scale) -> list[dict[str, Any]]:
    """Return the goals of the models alone, and of the same models in a whole run."""
    half, eighth, name = scale.half, scale.eighth, f"ESM-2 {scale.esm}"
    esm, dnabert = (_own(figures, part, half) for part in ("esm2", "dnabert-s"))
    pool, pool_eighth = (_protein_stage(figures, precision) for precision in (half, eighth))
    models: list[dict[str, Any]] = figures.get("esm2", {}).get("models", [])
    model = models[0] if models else {}
    tokens, flops = pool.get("tokens_per_second_of_worker"), None
    if tokens is not None and model:
        flops = tokens * model["flops"] / model["tokens"]
    rate, esm_tokens = "sequences_per_second", _quotient(esm.get("tokens_per_second"), FULL_FRAME)
    dnabert_tokens = _quotient(dnabert.get("tokens_per_second"), REAL_TOKENS)
    goals: list[tuple[str, float, Figure]] = [
        (f"{name} {half}, share of the matrix product", MATMUL_SHARE, esm.get("share_of_matmul")),
        (f"{name} {half}, sequences of {FULL_FRAME} tokens per second", ESM_RATE, esm_tokens),
        (f"{name} {eighth}, times {half}", FP8_GAIN, _gain(figures, "esm2-fp8", scale)),
        (f"{scale.dnabert} {half}, sequences per second", DNABERT_RATE, dnabert.get(rate)),
        (f"{scale.dnabert} {half}, sequences of {REAL_TOKENS} tokens per second", DNABERT_RATE,
         dnabert_tokens),
        (f"{scale.dnabert} {eighth}, times {half}", FP8_GAIN,
         _gain(figures, "dnabert-s-fp8", scale)),
        (f"{name} {half} through the pool, share of the matrix product", MATMUL_SHARE,
         _quotient(flops, model.get("matmul_flops_per_second", {}).get(half))),
        (f"{name} {half} through the pool, sequences of {FULL_FRAME} tokens per second", ESM_RATE,
         _quotient(tokens, FULL_FRAME)),
        (f"{name} {eighth} through the pool, times {half}", FP8_GAIN,
         _quotient(pool_eighth.get(f"{rate}_of_worker"), pool.get(f"{rate}_of_worker"))),
    ]  # fmt: skip
    return [
        {"goal": goal, "required": required, "measured": measured, "met": _met(measured, required)}
        for goal, required, measured in goals
    ]


def _met(measured: Figure, required: float) -> str:
    if measured is None:
        return "not measured"
    return "yes" if measured >= required else "no"


def _own(figures: Figures, part: str, precision: str) -> Mapping[str, Any]:
    """Return what was measured of this program in the first model of a part."""
    for model in figures.get(part, {}).get("models", ()):
        for row in model["results"]:
            if row["implementation"] == "virnucpro" and row["precision"] == precision:
                found: Mapping[str, Any] = row
                return found
    return {}


def _protein_stage(figures: Figures, precision: str) -> Mapping[str, Any]:
    rates = figures.get(f"pool-{precision}", {}).get("rates", {})
    stage: Mapping[str, Any] = rates.get("protein_embeddings", {})
    return stage


def _gain(figures: Figures, part: str, scale: Scale) -> Figure:
    """Return how many times as fast 8 bits are as 16, measured in turns."""
    rates = (_own(figures, part, p).get("sequences_per_second") for p in (scale.eighth, scale.half))
    return _quotient(*rates)


def _quotient(dividend: Figure, divisor: Figure) -> Figure:
    """Divide two values. The result is None where either was not measured."""
    return dividend / divisor if dividend is not None and divisor else None
