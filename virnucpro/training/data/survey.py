"""The first pass over the genomes: what there is, and which row of the table is for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from virnucpro.errors import InputError
from virnucpro.io.records import read_records
from virnucpro.io.text import shortened
from virnucpro.stages.chunking import Stamp, stamp
from virnucpro.training.data.dataset import Part
from virnucpro.training.data.genbank import Coding, is_genbank, read_genbank
from virnucpro.training.data.relatives import Sketch, sketch
from virnucpro.training.data.table import SourceRow

Reason = Literal["related", "elsewhere", "unused"]


class Watch(Protocol):
    """Who is told how far a long piece of work is."""

    def begin(self, title: str, total: float) -> None:
        """A step of ``total`` units begins, and the one before it is done."""
        ...

    def advance(self, amount: float) -> None:
        """So many units more are done."""
        ...


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record of a FASTA or GenBank file.

    Attributes:
        id: first word of the header.
        header: the whole header, without ``>``.
        sequence: IUPAC letters; empty where the file has none.
        coding: the annotated proteins; None for FASTA, which has no annotation.
    """

    id: str
    header: str
    sequence: str
    coding: Coding | None


@dataclass(slots=True)
class Origin:
    """A record of the sources, and what becomes of it.

    Attributes:
        name: its id, with ``.2``, ``.3``, ... where an earlier record has the same.
        source: its file, as the table calls it.
        row: the row that is for it; None where none is.
        genome: name of its genome.
        bases: letters of its sequence.
        part: where it went; None for nowhere.
        reason: why to nowhere: it is ``related`` to held-out genomes, its genome went
            ``elsewhere``, or it is ``unused`` because no row is for it.
        note: the same in words.
        chunks: chunks cut from it, of all lengths.
        frames: frames of it in the data set.
    """

    name: str
    source: str
    row: SourceRow | None
    genome: str
    bases: int
    part: Part | None = None
    reason: Reason | None = None
    note: str = ""
    chunks: int = 0
    frames: int = 0


@dataclass(frozen=True)
class Source:
    """A file of the table: its rows, and what shows that it was written to."""

    path: Path
    file: str
    rows: tuple[SourceRow, ...]
    seen: Stamp


@dataclass(frozen=True)
class Survey:
    """All records, in the order of the table and of its files; ``sketches`` are theirs."""

    sources: tuple[Source, ...]
    origins: list[Origin]
    sketches: list[Sketch]


def read_source(path: Path) -> Iterator[SourceRecord]:
    """The records of a FASTA, FASTQ or GenBank file, plain or compressed; the content decides.

    Raises:
        UsageError: it cannot be read, or it is GenBank and Biopython is not installed.
        InputError: the content is not usable; the message names file, line and record.
    """
    if is_genbank(path):
        for name, header, sequence, coding in read_genbank(path):
            yield SourceRecord(name, header, sequence, coding)
    else:
        for record in read_records(path):
            yield SourceRecord(record.id, record.header, record.sequence, None)


def sources_of(rows: tuple[SourceRow, ...]) -> tuple[Source, ...]:
    """The files of the table, each once, in the order of their first rows."""
    paths = dict.fromkeys(row.path for row in rows)
    by_path = {path: tuple(row for row in rows if row.path == path) for path in paths}
    return tuple(Source(path, own[0].file, own, stamp(path)) for path, own in by_path.items())


def survey(table: Path, sources: tuple[Source, ...], watch: Watch) -> Survey:
    """Read all records once. Keeps half a byte a base, their sampled 31-mers.

    Raises:
        UsageError, InputError: as :func:`read_source`; or a row is for no record, or its pattern
            finds no genome's name in one.
    """
    watch.begin("reading genomes", sum(source.seen[0] for source in sources))
    origins: list[Origin] = []
    sketches: list[Sketch] = []
    unique = _Unique()
    for source in sources:
        taken: set[int] = set()
        for record in read_source(source.path):
            row = next((row for row in source.rows if row.takes(record.header)), None)
            origins.append(_origin(table, source, row, record, unique(record.id)))
            sketches.append(sketch(record.sequence))
            if row is not None:
                taken.add(row.line)
        for row in source.rows:
            if row.line not in taken:
                raise _idle(table, row)
        watch.advance(source.seen[0])
    return Survey(sources, origins, sketches)


def _origin(
    table: Path, source: Source, row: SourceRow | None, record: SourceRecord, name: str
) -> Origin:
    bases = len(record.sequence)
    if row is None:
        origin = Origin(name, source.file, None, name, bases, reason="unused")
        origin.note = "no row of the table is for it"
        return origin
    genome = row.genome_of(name, record.header)
    if genome is None:
        raise InputError(
            f"{table}: line {row.line}: genome finds no name in the header of {source.path}, "
            f"'{shortened(record.header)}': correct the pattern, or leave these records to "
            f"another row with match"
        )
    return Origin(name, source.file, row, genome, bases)


def _idle(table: Path, row: SourceRow) -> InputError:
    if row.match is None:
        why = "is for no record of it: the file has none, or earlier rows take them all"
    else:
        why = f"is for no record of it: match {shortened(row.match.pattern)!r} finds nothing that "
        why += "no earlier row takes"
    return InputError(f"{table}: line {row.line}: the row of {row.file} {why}")


class _Unique:
    """Makes ids unique over all files."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # by every id given out: the last number tried for it

    def __call__(self, name: str) -> str:
        """``name``, or with the first of ``.2``, ``.3``, ... that no earlier record has."""
        if name not in self._last:
            self._last[name] = 1
            return name
        number = self._last[name] + 1
        while f"{name}.{number}" in self._last:
            number += 1
        self._last[name] = number
        self._last[f"{name}.{number}"] = 1
        return f"{name}.{number}"
