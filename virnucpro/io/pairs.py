"""The input of a run: one file of records, or pairs of reads in one file or two."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from virnucpro.contracts import Molecule
from virnucpro.errors import UsageError
from virnucpro.io.records import Record, Records, first_word
from virnucpro.io.text import shortened

_NUMBERS = ("/1", "/2")  # what older instruments and many programs put behind the ids of mates


@dataclass(frozen=True)
class InputFiles:
    """The files of an input.

    ``second`` has the mates of the records of ``first``, in its order. Of an ``interleaved`` input,
    ``first`` has both mates of each pair, one after the other.
    """

    first: Path
    second: Path | None = None
    interleaved: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        """Return the names for messages."""
        return " and ".join(map(str, self.paths))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The one file, or both."""
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def paired(self) -> bool:
        """Whether a record of the input is a pair of reads."""
        return self.interleaved or self.second is not None

    def records(
        self, *, limit: int | None = None, molecule: Molecule = "nucleotide"
    ) -> Records | PairedRecords:
        """Return the records, or the pairs; an input without pairs raises :class:`UsageError`."""
        readings = [Records(path, limit=limit, molecule=molecule) for path in self.paths]
        return PairedRecords(self, readings[0], readings[-1]) if self.paired else readings[0]


@dataclass
class PairedRecords:
    """The pairs of two files that are read in step, or of one that is read in twos.

    The record of a pair is the first mate, with the second one as its ``mate``. Both have the id of
    the pair (:func:`pair_id`); their headers are unchanged. ``first`` and ``second`` are the same
    where the input is interleaved.
    """

    files: InputFiles
    first: Records
    second: Records

    @property
    def uracil(self) -> bool:
        """Whether a ``U`` was read as ``T`` so far."""
        return self.first.uracil or self.second.uracil

    def __iter__(self) -> Generator[Record, None, None]:
        """Yield the pairs in the order of the files."""
        firsts = iter(self.first)
        seconds = firsts if self.second is self.first else iter(self.second)
        with closing(firsts), closing(seconds):
            number = equal = 0  # pairs, and those with the same bases in both mates
            for number, (first, second) in enumerate(zip_longest(firsts, seconds), 1):
                if first is None or second is None:
                    (alone,) = filter(None, (first, second))
                    raise self._error(f"'{shortened(alone.id)}', read {number:,}, has no mate")
                name = pair_id(first.id, second.id)
                if name is None:
                    mates = f"'{shortened(first.id)}' and '{shortened(second.id)}'"
                    raise self._error(f"the mates of pair {number:,} would be {mates}")
                if (first.qualities is None) != (second.qualities is None):
                    raise self._error("the mates are not of one format, FASTQ or FASTA")
                if first.sequence == second.sequence:
                    equal += 1
                mate = Record(name, second.header, second.sequence, second.qualities)
                yield Record(name, first.header, first.sequence, first.qualities, mate)
            if 0 < number == equal:
                raise self._error("the first mates are there again, where the second ones belong")

    def _error(self, what: str) -> UsageError:
        tool = "seqtk mergepe" if self.files.interleaved else "seqkit pair"
        return UsageError(
            f"{self.files} do not hold pairs: {what}; give the mates of one sample in one order "
            f"({tool} restores it), or single reads without --interleaved and --input2"
        )


def pair_id(first: str, second: str) -> str | None:
    """Return the id that both mates of a pair share; None for mates of different pairs.

    The endings ``.1`` and ``.2`` are those of the Sequence Read Archive (``fastq-dump -I``).

    >>> pair_id("r7/1", "r7/2"), pair_id("r7", "r7"), pair_id("run.7.1", "run.7.2")
    ('r7', 'r7', 'run.7')
    """
    shared, other = (
        id[:-2] if id.endswith(_NUMBERS) and len(id) > 2 else id for id in (first, second)
    )
    if shared == other:
        return shared
    archived = first.endswith(".1") and second.endswith(".2") and first[:-2] == second[:-2]
    return first[:-2] if archived and len(first) > 2 else None


def mate_headers(pair: Record, name: str) -> tuple[str, str]:
    """Return the headers of both mates in a file that holds both: their ids tell them apart.

    ``name`` is the id of the pair in results. What follows the ids is unchanged.
    """
    assert pair.mate is not None
    headers = []
    for number, mate in zip(_NUMBERS, (pair, pair.mate), strict=True):
        rest = mate.header.lstrip(" \t")[len(first_word(mate.header)) :].lstrip(" \t")
        headers.append(" ".join(filter(None, (name + number, rest))))
    return headers[0], headers[1]
