"""The input of a run: one file of records, or pairs of reads in one file or two."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from virnucpro.errors import UsageError
from virnucpro.io.records import Record, Records, read_records
from virnucpro.io.text import shortened
from virnucpro.layout import Molecule

_NUMBERS = ("/1", "/2")  # what older instruments and many programs put behind the ids of mates
_NUMBER_OF_MATE = re.compile(r"\S+(?:/([12])(?!\S)|[ \t]([12]):[YN]:)")
_COMPARED = 1000  # pairs: mates of more pairs with the same bases are the same reads


@dataclass(frozen=True)
class InputFiles:
    """The files of an input.

    ``second`` has the mates of the records of ``first``, in its order. Of an ``interleaved`` input,
    ``first`` has both mates of each pair, one after the other.

    Raises:
        UsageError: both ways of giving pairs are asked for.
    """

    first: Path
    second: Path | None = None
    interleaved: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Check that there is one way of giving pairs."""
        if self.interleaved and self.second is not None:
            raise two_ways_error()

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
        """Read the records, or the pairs, lazily.

        ``limit`` is the largest expanded size of a compressed file in bytes.

        Raises, while it is iterated:
            UsageError: a file is missing or unreadable, or the input does not hold pairs.
            InputError: the content of a file is not usable.
        """
        readings = [read_records(path, limit=limit, molecule=molecule) for path in self.paths]
        return PairedRecords(self, readings[0], readings[-1]) if self.paired else readings[0]


class PairedRecords:
    """One reading of two files in step, or of one in twos: an iterator with one record per pair.

    ``first`` and ``second`` are the same reading where the input is interleaved.

    The record of a pair is that of the first mate, with the second one as its ``mate``. Both have
    the id of the pair, which is that of the mates without ``/1`` and ``/2``, or ``.1`` and ``.2``;
    their headers are unchanged.

    Attributes:
        swapped: whether headers say that the first mates are the second ones, as far as was read.
    """

    def __init__(self, files: InputFiles, first: Records, second: Records) -> None:
        self.swapped = False
        self._files = files
        self._first, self._second = first, second
        self._pairs = self._read()

    @property
    def uracil(self) -> bool:
        """Whether a ``U`` was read as ``T`` so far."""
        return self._first.uracil or self._second.uracil

    def __iter__(self) -> Iterator[Record]:
        """Return the pairs that were not read yet, in the order of the files."""
        return self._pairs

    def __next__(self) -> Record:
        """Return the next pair."""
        return next(self._pairs)

    def _read(self) -> Generator[Record, None, None]:
        with self._first, self._second:
            both = zip_longest(self._first, self._second)
            number = equal = 0  # pairs, and those with the same bases in both mates
            for number, (first, second) in enumerate(both, 1):
                if first is None or second is None:
                    raise self._unequal(number, first, second)
                name = pair_id(first.id, second.id)
                if name is None:
                    raise self._unlike(number, first, second)
                if (first.qualities is None) != (second.qualities is None):
                    raise UsageError(
                        f"{self._files} are not of one format: give both files as FASTQ, or both "
                        f"as FASTA"
                    )
                if number <= _COMPARED:
                    equal += first.sequence == second.sequence
                    numbers = _number(first), _number(second)
                    if equal == _COMPARED or numbers in (("1", "1"), ("2", "2")):
                        raise self._repeated()
                    self.swapped |= numbers == ("2", "1")
                mate = Record(name, second.header, second.sequence, second.qualities)
                yield Record(name, first.header, first.sequence, first.qualities, mate)
            if 0 < number == equal:
                raise self._repeated()

    def _repeated(self) -> UsageError:
        advice = _ADVICE_ON_ONE_FILE if self._files.interleaved else _ADVICE
        return UsageError(
            f"{self._files.paths[-1]} has the first mates again, where the second ones belong; "
            f"{advice}"
        )

    def _unequal(self, number: int, first: Record | None, second: Record | None) -> UsageError:
        if self._files.interleaved:
            assert first is not None
            return UsageError(
                f"{self._files} does not hold pairs: its last read, '{shortened(first.id)}', has "
                f"no mate; {_ADVICE_ON_ONE_FILE}"
            )
        longer, record = (self._files.first, first) if first else (self._files.second, second)
        shorter = self._files.second if first else self._files.first
        assert record is not None
        return UsageError(
            f"{self._files} do not hold the same number of reads: read {number:,} of {longer}, "
            f"'{shortened(record.id)}', has no mate, because {shorter} ends after "
            f"{number - 1:,}; {_ADVICE}"
        )

    def _unlike(self, number: int, first: Record, second: Record) -> UsageError:
        if self._files.interleaved:
            return UsageError(
                f"{self._files} does not hold the mates of each pair one after the other: read "
                f"{2 * number - 1:,} is '{shortened(first.id)}', and the next one "
                f"'{shortened(second.id)}'; {_ADVICE_ON_ONE_FILE}"
            )
        return UsageError(
            f"{self._files} do not hold the same pairs: read {number:,} is '{shortened(first.id)}' "
            f"in the first file and '{shortened(second.id)}' in the second; {_ADVICE}"
        )


_ADVICE = (
    "give both files of one sample as they were written together, or bring their reads together "
    "again (seqkit pair)"
)
_ADVICE_ON_ONE_FILE = (
    "leave out --interleaved if these are single reads, or write the file again from those of both "
    "mates (seqtk mergepe)"
)


def two_ways_error() -> UsageError:
    """Return the error about an input that is to hold pairs in one file and in two."""
    return UsageError(
        "--interleaved and --input2 are two ways of giving pairs: leave one of them out"
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


def _number(record: Record) -> str:
    """Return 1 or 2, where the header says which mate of a pair it is."""
    found = _NUMBER_OF_MATE.match(record.header)
    return (found[1] or found[2]) if found else ""


def mate_headers(pair: Record, name: str) -> tuple[str, str]:
    """Return the headers of both mates in a file that holds both: their ids tell them apart.

    ``name`` is the id of the pair in results. What follows the ids is unchanged.
    """
    assert pair.mate is not None
    headers = []
    for number, mate in zip(_NUMBERS, (pair, pair.mate), strict=True):
        rest = mate.header.encode().split(None, 1)[1:]
        headers.append(b" ".join([(name + number).encode(), *rest]).decode())
    return headers[0], headers[1]
