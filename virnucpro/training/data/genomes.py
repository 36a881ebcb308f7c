"""The two passes over the genome files.

The first pass (:func:`survey_genomes`) finds all records and the table row of each. The parts are
assigned between the passes. The second pass (:func:`records_of_parts`) reads the records that go
to a part: :func:`cut_genomes` cuts them into chunks of every length, and keeps their open frames.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.events import StepProgress
from virnucpro.io.chunks import chunk_id, chunk_spans
from virnucpro.io.frames import FRAME_LABELS, open_frames
from virnucpro.io.records import read_records
from virnucpro.io.text import shortened
from virnucpro.layout import Molecule
from virnucpro.stages.chunking import changed_input_error, hashed_input, refuse_changed_input
from virnucpro.store.disk import Disk
from virnucpro.store.stamps import HashedFile
from virnucpro.training.data.dataset import Part
from virnucpro.training.data.genbank import CodingSequences, GenomeRecord, is_genbank, read_genbank
from virnucpro.training.data.relatives import Sketch, sketch
from virnucpro.training.data.table import SourceRow

TRANSLATED_CHUNKS = 4096  # chunks that are translated together
Reason = Literal["related", "elsewhere", "unused"]


# --- the first pass --------------------------------------------------------------------------


@dataclass(slots=True)
class SurveyedRecord:
    """What is known of a record of the genome files, and where it goes.

    Attributes:
        name: its id, with ``.2``, ``.3``, ... if an earlier record has the same id.
        source: its file, as the table writes it.
        row: the row of the table that takes it; None if no row does.
        genome: the name of its genome.
        taxon: the name of the taxon of its genome.
        bases: the length of its sequence.
        part: the part it goes to; None if it goes to none.
        reason: why it goes to no part: it is ``related`` to held-out genomes, its genome went
            ``elsewhere``, or it is ``unused`` because no row takes it.
        note: the reason in words.
        chunks: the number of chunks cut from it, of all lengths.
        frames: the number of its frames in the data set.
    """

    name: str
    source: str
    row: SourceRow | None
    genome: str
    taxon: str
    bases: int
    part: Part | None = None
    reason: Reason | None = None
    note: str = ""
    chunks: int = 0
    frames: int = 0


@dataclass(frozen=True)
class GenomeFile:
    """A file of the table as it was hashed, with its name in the table and its rows."""

    source: HashedFile
    name: str
    rows: tuple[SourceRow, ...]


@dataclass(frozen=True)
class GenomeSurvey:
    """All records in the order of the table and of its files; ``sketches`` has one per record."""

    files: tuple[GenomeFile, ...]
    records: list[SurveyedRecord]
    sketches: list[Sketch]


def genome_files(rows: Sequence[SourceRow], progress: StepProgress) -> tuple[GenomeFile, ...]:
    """Hash the files of the table, each once, in the order of their first rows."""
    rows_by_path: dict[Path, list[SourceRow]] = {}
    for row in rows:
        rows_by_path.setdefault(row.path, []).append(row)
    progress.begin("checksums of the genomes", len(rows_by_path))
    files = []
    for path, file_rows in rows_by_path.items():
        files.append(GenomeFile(hashed_input(path), file_rows[0].file, tuple(file_rows)))
        progress.advance(1)
    return tuple(files)


def read_genome_file(path: Path) -> Iterator[GenomeRecord]:
    """Yield the records of a FASTA, FASTQ or GenBank file, plain or compressed.

    The content decides about the format, not the name.

    Raises:
        UsageError: the file cannot be read, or it is GenBank and Biopython is not installed.
        InputError: the content is not usable; the message names file, line and record.
    """
    if is_genbank(path):
        yield from read_genbank(path)
    else:
        for record in read_records(path):
            yield GenomeRecord(record.id, record.header, record.sequence, None)


def survey_genomes(
    table: Path, files: tuple[GenomeFile, ...], progress: StepProgress
) -> GenomeSurvey:
    """Read all records once, and return them with their rows and sketches.

    The sketches take half a byte of memory per base.

    Raises:
        UsageError, InputError: as :func:`read_genome_file`; or a row takes no record, or its
            patterns find no name of a genome or taxon in one.
    """
    progress.begin("reading genomes", sum(file.source.stamp.size for file in files))
    records: list[SurveyedRecord] = []
    sketches: list[Sketch] = []
    last_number: dict[str, int] = {}  # of every name in use: the last number appended to it
    for file in files:
        used_lines: set[int] = set()
        for record in read_genome_file(file.source.path):
            row = next((row for row in file.rows if row.matches(record.header)), None)
            name = _unique_name(record.id, last_number)
            records.append(_survey_record(table, file, row, record, name))
            sketches.append(sketch(record.sequence))
            if row is not None:
                used_lines.add(row.line)
        for row in file.rows:
            if row.line not in used_lines:
                raise _unused_row(table, row)
        progress.advance(file.source.stamp.size)
    return GenomeSurvey(files, records, sketches)


def _survey_record(
    table: Path, file: GenomeFile, row: SourceRow | None, record: GenomeRecord, name: str
) -> SurveyedRecord:
    bases = len(record.sequence)
    if row is None:
        note = "no row of the table is for it"
        return SurveyedRecord(name, file.name, None, name, name, bases, reason="unused", note=note)
    genome = row.genome_name(name, record.header)
    taxon = row.taxon_name(genome, record.header) if genome else None
    if genome is None or taxon is None:
        raise InputError(
            f"{table}: line {row.line}: {'taxon' if genome else 'genome'} finds no name in the "
            f"header of {file.source.path}, '{shortened(record.header)}': correct the pattern, or "
            f"leave these records to another row with match"
        )
    return SurveyedRecord(name, file.name, row, genome, taxon, bases)


def _unused_row(table: Path, row: SourceRow) -> InputError:
    if row.match is None:
        reason = "the file has none, or earlier rows take them all"
    else:
        pattern = shortened(row.match.pattern)
        reason = f"match {pattern!r} finds nothing that no earlier row takes"
    return InputError(
        f"{table}: line {row.line}: the row of {row.file} is for no record of it: {reason}"
    )


def _unique_name(name: str, last_number: dict[str, int]) -> str:
    """Return ``name``, or with the first of ``.2``, ``.3``, ... that no earlier record has."""
    if name not in last_number:
        last_number[name] = 1
        return name
    number = last_number[name] + 1
    while f"{name}.{number}" in last_number:
        number += 1
    last_number[name] = number
    last_number[f"{name}.{number}"] = 1
    return f"{name}.{number}"


# --- the second pass -------------------------------------------------------------------------


FRAME_ROW = np.dtype(
    [
        ("record_number", np.int32),
        ("chunk_number", np.int32),
        ("bases", np.int32),
        ("residues", np.int32),
        ("offset", np.int64),
        ("length_number", np.int8),
        ("label_number", np.int8),
    ]
)
"""What is known of an open frame: the index of its record in the survey, the number of its chunk
in the record (from 1), the lengths of its sequences and where they begin in the file, the index of
the chunk length in the list of lengths, and the index of its label in ``FRAME_LABELS``."""


@dataclass(frozen=True)
class CutFrames:
    """The open frames of all chunks, in the order of the genome files.

    Attributes:
        rows: structured array ``[n]`` of ``FRAME_ROW``.
        path: the file of the sequences: the residues of a frame directly behind its bases.
    """

    rows: npt.NDArray[np.void]
    path: Path

    @contextmanager
    def sequences(self) -> Iterator[Callable[[int, Molecule], str]]:
        """Open the file of sequences, and give a function that reads one of them.

        The function takes the index of a frame and the molecule.
        """
        with ExitStack() as stack:
            content: mmap.mmap | bytes = b""
            if len(self.rows):  # an empty file cannot be mapped
                stream = stack.enter_context(self.path.open("rb"))
                content = stack.enter_context(
                    mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                )

            def read(frame: int, molecule: Molecule) -> str:
                row = self.rows[frame]
                start = int(row["offset"]) + (0 if molecule == "nucleotide" else int(row["bases"]))
                size = int(row["bases" if molecule == "nucleotide" else "residues"])
                return content[start : start + size].decode("ascii")

            yield read


def length_chunk_id(record: str, length: int, number: int) -> str:
    """Return the id of chunk ``number`` of a record, which is unique over all chunk lengths.

    >>> length_chunk_id("NC_001416.1", 500, 7)
    'NC_001416.1_500bp_chunk_7'
    """
    return chunk_id(f"{record}_{length}bp", number)


def chunk_positions(bases: int, length: int, stride: int | None) -> list[tuple[int, int]]:
    """Return start and stop of the chunks of a record of ``bases`` bases.

    Without a stride they are those of ``predict``. With one, a chunk begins every ``stride``
    bases and has the full ``length``; a shorter record is one chunk.
    """
    if stride is None or bases <= length:
        return chunk_spans(bases, length)
    return [(start, start + length) for start in range(0, bases - length + 1, stride)]


class _Chunk(NamedTuple):
    """A chunk: the index of its record and of its length, and its number from 1."""

    record_number: int
    length_number: int
    number: int
    start: int
    bases: str
    coding: CodingSequences | None


def cut_genomes(
    survey: GenomeSurvey,
    lengths: Sequence[int],
    stride: int | None,
    path: Path,
    disk: Disk,
    progress: StepProgress,
) -> CutFrames:
    """Cut the records that go to a part, and write their open frames into the file ``path``.

    Of a GenBank record, only frames whose protein is annotated are kept. The chunks of each
    record are counted in the survey. A frame takes 26 bytes of memory.

    Raises:
        InputError: a genome file changed since the survey.
        OutputError: the disk is full or unwritable.
    """
    total = sum(record.bases for record in survey.records if record.part)
    progress.begin("cutting chunks, finding open frames", total * len(lengths))
    rows: list[npt.NDArray[np.void]] = []
    offset = 0
    with disk.create(path) as out:
        chunks = _cut_records(survey, lengths, stride, progress)
        while batch := list(islice(chunks, TRANSLATED_CHUNKS)):
            batch_rows = []
            translated = open_frames([chunk.bases for chunk in batch])
            for chunk, result in zip(batch, translated, strict=True):
                survey.records[chunk.record_number].chunks += 1
                stop = chunk.start + len(chunk.bases)
                for frame in result.frames:
                    if chunk.coding is not None and not chunk.coding.contains(
                        frame.protein, chunk.start, stop
                    ):
                        continue
                    out.write((frame.nucleotide + frame.protein).encode("ascii"))
                    bases, residues = len(frame.nucleotide), len(frame.protein)
                    label_number = FRAME_LABELS.index(frame.label)
                    place = (bases, residues, offset, chunk.length_number, label_number)
                    batch_rows.append((chunk.record_number, chunk.number, *place))
                    offset += bases + residues
            rows.append(np.array(batch_rows, FRAME_ROW))
    return CutFrames(np.concatenate([np.empty(0, FRAME_ROW), *rows]), path)


def _cut_records(
    survey: GenomeSurvey, lengths: Sequence[int], stride: int | None, progress: StepProgress
) -> Iterator[_Chunk]:
    """Yield the chunks of each record that goes to a part, one length after the other."""
    for number, record in records_of_parts(survey):
        bases = len(record.sequence)
        for length_number, length in enumerate(lengths):
            positions = chunk_positions(bases, length, stride)
            for chunk_number, (start, stop) in enumerate(positions, 1):
                sequence = record.sequence[start:stop]
                yield _Chunk(number, length_number, chunk_number, start, sequence, record.coding)
            progress.advance(bases)


def records_of_parts(survey: GenomeSurvey) -> Iterator[tuple[int, GenomeRecord]]:
    """Yield the records that go to a part, each with its index in the survey.

    Raises:
        InputError: a genome file changed since the survey.
    """
    number = -1
    for file in survey.files:
        for record in read_genome_file(file.source.path):
            number += 1
            if number >= len(survey.records) or (
                len(record.sequence) != survey.records[number].bases
            ):
                raise changed_input_error(file.source.path)
            if survey.records[number].part is not None:
                yield number, record
        refuse_changed_input([file.source])
