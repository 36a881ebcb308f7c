"""The two passes over the genome files.

The first pass (:func:`survey_genomes`) finds all records and the table row of each. The parts are
assigned between the passes. The second pass (:func:`cut_genomes`) cuts the records of the parts
into chunks of every length, and keeps their open frames.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.io.chunks import chunk_id, chunk_spans
from virnucpro.io.frames import FRAME_LABELS, Frame, open_frames
from virnucpro.io.records import read_records, shortened
from virnucpro.layout import Molecule
from virnucpro.stages.chunking import Stamp, changed_input_error, stamp
from virnucpro.store.disk import Disk, OutputWriter
from virnucpro.training.data.dataset import Part
from virnucpro.training.data.genbank import CodingSequences, is_genbank, read_genbank
from virnucpro.training.data.relatives import Sketch, sketch
from virnucpro.training.data.table import SourceRow
from virnucpro.training.progress import StepProgress

TRANSLATED_CHUNKS = 4096  # chunks that are translated together
Reason = Literal["related", "elsewhere", "unused"]


# --- the first pass --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenomeRecord:
    """A record as it is read from a FASTA, FASTQ or GenBank file.

    Attributes:
        id: the first word of the header.
        header: the whole header, without ``>``.
        sequence: IUPAC letters; empty if the file has none.
        coding: the annotated proteins; None for a format without annotation.
    """

    id: str
    header: str
    sequence: str
    coding: CodingSequences | None


@dataclass(slots=True)
class SurveyedRecord:
    """What is known of a record of the genome files, and where it goes.

    Attributes:
        name: its id, with ``.2``, ``.3``, ... if an earlier record has the same id.
        source: its file, as the table writes it.
        row: the row of the table that takes it; None if no row does.
        genome: the name of its genome.
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
    bases: int
    part: Part | None = None
    reason: Reason | None = None
    note: str = ""
    chunks: int = 0
    frames: int = 0


@dataclass(frozen=True)
class GenomeFile:
    """A file of the table: its path, its name in the table, its rows, and its stamp.

    The stamp (size and time of change) shows whether the file was written to since.
    """

    path: Path
    name: str
    rows: tuple[SourceRow, ...]
    stamp: Stamp


@dataclass(frozen=True)
class GenomeSurvey:
    """All records in the order of the table and of its files; ``sketches`` has one per record."""

    files: tuple[GenomeFile, ...]
    records: list[SurveyedRecord]
    sketches: list[Sketch]


def genome_files(rows: Sequence[SourceRow]) -> tuple[GenomeFile, ...]:
    """Return the files of the table, each once, in the order of their first rows."""
    rows_by_path: dict[Path, list[SourceRow]] = {}
    for row in rows:
        rows_by_path.setdefault(row.path, []).append(row)
    return tuple(
        GenomeFile(path, file_rows[0].file, tuple(file_rows), stamp(path))
        for path, file_rows in rows_by_path.items()
    )


def read_genome_file(path: Path) -> Iterator[GenomeRecord]:
    """Yield the records of a FASTA, FASTQ or GenBank file, plain or compressed.

    The content decides about the format, not the name.

    Raises:
        UsageError: the file cannot be read, or it is GenBank and Biopython is not installed.
        InputError: the content is not usable; the message names file, line and record.
    """
    if is_genbank(path):
        for name, header, sequence, coding in read_genbank(path):
            yield GenomeRecord(name, header, sequence, coding)
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
            pattern finds no name of a genome in one.
    """
    progress.begin("reading genomes", sum(file.stamp[0] for file in files))
    records: list[SurveyedRecord] = []
    sketches: list[Sketch] = []
    last_number: dict[str, int] = {}  # of every name in use: the last number appended to it
    for file in files:
        used_lines: set[int] = set()
        for record in read_genome_file(file.path):
            row = next((row for row in file.rows if row.matches(record.header)), None)
            name = _unique_name(record.id, last_number)
            records.append(_survey_record(table, file, row, record, name))
            sketches.append(sketch(record.sequence))
            if row is not None:
                used_lines.add(row.line)
        for row in file.rows:
            if row.line not in used_lines:
                raise _unused_row(table, row)
        progress.advance(file.stamp[0])
    return GenomeSurvey(files, records, sketches)


def _survey_record(
    table: Path, file: GenomeFile, row: SourceRow | None, record: GenomeRecord, name: str
) -> SurveyedRecord:
    bases = len(record.sequence)
    if row is None:
        note = "no row of the table is for it"
        return SurveyedRecord(name, file.name, None, name, bases, reason="unused", note=note)
    genome = row.genome_name(name, record.header)
    if genome is None:
        raise InputError(
            f"{table}: line {row.line}: genome finds no name in the header of {file.path}, "
            f"'{shortened(record.header)}': correct the pattern, or leave these records to "
            f"another row with match"
        )
    return SurveyedRecord(name, file.name, row, genome, bases)


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


@dataclass(frozen=True)
class CutFrames:
    """The open frames of all chunks, in the order of the genome files.

    All arrays are ``[n]``. ``bases`` and ``residues`` are the lengths of the sequences, which lie
    at ``offsets`` in the file ``path``: the residues of a frame directly behind its bases.

    Attributes:
        record_numbers: int32, the index of the record in the survey.
        length_numbers: int8, the index of the chunk length in the list of lengths.
        chunk_numbers: int32, the number of the chunk in its record, from 1.
        label_numbers: int8, the index of the frame's label in ``FRAME_LABELS``.
    """

    record_numbers: npt.NDArray[np.int32]
    length_numbers: npt.NDArray[np.int8]
    chunk_numbers: npt.NDArray[np.int32]
    label_numbers: npt.NDArray[np.int8]
    bases: npt.NDArray[np.int32]
    residues: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    path: Path

    @contextmanager
    def sequences(self) -> Iterator[FrameSequences]:
        """Open the file of sequences, to be read in any order."""
        with self.path.open("rb") as stream:
            if not len(self.offsets):  # an empty file cannot be mapped
                yield FrameSequences(self, b"")
                return
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield FrameSequences(self, content)


@dataclass(frozen=True)
class FrameSequences:
    """The opened file of sequences of :class:`CutFrames`."""

    frames: CutFrames
    content: mmap.mmap | bytes

    def read(self, frame: int, molecule: Molecule) -> str:
        """Return the bases or the residues of the frame with index ``frame``."""
        start, bases = int(self.frames.offsets[frame]), int(self.frames.bases[frame])
        if molecule == "nucleotide":
            return self.content[start : start + bases].decode("ascii")
        start += bases
        return self.content[start : start + int(self.frames.residues[frame])].decode("ascii")


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
    record are counted in the survey. A frame takes 30 bytes of memory.

    Raises:
        InputError: a genome file changed since the survey.
        OutputError: the disk is full or unwritable.
    """
    total = sum(record.bases for record in survey.records if record.part)
    progress.begin("cutting chunks, finding open frames", total * len(lengths))
    with disk.create(path) as out:
        collector = _FrameCollector(out)
        chunks = _cut_records(survey, lengths, stride, progress)
        while batch := list(islice(chunks, TRANSLATED_CHUNKS)):
            translated = open_frames([chunk.bases for chunk in batch])
            for chunk, result in zip(batch, translated, strict=True):
                survey.records[chunk.record_number].chunks += 1
                stop = chunk.start + len(chunk.bases)
                for frame in result.frames:
                    if chunk.coding is None or chunk.coding.contains(
                        frame.protein, chunk.start, stop
                    ):
                        collector.add(chunk, frame)
    return collector.frames(path)


def _cut_records(
    survey: GenomeSurvey, lengths: Sequence[int], stride: int | None, progress: StepProgress
) -> Iterator[_Chunk]:
    """Yield the chunks of each record that goes to a part, one length after the other."""
    number = -1
    for file in survey.files:
        for record in read_genome_file(file.path):
            number += 1
            bases = len(record.sequence)
            if number >= len(survey.records) or bases != survey.records[number].bases:
                raise changed_input_error(file.path)
            if survey.records[number].part is None:
                continue
            for length_number, length in enumerate(lengths):
                positions = chunk_positions(bases, length, stride)
                for chunk_number, (start, stop) in enumerate(positions, 1):
                    sequence = record.sequence[start:stop]
                    yield _Chunk(
                        number, length_number, chunk_number, start, sequence, record.coding
                    )
                progress.advance(bases)
        if stamp(file.path) != file.stamp:
            raise changed_input_error(file.path)


class _FrameCollector:
    """Writes the sequences of frames to a file, and keeps everything else in compact arrays."""

    def __init__(self, out: OutputWriter) -> None:
        self._out = out
        self._offset = 0
        self._record_numbers, self._chunk_numbers = array("i"), array("i")
        self._bases, self._residues = array("i"), array("i")
        self._length_numbers, self._label_numbers = array("b"), array("b")
        self._offsets = array("q")

    def add(self, chunk: _Chunk, frame: Frame) -> None:
        """Add one frame of a chunk."""
        self._out.write((frame.nucleotide + frame.protein).encode("ascii"))
        self._record_numbers.append(chunk.record_number)
        self._length_numbers.append(chunk.length_number)
        self._chunk_numbers.append(chunk.number)
        self._label_numbers.append(FRAME_LABELS.index(frame.label))
        self._bases.append(len(frame.nucleotide))
        self._residues.append(len(frame.protein))
        self._offsets.append(self._offset)
        self._offset += len(frame.nucleotide) + len(frame.protein)

    def frames(self, path: Path) -> CutFrames:
        """Return all frames that were added; their sequences are in ``path``."""
        return CutFrames(
            record_numbers=np.array(self._record_numbers, np.int32),
            length_numbers=np.array(self._length_numbers, np.int8),
            chunk_numbers=np.array(self._chunk_numbers, np.int32),
            label_numbers=np.array(self._label_numbers, np.int8),
            bases=np.array(self._bases, np.int32),
            residues=np.array(self._residues, np.int32),
            offsets=np.array(self._offsets, np.int64),
            path=path,
        )
