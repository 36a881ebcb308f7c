"""Which sequences go through a model together. Pure functions of lengths; order is fixed.

Each returns batches as lists of indices into ``lengths``; every index occurs exactly once. The
longest come first, so that a batch that does not fit into memory fails at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

# Tokens of sequences of one length that keep a GPU busy: 23 TFLOP of ESM-2 3B.
FULL_BATCH_TOKENS = 4096
# A padded batch holds nothing shorter than this share of its longest sequence.
_SHORTEST = 0.8


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
        batches + _padded(others, lengths, budget), key=lambda b: (-lengths[b[0]], len(b), b[0])
    )


def _padded(indices: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Put neighbours in length together; ``indices`` are sorted, longest first."""
    batches: list[list[int]] = []
    for index in indices:
        batch = batches[-1] if batches else []
        longest = lengths[batch[0]] if batch else 0
        fits = (len(batch) + 1) * longest <= budget and lengths[index] >= _SHORTEST * longest
        if batch and fits:
            batch.append(index)
        else:
            batches.append([index])
    return batches


def by_buckets(lengths: Sequence[int], sequences: int, *, step: int, area: int) -> list[list[int]]:
    """Make batches of at most ``sequences``, all in one bucket of lengths, a multiple of ``step``.

    ``area`` bounds sequences x bucket^2, that is the elements of a score matrix per
    head; a batch has at least one sequence.
    """
    batches: list[list[int]] = []
    ordered = _longest_first(lengths)
    for bucket, group in groupby(ordered, key=lambda index: bucket_of(lengths[index], step)):
        indices = list(group)
        size = max(1, min(sequences, area // bucket**2))
        batches += [indices[start : start + size] for start in range(0, len(indices), size)]
    return batches


def bucket_of(length: int, step: int) -> int:
    """Return ``length`` rounded up to a multiple of ``step``, at least ``step``."""
    return max(step, -(-length // step) * step)


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
