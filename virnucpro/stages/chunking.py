"""The records of the input, cut into chunks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from virnucpro.contracts import Molecule, ReportProgress, Task, TaskFigures, TaskResult
from virnucpro.errors import InputError
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.frames import chunk_id, chunk_spans
from virnucpro.io.inputs import CountedRecords, InputFiles, InputSummary, with_unique_ids
from virnucpro.io.records import Record
from virnucpro.stages.base import HostStage
from virnucpro.store.disk import OutputWriter
from virnucpro.store.ledger import Ledger
from virnucpro.tables import PAIRS, RECORDS

# A classifier has seen chunks of its own length; on reads of half of it accuracy is near chance
# (released models on 150 bp reads: 0.53, nine of ten non-viral reads called viral).
SHORT_SHARE = 0.6
CHUNKS_AT_A_TIME = 512  # are written together


@dataclass(frozen=True)
class ChunkingStage(HostStage):
    """Cuts every record into overlapping chunks of the chunk length.

    ``lengths`` are the chunks that the classifier was made for, in bases.
    """

    name, title = "chunking", "Chunking"
    durable: ClassVar[bool] = False

    source: InputFiles
    duplicate_ids: str
    lengths: Sequence[int]

    def task(self, ledger: Ledger) -> Task:
        """Return the task of the whole input."""
        outputs = (self.layout.chunked, self.layout.records_table)
        return self.whole(self.source.paths, outputs)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Cut the input while it is checked, and once more where ids are to be made unique."""
        limit = shutil.disk_usage(self.layout.root).free // 2  # its chunks take as much
        with self._files() as files:
            counted = CountedRecords(self.source, limit=limit)
            self._cut(files, report, counted)
            summary = counted.summary()
            if summary.duplicates and self.duplicate_ids == "error":
                raise duplicate_ids_error(self.source, summary)
        if summary.duplicates:
            with self._files() as files:
                records = self.source.records(limit=limit)
                self._cut(files, lambda *_: None, with_unique_ids(records, summary))
        figures = TaskFigures(notices=input_notices(summary, self.lengths))
        return TaskResult(task, tuple(file.output for file in files), figures)

    @contextmanager
    def _files(self) -> Iterator[tuple[OutputWriter, OutputWriter]]:
        with (
            self.disk.create(self.layout.chunked, durable=False) as fasta,
            self.disk.create(self.layout.records_table, durable=False) as table,
        ):
            yield fasta, table

    def _cut(
        self,
        files: tuple[OutputWriter, OutputWriter],
        report: ReportProgress,
        records: Iterable[Record],
    ) -> None:
        """Write the chunks of the records, and the table of records."""
        fasta, table = files
        declared, length = PAIRS if self.source.paired else RECORDS, self.layout.chunk_length
        rows, chunks = list[tuple[str | int, ...]](), list[tuple[str, str]]()

        def write() -> None:
            fasta.write(fasta_bytes(chunks), len(chunks))
            if rows:  # all of the chunks may be of a record whose row was written before
                columns = dict(zip(declared.row._fields, zip(*rows, strict=True), strict=True))
                table.write(declared.lines(**columns).encode(), len(rows))
            report(len(rows), 0)
            rows.clear()
            chunks.clear()

        for record in records:
            sequences, number = record.sequences, 0
            rows.append((record.id, *map(len, sequences)))
            for bases in sequences:
                for start, stop in chunk_spans(len(bases), length):
                    number += 1
                    chunks.append((chunk_id(record.id, number), bases[start:stop]))
                    if len(chunks) == CHUNKS_AT_A_TIME:
                        write()
            # A chromosome must be let go before the next one is read.
            del bases, sequences, record
        write()


def duplicate_ids_error(
    source: InputFiles, summary: InputSummary, molecule: Molecule = "nucleotide"
) -> InputError:
    """Return the error about record ids that occur twice, which names the first five."""
    listed = ", ".join(summary.duplicates)
    text = (
        f"{source}: record ids occur more than once: {listed} (an id ends at the first blank "
        f"of its header); results are told apart by id: make them unique, or use "
        f"--duplicate-ids rename"
    )
    if molecule == "nucleotide" and not source.paired:
        text += "; where these are pairs of reads, one mate after the other, use --interleaved"
    return InputError(text)


def input_notices(summary: InputSummary, lengths: Sequence[int]) -> tuple[str, ...]:
    """Return sentences about an accepted input.

    ``lengths`` are those of the chunks that the classifier was made for, in bases.
    """
    notices, median, shortest = [], summary.median_length, min(lengths)
    if summary.uracil:
        notices.append("the input has U: read as T")
    if 0 < median < SHORT_SHARE * shortest:  # empty records say nothing
        notices.append(
            f"half of the records have at most {median} bases, but the "
            f"classifier was made for chunks of {shortest}: on much shorter reads it is close to "
            f"guessing; assemble first, or use a model for shorter reads if there is one"
        )
    return tuple(notices)
