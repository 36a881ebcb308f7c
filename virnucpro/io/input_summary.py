"""Summarise an input in a first pass: how much it holds, and whether its ids are unique."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from virnucpro.contracts import Molecule
from virnucpro.errors import InputError
from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import EMPTY, Record

_LISTED = 5  # duplicated ids that are listed
_let_go = partial(deque[Record], maxlen=0)


@dataclass(frozen=True)
class InputSummary:
    """The summary of an input."""

    records: int  # or pairs, at least 1
    bases: int  # or residues, of all sequences; a pair has two
    longest: int  # sequence
    median_length: int  # rounded down
    uracil: bool  # a U was read as T
    duplicates: tuple[str, ...]  # the first ids that occur more than once, as they are repeated
    hashes: npt.NDArray[np.int64] = field(compare=False)  # of all ids, sorted, if there are such


def summarise_input(
    source: InputFiles,
    *,
    limit: int | None = None,
    molecule: Molecule = "nucleotide",
    take: Callable[[Iterator[Record]], object] = _let_go,
) -> InputSummary:
    """Return the summary of ``source``, which is read once more where ids seem to be duplicated.

    ``take`` gets the records of the first reading, and takes all of them. It keeps 16 bytes per
    record. Where there are no sequences, it raises an :class:`InputError`.
    """
    hashes, lengths = array("q"), array("q")
    records = source.records(limit=limit, molecule=molecule)

    def counted() -> Iterator[Record]:
        for record in records:
            hashes.append(hash(record.id))
            lengths.append(len(record.sequence))
            if record.mate:
                lengths.append(len(record.mate.sequence))
            yield record
            del record  # a chromosome must be let go before the next one is read

    take(counted())
    if not lengths:
        raise InputError(f"{source}: {EMPTY}")
    sizes, ordered = np.frombuffer(lengths, np.int64), np.sort(np.frombuffer(hashes, np.int64))
    repeated = _repeated(ordered)
    seen: set[str] = set()
    duplicates: dict[str, None] = {}
    for record in source.records(limit=limit, molecule=molecule) if len(repeated) else ():
        if _holds(repeated, record.id):
            if record.id in seen:
                duplicates[record.id] = None
            seen.add(record.id)
    return InputSummary(
        records=len(ordered),
        bases=int(sizes.sum()),
        longest=int(sizes.max()),
        median_length=int(np.median(sizes)),
        uracil=records.uracil,
        duplicates=tuple(duplicates)[:_LISTED],
        hashes=ordered if duplicates else repeated,
    )


class RecordRenamer:
    """Make the ids of an input unique in a second pass over it: later ones get ``_2``, ``_3``, ...

    Names that another record has are passed over. It keeps 8 bytes per record.
    """

    def __init__(self, summary: InputSummary) -> None:
        self._all, self._repeated = summary.hashes, _repeated(summary.hashes)
        self._last: dict[str, int] = {}  # by duplicated id: the number given last

    def __call__(self, record: Record) -> Record:
        """Return ``record`` with a unique id. Call it once per record, in the order of the file."""
        if not _holds(self._repeated, record.id):
            return record
        number = self._last.get(record.id, 0) + 1
        while number > 1 and _holds(self._all, f"{record.id}_{number}"):
            number += 1
        self._last[record.id] = number
        if number == 1:
            return record
        name = f"{record.id}_{number}"
        return record._replace(id=name, header=record.header.replace(record.id, name, 1))


def _holds(hashes: npt.NDArray[np.int64], name: str) -> bool:
    """Return whether the sorted ``hashes`` have the one of ``name``."""
    place = int(np.searchsorted(hashes, hash(name)))
    return place < len(hashes) and int(hashes[place]) == hash(name)


def _repeated(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return those of sorted hashes that occur more than once."""
    repeated: npt.NDArray[np.int64] = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    return repeated
