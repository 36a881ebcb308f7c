"""Summarise an input in a first pass: how much it holds, and whether its ids are unique."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.io.pairs import InputFiles, PairedRecords
from virnucpro.io.records import Record
from virnucpro.layout import Molecule

_LISTED = 5  # duplicated ids that are listed


@dataclass(frozen=True)
class InputSummary:
    """The summary of an input.

    Attributes:
        records: number of records, or of pairs, at least 1.
        bases: letters of all sequences together, which are residues in proteins. A pair has two.
        longest: letters of the longest sequence.
        median_length: letters; the mean of the middle two, rounded down, for an even number.
        uracil: whether a ``U`` was read as ``T``.
        duplicates: the first five ids that occur more than once, in the order of their repetition.
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

    Keeps 16 bytes per record. Raises as :meth:`InputFiles.records` does, and an
    :class:`InputError` where there are no sequences.
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
    repeated = _repeated(hashes)
    again = source.records(limit=limit, molecule=molecule) if len(repeated) else ()
    return InputSummary(
        records=len(hashes),
        bases=int(sizes.sum()),
        longest=int(sizes.max()),
        median_length=int(np.median(sizes)),
        uracil=records.uracil,
        duplicates=tuple(islice(_repeated_ids(again, repeated), _LISTED)),
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
        self._repeated = _repeated(hashes)
        self._last: dict[str, int] = {}  # by duplicated id: the number given last

    def __call__(self, record: Record) -> Record:
        """Return ``record`` with a unique id. Call it once per record, in the order of the file."""
        if not _holds(self._repeated, record.id):
            return record
        if record.id not in self._last:
            self._last[record.id] = 1
            return record
        number = self._last[record.id] + 1
        while _holds(self._all, f"{record.id}_{number}"):  # or a name that shares a hash
            number += 1
        self._last[record.id] = number
        name = f"{record.id}_{number}"
        return record._replace(id=name, header=record.header.replace(record.id, name, 1))


def _holds(hashes: npt.NDArray[np.int64], name: str) -> bool:
    """Return whether the sorted ``hashes`` have the one of ``name``."""
    place = int(np.searchsorted(hashes, hash(name)))
    return place < len(hashes) and int(hashes[place]) == hash(name)


def _repeated(hashes: array[int]) -> npt.NDArray[np.int64]:
    """Return the hashes that occur more than once."""
    values = np.sort(np.frombuffer(hashes, np.int64))
    return np.unique(values[1:][values[1:] == values[:-1]])


def _repeated_ids(records: Iterable[Record], hashes: npt.NDArray[np.int64]) -> Iterator[str]:
    """Yield the ids that occur more than once, among those with one of ``hashes``."""
    counts: Counter[str] = Counter()
    for record in records:
        if _holds(hashes, record.id):
            counts[record.id] += 1
            if counts[record.id] == 2:
                yield record.id
