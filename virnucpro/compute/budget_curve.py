"""Measure the throughput of an encoder with a batch budget, and choose among several budgets."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from virnucpro.contracts import Encoder

LEAST_GAIN = 1.02  # of a larger budget: less is noise, and memory has other uses


@dataclass(frozen=True)
class BudgetPoint:
    """The throughput with one budget."""

    budget: int  # tokens or sequences per batch
    sequences_per_second: float
    tokens_per_second: float  # without padding
    waited_share: float  # of the time: no tokens were ready
    peak_memory: int | None  # bytes on the GPU with the model; None on a CPU


def random_sequences(alphabet: str, lengths: Sequence[int], count: int) -> list[str]:
    """Return ``count`` random sequences, the same number of each length, always the same ones."""
    draw = random.Random(count)
    return ["".join(draw.choices(alphabet, k=lengths[i % len(lengths)])) for i in range(count)]


def doubled_budgets(least: int, most: int) -> Iterator[int]:
    """Yield ``least`` and its doubles up to ``most``."""
    while least <= most:
        yield least
        least *= 2


def measure_budget(
    encoder: Encoder, budget: int, sequences: Sequence[str], seconds: float, *, on_gpu: bool
) -> BudgetPoint:
    """Embed ``sequences`` again and again for at least ``seconds``; ``encoder`` has the budget.

    Raises:
        torch.OutOfMemoryError: a batch does not fit into the memory.
    """
    counts = {"sequences": 0, "tokens": 0}

    def count(sequences: int, tokens: int) -> None:
        counts["sequences"] += sequences
        counts["tokens"] += tokens

    encoder.encode(sequences[: len(sequences) // 4], lambda s, t: None)  # warm
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    started, waited = time.perf_counter(), encoder.host_wait_seconds
    while (elapsed := time.perf_counter() - started) < seconds or not counts["sequences"]:
        encoder.encode(sequences, count)  # returns when the last row is on the host
    return BudgetPoint(
        budget,
        counts["sequences"] / elapsed,
        counts["tokens"] / elapsed,
        (encoder.host_wait_seconds - waited) / elapsed,
        torch.cuda.max_memory_allocated() if on_gpu else None,
    )


def best_budget(points: Sequence[BudgetPoint]) -> int:
    """Return the smallest budget that no larger one beats by more than noise."""
    best = max(point.tokens_per_second for point in points)
    return next(point.budget for point in points if point.tokens_per_second * LEAST_GAIN >= best)
