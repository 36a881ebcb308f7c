"""Summarise an input in a first pass: how much it holds, and whether its ids are unique."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.io.pairs import InputFiles, PairedRecords
from virnucpro.io.records import Record
from virnucpro.layout import Molecule

_LISTED = 5  # duplicated ids that are listed
_VERIFIED = 64  # hashes verified for that; two different ids share one by chance in 1e19 pairs


@dataclass(frozen=True)
class InputSummary:
    """The summary of an input.

    Attributes:
        records: number of records, or of pairs, at least 1.
        bases: letters of all sequences together: bases, or residues of proteins. A pair has two.
        longest: letters of the longest sequence.
        median_length: letters; the mean of the middle two, rounded down, for an even number.
        uracil: whether a ``U`` was read as ``T``.
        duplicates: the first five ids that occur more than once, in order of appearance.
        swapped: whether the second mates of pairs are where the first ones belong.
    """

    records: int
    bases: int
    longest: int
    median_length: int
    uracil: bool
    duplicates: tuple[str, ...]
    swapped: bool = False


def summarise_input(
    source: InputFiles, *, limit: int | None = None, molecule: Molecule = "nucleotide"
) -> InputSummary:
    """Return the summary of ``source``, which is read once more where ids seem to be duplicated.

    Keeps 16 bytes per record. ``limit`` is the largest expanded size of a compressed file in bytes.

    Raises:
        UsageError: a file is missing, a directory or unreadable, or two files do not hold pairs.
        InputError: the content is not usable, or has no sequences.
    """
    hashes, lengths = array("q"), array("q")
    records = source.records(limit=limit, molecule=molecule)
    for record in records:
        hashes.append(hash(record.id))
        lengths.append(len(record.sequence))
        if record.mate is not None:
            lengths.append(len(record.mate.sequence))
    if not lengths:
        raise InputError(f"{source}: no sequences; the file is empty, check what wrote it")
    sizes = np.frombuffer(lengths, np.int64)
    repeated = _repeated(hashes)[:_VERIFIED]
    return InputSummary(
        records=len(hashes),
        bases=int(sizes.sum()),
        longest=int(sizes.max()),
        median_length=int(np.median(sizes)),
        uracil=records.uracil,
        duplicates=_duplicated_ids(source, repeated, limit, molecule) if len(repeated) else (),
        swapped=isinstance(records, PairedRecords) and records.swapped,
    )


class RecordRenamer:
    """Make the ids of an input unique in a second pass over it.

    The first record with an id keeps it. Later ones get ``_2``, ``_3``, ..., passing over names
    that another record of the file has. Keeps 8 bytes per record, and the duplicated ids.
    """

    def __init__(
        self, source: InputFiles, *, limit: int | None = None, molecule: Molecule = "nucleotide"
    ) -> None:
        """Read the ids of ``source``. Raises as :func:`summarise_input` does."""
        records = source.records(limit=limit, molecule=molecule)
        hashes = array("q", (hash(record.id) for record in records))
        self._all = np.unique(np.frombuffer(hashes, np.int64))
        self._repeated = frozenset(_repeated(hashes).tolist())
        self._last: dict[str, int] = {}  # by duplicated id: the number given last

    def __call__(self, record: Record) -> Record:
        """Return ``record`` with a unique id. Call it once per record, in the order of the file."""
        if hash(record.id) not in self._repeated:
            return record
        number = self._last.get(record.id, 0) + 1
        if number == 1:
            self._last[record.id] = 1
            return record
        while self._is_taken(f"{record.id}_{number}"):
            number += 1
        self._last[record.id] = number
        name = f"{record.id}_{number}"
        return record._replace(id=name, header=record.header.replace(record.id, name, 1))

    def _is_taken(self, name: str) -> bool:
        # Two ids that share a hash only make it pass over a number.
        hashed = hash(name)
        place = int(np.searchsorted(self._all, hashed))
        return place < len(self._all) and int(self._all[place]) == hashed


def _repeated(hashes: array[int]) -> npt.NDArray[np.int64]:
    """Return the hashes that occur more than once, in the order of their first appearance."""
    if not hashes:
        return np.empty(0, np.int64)
    values = np.frombuffer(hashes, np.int64)
    ordered = np.sort(values)
    if (ordered[1:] != ordered[:-1]).all():
        return np.empty(0, np.int64)
    unique, first, counts = np.unique(values, return_index=True, return_counts=True)
    places = np.flatnonzero(counts > 1)
    return unique[places[np.argsort(first[places])]]


def _duplicated_ids(
    source: InputFiles, hashes: npt.NDArray[np.int64], limit: int | None, molecule: Molecule
) -> tuple[str, ...]:
    """Return the first ids that occur more than once among those with one of ``hashes``."""
    repeated = frozenset(hashes.tolist())
    counts: Counter[str] = Counter(
        record.id
        for record in source.records(limit=limit, molecule=molecule)
        if hash(record.id) in repeated
    )
    return tuple(name for name, count in counts.items() if count > 1)[:_LISTED]
