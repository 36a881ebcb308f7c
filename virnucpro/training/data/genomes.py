"""The two passes over the genome files.

The first pass (:func:`survey_genomes`) finds all records and the table row of each. The parts are
assigned between the passes. The second pass (:func:`records_of_parts`) reads the records that go
to a part: :func:`cut_genomes` cuts them into chunks of every length, and keeps their open frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

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
from virnucpro.training.data.dataset import PARTS, LabelledFrame, Part
from virnucpro.training.data.genbank import GenomeRecord, is_genbank, read_genbank
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
                raise InputError(
                    f"{table}: line {row.line}: the row of {row.file} is for no record of it: it "
                    f"matches none, or earlier rows take them all"
                )
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
        ("record", np.int32),  # its index in the survey
        ("chunk", np.int32),  # its number in the record, from 1
        ("bases", np.int32),
        ("residues", np.int32),
        ("offset", np.int64),  # where the bases begin in the file of sequences
        ("length", np.int32),  # the chunk length
        ("label", np.int8),  # the index in ``FRAME_LABELS``
        ("part", np.int8),  # the index in ``PARTS``
        ("virus", np.bool_),
        ("taken", np.bool_),  # whether it goes into the data set
    ]
)
"""What is known of an open frame."""


@dataclass(frozen=True)
class CutFrames:
    """The open frames of all chunks, in the order of the genome files.

    Attributes:
        records: the records of the survey.
        rows: structured array ``[n]`` of ``FRAME_ROW``.
        path: the file of the sequences: the residues of a frame directly behind its bases.
    """

    records: Sequence[SurveyedRecord]
    rows: npt.NDArray[np.void]
    path: Path

    def labelled(self, number: int) -> LabelledFrame:
        """Return the names of the frame with this index."""
        row = self.rows[number]
        record, length = self.records[row["record"]], int(row["length"])
        assert record.row is not None
        chunk = length_chunk_id(record.name, length, int(row["chunk"]))
        frame, group = chunk + FRAME_LABELS[row["label"]], record.row.group
        label = record.row.label
        return LabelledFrame(frame, chunk, record.name, record.genome, group, label, length)

    def sequence(self, number: int, molecule: Molecule) -> str:
        """Return a sequence of the frame with this index."""
        row = self.rows[number]
        start, size = int(row["offset"]), int(row["bases"])
        if molecule == "protein":
            start, size = start + size, int(row["residues"])
        return self._content[start : start + size].tobytes().decode("ascii")

    @cached_property
    def _content(self) -> npt.NDArray[np.uint8]:
        return np.memmap(self.path, np.uint8, "r")


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
    record are counted in the survey. A frame takes 32 bytes of memory.

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
            translated = open_frames([record.sequence[span] for _, _, _, record, span in batch])
            for (number, length, chunk, record, span), result in zip(
                batch, translated, strict=True
            ):
                surveyed = survey.records[number]
                assert surveyed.part is not None
                assert surveyed.row is not None
                surveyed.chunks += 1
                part, virus = PARTS.index(surveyed.part), surveyed.row.label == "virus"
                for frame in result.frames:
                    coding = record.coding
                    if coding and not coding.contains(frame.protein, span.start, span.stop):
                        continue
                    out.write((frame.nucleotide + frame.protein).encode("ascii"))
                    bases, residues = len(frame.nucleotide), len(frame.protein)
                    label = FRAME_LABELS.index(frame.label)
                    place = (bases, residues, offset, length, label, part, virus, True)
                    batch_rows.append((number, chunk, *place))
                    offset += bases + residues
            rows.append(np.array(batch_rows, FRAME_ROW))
    return CutFrames(survey.records, np.concatenate([np.empty(0, FRAME_ROW), *rows]), path)


def _cut_records(
    survey: GenomeSurvey, lengths: Sequence[int], stride: int | None, progress: StepProgress
) -> Iterator[tuple[int, int, int, GenomeRecord, slice]]:
    """Yield the chunks of each record that goes to a part, one length after the other.

    A chunk is the index of its record, its requested length, its number from 1, the record, and
    the bases of it.
    """
    for number, record in records_of_parts(survey):
        for length in lengths:
            spans = chunk_positions(len(record.sequence), length, stride)
            for chunk, span in enumerate(spans, 1):
                yield number, length, chunk, record, slice(*span)
            progress.advance(len(record.sequence))


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
