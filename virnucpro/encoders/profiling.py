"""Throughput of an encoder over rising budgets."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.registry import family_named

BATCHES = 4  # a call, on each thread of a CPU; of one alone nothing could be prepared ahead
WORTH_IT = 1.02  # a larger budget has to be faster by 2 %: less is noise, and memory is of use


@dataclass(frozen=True)
class Point:
    """What one budget reached.

    Attributes:
        budget: tokens or sequences a batch.
        sequences: a second.
        tokens: a second, without padding.
        waited: share of the time in which no tokens were ready.
        peak_memory: bytes on the GPU with the model; None on a CPU.
    """

    budget: int
    sequences: float
    tokens: float
    waited: float
    peak_memory: int | None


def made_up(family: str, lengths: Sequence[int], count: int) -> list[str]:
    """Return ``count`` random sequences, of each length the same number, always the same ones."""
    draw = random.Random(count)
    letters = family_named(family).alphabet
    return ["".join(draw.choices(letters, k=lengths[i % len(lengths)])) for i in range(count)]


def rising(least: int, most: int) -> Iterator[int]:
    """``least`` and its doubles up to ``most``."""
    while least <= most:
        yield least
        least *= 2


def curve(
    encoder: BatchedEncoder,
    family: str,
    lengths: Sequence[int],
    budgets: Iterable[int],
    seconds: float,
) -> Iterator[Point]:
    """Measure one budget after the other, each for ``seconds`` at least.

    Ends at the first that does not fit into the memory.
    """
    mean = sum(lengths) / len(lengths) if encoder.bounds.unit == "tokens" else 1
    batches = BATCHES * (torch.get_num_threads() if encoder.device.type == "cpu" else 1)
    for budget in budgets:
        encoder.set_budget(budget)
        sequences = made_up(family, lengths, batches * max(1, int(budget / mean)))
        try:
            yield _point(encoder, sequences, seconds)
        except torch.OutOfMemoryError:
            return


def _point(encoder: BatchedEncoder, sequences: Sequence[str], seconds: float) -> Point:
    done = {"sequences": 0, "tokens": 0}

    def count(sequences: int, tokens: int) -> None:
        done["sequences"] += sequences
        done["tokens"] += tokens

    cuda = encoder.device.type == "cuda"
    encoder.encode(sequences[: len(sequences) // BATCHES], lambda s, t: None)  # warm
    if cuda:
        torch.cuda.reset_peak_memory_stats(encoder.device)
    started, waited = time.perf_counter(), encoder.host_wait_seconds
    while (passed := time.perf_counter() - started) < seconds or not done["sequences"]:
        encoder.encode(sequences, count)  # returns when the last row is on the host
    return Point(
        encoder.budget.amount,
        done["sequences"] / passed,
        done["tokens"] / passed,
        (encoder.host_wait_seconds - waited) / passed,
        torch.cuda.max_memory_allocated(encoder.device) if cuda else None,
    )


def recommended(points: Sequence[Point]) -> int:
    """The smallest budget that no larger one beats by more than noise."""
    best = max(point.tokens for point in points)
    return next(point.budget for point in points if point.tokens * WORTH_IT >= best)
