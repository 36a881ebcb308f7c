"""Measure the throughput of an encoder over rising batch budgets."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from virnucpro.benchmark.clocks import ClockSampler, Interval
from virnucpro.contracts import Json
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.registry import family_named

BATCHES = 4  # per call, on each thread of a CPU; with one, nothing could be prepared ahead
LEAST_GAIN = 1.02  # of a larger budget: less is noise, and memory has other uses


@dataclass(frozen=True)
class BudgetPoint:
    """The throughput with one budget.

    Attributes:
        budget: tokens or sequences per batch.
        tokens_per_second: without padding.
        waited_share: the share of the time in which no tokens were ready.
        peak_memory: bytes on the GPU with the model; None on a CPU.
        clocks: the state of the GPU; see :meth:`ClockSampler.during`.
    """

    budget: int
    sequences_per_second: float
    tokens_per_second: float
    waited_share: float
    peak_memory: int | None
    clocks: Mapping[str, Json] = field(default_factory=dict)


def random_sequences(family: str, lengths: Sequence[int], count: int) -> list[str]:
    """Return ``count`` random sequences, the same number of each length, always the same ones."""
    draw = random.Random(count)
    letters = family_named(family).alphabet
    return ["".join(draw.choices(letters, k=lengths[i % len(lengths)])) for i in range(count)]


def doubled_budgets(least: int, most: int) -> Iterator[int]:
    """Yield ``least`` and its doubles up to ``most``."""
    while least <= most:
        yield least
        least *= 2


def measure_budgets(
    encoder: BatchedEncoder,
    family: str,
    lengths: Sequence[int],
    budgets: Iterable[int],
    seconds: float,
) -> Iterator[BudgetPoint]:
    """Measure one budget after the other, each for at least ``seconds``.

    The first budget that does not fit into the memory ends it.
    """
    mean = sum(lengths) / len(lengths) if encoder.bounds.unit == "tokens" else 1
    batches = BATCHES * (torch.get_num_threads() if encoder.device.type == "cpu" else 1)
    for budget in budgets:
        encoder.set_budget(budget)
        sequences = random_sequences(family, lengths, batches * max(1, int(budget / mean)))
        try:
            yield _point(encoder, sequences, seconds)
        except torch.OutOfMemoryError:
            return


def _point(encoder: BatchedEncoder, sequences: Sequence[str], seconds: float) -> BudgetPoint:
    counts = {"sequences": 0, "tokens": 0}

    def count(sequences: int, tokens: int) -> None:
        counts["sequences"] += sequences
        counts["tokens"] += tokens

    cuda = encoder.device.type == "cuda"
    encoder.encode(sequences[: len(sequences) // BATCHES], lambda s, t: None)  # warm
    if cuda:
        torch.cuda.reset_peak_memory_stats(encoder.device)
    with ClockSampler(encoder.device) as sampler:
        started, waited = time.perf_counter(), encoder.host_wait_seconds
        while (elapsed := time.perf_counter() - started) < seconds or not counts["sequences"]:
            encoder.encode(sequences, count)  # returns when the last row is on the host
    return BudgetPoint(
        encoder.budget.amount,
        counts["sequences"] / elapsed,
        counts["tokens"] / elapsed,
        (encoder.host_wait_seconds - waited) / elapsed,
        torch.cuda.max_memory_allocated(encoder.device) if cuda else None,
        sampler.during([Interval(started, started + elapsed)]),
    )


def best_budget(points: Sequence[BudgetPoint]) -> int:
    """Return the smallest budget that no larger one beats by more than noise."""
    best = max(point.tokens_per_second for point in points)
    return next(point.budget for point in points if point.tokens_per_second * LEAST_GAIN >= best)
