"""Which sequences, and how many, go through a model at once.

Batches are lists of indices into ``lengths``; every index occurs exactly once. The longest come
first, so that a batch that does not fit into memory fails at once. How large a batch may be is
chosen by measuring, and halved when it was too much.

A budget is a power of two, so that what happens to be free on a GPU seldom changes it: batches
decide the last bits of an embedding. It is kept in the state of a run and used again on resume.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

import torch

from virnucpro.contracts import Encoder, Json

# Tokens of sequences of one length that keep a GPU busy: 23 TFLOP of ESM-2 3B.
FULL_BATCH_TOKENS = 4096
# A batch of unlike lengths holds nothing shorter than this share of its longest sequence: less is
# padding where most sequences have one length, as proteins, and more is where all lengths vary.
_SHORTEST = 0.8
# Frames of 500 base chunks have 83 to 117 tokens of DNABERT-S. The host launches a batch in some
# 5 ms, in which an H200 computes 60 such frames: few batches gain more than padding costs.
_SHORTEST_OF_MIXED = 0.6


def by_tokens(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Make batches of at most ``budget`` tokens (padding included), or of one longer sequence.

    Sequences of one length that fill at least half a batch, or are ``FULL_BATCH_TOKENS``, stay
    among themselves in batches of equal size, and need neither padding nor mask. The others are
    put together with the next shorter ones, as long as at most a fifth of a row is padding.
    """
    batches: list[list[int]] = []
    others: list[int] = []
    for length, group in groupby(_longest_first(lengths), key=lambda index: lengths[index]):
        indices = list(group)
        if len(indices) * length < min(FULL_BATCH_TOKENS, budget / 2):
            others += indices
            continue
        parts = -(-len(indices) // max(1, budget // max(1, length)))
        bounds = [part * len(indices) // parts for part in range(parts + 1)]
        batches += [indices[start:stop] for start, stop in pairwise(bounds)]
    return sorted(
        batches + _neighbours(others, lengths, lambda longest: budget // longest, _SHORTEST),
        key=lambda batch: (-lengths[batch[0]], len(batch), batch[0]),
    )


def by_sequences(
    lengths: Sequence[int], sequences: int, *, step: int, area: int
) -> list[list[int]]:
    """Make batches of at most ``sequences`` neighbours in length.

    ``area`` bounds sequences x length^2, with the longest length as it is padded to a multiple of
    ``step``: that is the elements of a score matrix per head. A batch has at least one sequence.
    """

    def most(longest: int) -> int:
        return min(sequences, area // padded_length(longest, step) ** 2)

    return _neighbours(_longest_first(lengths), lengths, most, _SHORTEST_OF_MIXED)


def _neighbours(
    indices: Sequence[int], lengths: Sequence[int], most: Callable[[int], int], shortest: float
) -> list[list[int]]:
    """Put neighbours in length together; ``indices`` are sorted, longest first.

    A batch has at most ``most`` sequences for the length of its longest, of which the others have
    the share ``shortest`` at least.
    """
    batches: list[list[int]] = []
    for index in indices:
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and len(batches[-1]) < most(longest) and lengths[index] >= shortest * longest:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def padded_length(length: int, step: int) -> int:
    """Return ``length`` rounded up to a multiple of ``step``, at least ``step``."""
    return max(step, -(-length // step) * step)


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))


Unit = Literal["tokens", "sequences"]
Found = Literal["measured", "default", "given"]

# The share of the free memory that a batch may take. The rest is for what the probes do not see:
# longer sequences, batches with a mask, gaps between blocks, other programs on the same GPU.
MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class Bounds:
    """The limits of a family's budget, in its ``unit``."""

    unit: Unit
    cpu: int  # the budget on a CPU, where nothing is measured
    least: int  # on a GPU; batches of ``least`` and ``2 * least`` are measured
    most: int  # on a GPU; a larger batch gains nothing


@dataclass
class Budget:
    """Tokens or sequences per batch at most, and where the number is from.

    ``largest`` is how many sequences the largest batch of the last task had, as far as it came.
    """

    amount: int
    found: Found
    largest: int = 0

    def halve(self) -> bool:
        """Halve the amount; return False where one sequence at a time was already too much."""
        if self.amount == 1 or self.largest == 1:
            return False
        self.amount //= 2
        return True


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a GPU, or held by torch's allocator without being used."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def peak_memory(device: torch.device, work: Callable[[], object]) -> int:
    """Return the most bytes on a GPU during ``work``, beyond those allocated before."""
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def measured_budget(bounds: Bounds, free: int, peak: Callable[[int], int]) -> Budget:
    """Return what fits into ``free`` bytes of a GPU.

    ``peak`` sends a batch of a budget through the model and returns the bytes that it took. Two of
    them give the bytes per unit and those that every batch takes. The largest ``least * 2**k`` up
    to ``most`` is chosen that takes a share of the free memory, or ``least`` where even that is too
    much: the first task then says so.
    """
    least = bounds.least
    budget = Budget(least, "measured")
    try:
        peak(least)  # the first batch also pays for workspaces that stay
        single, double = peak(least), peak(2 * least)
    except RuntimeError:  # too little memory, in the words of many libraries
        return budget
    per_unit = max(double - single, 0) / least
    fixed = max(single - per_unit * least, 0)
    while (larger := 2 * budget.amount) <= bounds.most:
        if fixed + per_unit * larger > MEMORY_SHARE * free:
            break
        budget.amount = larger
    return budget


LEAST_GAIN = 1.02  # of a larger budget: less is noise, and memory has other uses


def random_sequences(alphabet: str, lengths: Sequence[int], count: int) -> list[str]:
    """Return ``count`` random sequences, the same number of each length, always the same ones."""
    draw = random.Random(count)
    return ["".join(draw.choices(alphabet, k=lengths[i % len(lengths)])) for i in range(count)]


def measure_budget(
    encoder: Encoder, budget: int, sequences: Sequence[str], seconds: float, *, on_gpu: bool
) -> dict[str, Json]:
    """Embed ``sequences`` again and again for at least ``seconds``; ``encoder`` has the budget.

    Returns the throughput without padding, the share of the time in which no tokens were ready, and
    the most bytes that a GPU has held.

    Raises:
        torch.OutOfMemoryError: a batch does not fit into the memory.
    """
    reports: list[tuple[int, int]] = []
    encoder.encode(sequences[: len(sequences) // 4], lambda s, t: None)  # warm
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    started, waited = time.perf_counter(), encoder.host_wait_seconds
    while (elapsed := time.perf_counter() - started) < seconds or not reports:
        # Returns when the last row is on the host.
        encoder.encode(sequences, lambda *counts: reports.append(counts))
    embedded, tokens = map(sum, zip(*reports, strict=True))
    return {
        "budget": budget,
        "sequences_per_second": embedded / elapsed,
        "tokens_per_second": tokens / elapsed,
        "waited_share": (encoder.host_wait_seconds - waited) / elapsed,
        "peak_memory": torch.cuda.max_memory_allocated() if on_gpu else None,
    }


def best_budget(points: Sequence[Mapping[str, Json]]) -> int:
    """Return the smallest budget that no larger one beats by more than noise."""
    best = max(point["tokens_per_second"] for point in points)
    enough = (p["budget"] for p in points if p["tokens_per_second"] * LEAST_GAIN >= best)
    return int(next(enough))
