"""The first pass over an input: how much there is, and whether its ids are unique."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.io.records import Record, read_records

_LISTED = 5  # duplicated ids that a message names
_SUSPECTS = 64  # hashes to verify for that; chance makes two ids share one in 1e19 pairs


@dataclass(frozen=True)
class Census:
    """What a pass over the input counted.

    Attributes:
        records: number of records, at least 1.
        bases: letters of all records together.
        longest: bases of the longest record.
        median_length: bases; the mean of the middle two, rounded down, for an even number.
        uracil: whether a ``U`` was read as ``T``.
        duplicates: the first five ids that occur more than once, in order of appearance.
    """

    records: int
    bases: int
    longest: int
    median_length: int
    uracil: bool
    duplicates: tuple[str, ...]


def take_census(path: Path, *, limit: int | None = None) -> Census:
    """Read all of ``path`` once, and once more where ids seem to be duplicated.

    Keeps 16 bytes a record. ``limit`` is the largest expanded size of a compressed file, in bytes.

    Raises:
        UsageError: the file is missing, a directory or unreadable.
        InputError: the content is not usable, or has no sequences.
    """
    hashes, lengths = array("q"), array("q")
    records = read_records(path, limit=limit)
    for record in records:
        hashes.append(hash(record.id))
        lengths.append(len(record.sequence))
    if not lengths:
        raise InputError(f"{path}: no sequences; the file is empty, check what wrote it")
    sizes = np.frombuffer(lengths, np.int64)
    suspects = _shared(hashes)[:_SUSPECTS]
    return Census(
        records=len(sizes),
        bases=int(sizes.sum()),
        longest=int(sizes.max()),
        median_length=int(np.median(sizes)),
        uracil=records.uracil,
        duplicates=_verified(path, suspects, limit) if len(suspects) else (),
    )


class Renamer:
    """Makes ids unique in a second pass over an input.

    The first record with an id keeps it. Later ones get ``_2``, ``_3``, ..., passing over names
    that some record of the file has. Keeps 8 bytes a record, and the ids that are duplicated.
    """

    def __init__(self, path: Path, *, limit: int | None = None) -> None:
        """Read the ids of ``path``. Raises as :func:`take_census` does."""
        hashes = array("q", (hash(record.id) for record in read_records(path, limit=limit)))
        self._all = np.unique(np.frombuffer(hashes, np.int64))
        self._shared = frozenset(_shared(hashes).tolist())
        self._last: dict[str, int] = {}  # by duplicated id: the number given last

    def __call__(self, record: Record) -> Record:
        """Return ``record`` with an id and header of its own. Call once a record, in file order."""
        if hash(record.id) not in self._shared:
            return record
        number = self._last.get(record.id, 0) + 1
        if number == 1:
            self._last[record.id] = 1
            return record
        while self._taken(f"{record.id}_{number}"):
            number += 1
        self._last[record.id] = number
        name = f"{record.id}_{number}"
        return replace(record, id=name, header=record.header.replace(record.id, name, 1))

    def _taken(self, name: str) -> bool:
        # Two ids that share a hash only make it pass over a number.
        wanted = hash(name)
        place = int(np.searchsorted(self._all, wanted))
        return place < len(self._all) and int(self._all[place]) == wanted


def _shared(hashes: array[int]) -> npt.NDArray[np.int64]:
    """The hashes that occur more than once, by their first appearance."""
    if not hashes:
        return np.empty(0, np.int64)
    values = np.frombuffer(hashes, np.int64)
    ordered = np.sort(values)
    if (ordered[1:] != ordered[:-1]).all():
        return np.empty(0, np.int64)
    unique, first, counts = np.unique(values, return_index=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    return unique[repeated[np.argsort(first[repeated])]]


def _verified(path: Path, suspects: npt.NDArray[np.int64], limit: int | None) -> tuple[str, ...]:
    """The first ids that occur more than once among those whose hash is a suspect."""
    wanted = frozenset(suspects.tolist())
    counts: Counter[str] = Counter(
        record.id for record in read_records(path, limit=limit) if hash(record.id) in wanted
    )
    return tuple(name for name, count in counts.items() if count > 1)[:_LISTED]
