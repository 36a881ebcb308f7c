"""The input of a run: one file of records, or pairs of reads in one file or two; and its summary,
made in a first pass: how much it holds, and whether its ids are unique."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.contracts import Molecule
from virnucpro.errors import InputError, UsageError
from virnucpro.io.records import EMPTY, Record, Records, first_word
from virnucpro.io.text import shortened

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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

    def records(self, *, limit: int | None = None) -> Generator[Record, None, None]:
        """Yield the records, or the pairs; an input without pairs raises :class:`UsageError`."""
        return self.joined([Records(path, limit=limit) for path in self.paths])

    def joined(self, readings: Sequence[Records]) -> Generator[Record, None, None]:
        """Yield the records that the files are read into, or pairs of them.

        Two files are read in step, and one with both mates in twos. The record of a pair is the
        first mate, with the second one as its ``mate``. Both have the id of the pair
        (:func:`pair_id`); their headers are unchanged.
        """
        if not self.paired:
            yield from readings[0]
            return
        firsts = iter(readings[0])
        seconds = iter(readings[1]) if len(readings) > 1 else firsts
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
        tool = "seqtk mergepe" if self.interleaved else "seqkit pair"
        return UsageError(
            f"{self} do not hold pairs: {what}; give the mates of one sample in one order "
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


# --- the summary, and unique ids

_LISTED = 5  # duplicated ids that are listed


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


@dataclass
class CountedRecords:
    """The records of an input, which are counted while somebody reads all of them.

    ``limit`` is as for :class:`Records`. It keeps 16 bytes per record.
    """

    source: InputFiles
    _: KW_ONLY
    limit: int | None = None
    molecule: Molecule = "nucleotide"
    _hashes: array[int] = field(init=False, default_factory=lambda: array("q"))  # of the ids
    _lengths: array[int] = field(init=False, default_factory=lambda: array("q"))  # of sequences
    _readings: list[Records] = field(init=False)

    def __post_init__(self) -> None:
        """Open nothing yet."""
        self._readings = [
            Records(path, limit=self.limit, molecule=self.molecule) for path in self.source.paths
        ]

    def __iter__(self) -> Iterator[Record]:
        """Yield the records, or the pairs, and count them."""
        for record in self.source.joined(self._readings):
            self._hashes.append(hash(record.id))
            self._lengths.extend(map(len, record.sequences))
            yield record
            del record  # a chromosome must be let go before the next one is read

    def summary(self) -> InputSummary:
        """Return the summary of all records; they are read again where ids seem to be duplicated.

        Raises:
            InputError: there are no sequences.
        """
        import numpy as np  # only now, so that a wrong request is refused at once

        if not self._lengths:
            raise InputError(f"{self.source}: {EMPTY}")
        sizes = np.frombuffer(self._lengths, np.int64)
        ordered = np.sort(np.frombuffer(self._hashes, np.int64))
        repeated = _repeated(ordered)
        seen: set[str] = set()
        duplicates: dict[str, None] = {}
        for record in self.source.joined(self._readings) if len(repeated) else ():
            if _holds(repeated, record.id):
                if record.id in seen:
                    duplicates[record.id] = None
                seen.add(record.id)
        return InputSummary(
            records=len(ordered),
            bases=int(sizes.sum()),
            longest=int(sizes.max()),
            median_length=int(np.median(sizes)),
            uracil=any(reading.uracil for reading in self._readings),
            duplicates=tuple(duplicates)[:_LISTED],
            hashes=ordered if duplicates else repeated,
        )


def summarise_input(
    source: InputFiles, *, limit: int | None = None, molecule: Molecule = "nucleotide"
) -> InputSummary:
    """Return the summary of all records of ``source``; see :class:`CountedRecords`."""
    records = CountedRecords(source, limit=limit, molecule=molecule)
    for _ in records:
        pass
    return records.summary()


def with_unique_ids(records: Iterable[Record], summary: InputSummary) -> Iterator[Record]:
    """Yield the records of an input, in a second pass, with unique ids: later ones get ``_2``, ...

    Names that another record has are passed over. It keeps 8 bytes per record.
    """
    repeated = _repeated(summary.hashes)
    last: dict[str, int] = {}  # by duplicated id: the number given last
    for record in records:
        if _holds(repeated, record.id):
            number = last.get(record.id, 0) + 1
            while number > 1 and _holds(summary.hashes, f"{record.id}_{number}"):
                number += 1
            last[record.id] = number
            if number > 1:
                name = f"{record.id}_{number}"
                header = record.header.replace(record.id, name, 1)
                record = record._replace(id=name, header=header)
        yield record
        del record  # a chromosome must be let go before the next one is read


def _holds(hashes: npt.NDArray[np.int64], name: str) -> bool:
    """Return whether the sorted ``hashes`` have the one of ``name``."""
    place = int(hashes.searchsorted(hash(name)))
    return place < len(hashes) and int(hashes[place]) == hash(name)


def _repeated(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return those of sorted hashes that occur more than once."""
    import numpy as np

    repeated: npt.NDArray[np.int64] = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    return repeated
