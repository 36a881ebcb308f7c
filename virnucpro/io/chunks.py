"""Cut records into chunks of one length, exactly as the original VirNucPro does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

_INFIX = "_chunk_"


def chunk_spans(length: int, chunk_length: int) -> list[tuple[int, int]]:
    """Return where the chunks of a record of ``length`` bases lie: 0-based, half-open, in bases.

    Neighbours overlap so that the chunks cover the record. The original meant to spread the
    overlap evenly, but counts the longer overlaps against one chunk fewer than the shorter ones,
    so the last chunk is mostly shorter than ``chunk_length``. The classifiers were trained with it.
    """
    if length <= chunk_length:
        return [(0, length)] if length else []
    count = -(-length // chunk_length)
    spare = count * chunk_length - length
    low = spare // count
    longer = spare - low * (count - 1)  # so many of the overlaps, the first ones, are low + 1
    starts = (k * (chunk_length - low) - min(k, longer) for k in range(count))
    return [(start, min(start + chunk_length, length)) for start in starts]


def record_spans(lengths: Sequence[int], chunk_length: int) -> list[tuple[int, int]]:
    """Return where the chunks of a record lie, or those of a pair, whose mates have ``lengths``.

    No chunk spans both mates. The bases of the second mate are counted on behind the first one.
    """
    ends = accumulate(lengths, initial=0)
    return [
        (before + start, before + stop)
        for before, length in zip(ends, lengths, strict=False)
        for start, stop in chunk_spans(length, chunk_length)
    ]


def chunk_id(record_id: str, number: int) -> str:
    """Return the id of chunk ``number`` (from 1) of a record."""
    return f"{record_id}{_INFIX}{number}"


def record_of(chunk_id: str) -> tuple[str, int]:
    """Return the record id and the chunk number (from 1) that :func:`chunk_id` joined.

    Raises:
        ValueError: the text is not the id of a chunk.
    """
    record_id, infix, number = chunk_id.rpartition(_INFIX)
    if not infix or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{chunk_id!r} is not the id of a chunk")
    return record_id, int(number)
