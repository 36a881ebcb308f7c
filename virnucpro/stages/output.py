"""The results: every record and every chunk accounted for, and the viral records as FASTA."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from itertools import repeat
from pathlib import Path
from typing import ClassVar

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.contracts import Json, Receipts, ReportProgress, Task, TaskFigures, TaskResult
from virnucpro.io.chunks import chunk_spans
from virnucpro.io.records import read_records
from virnucpro.layout import RunLayout
from virnucpro.stages.base import HostStage
from virnucpro.stages.calls import Chunk, call_record
from virnucpro.stages.chunking import changed_input_error, input_stamp
from virnucpro.stages.fdr import contig_fdr
from virnucpro.store.disk import OutputWriter
from virnucpro.store.stamps import FileStamp
from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, FRAMES, MISSING, RECORDS

ROWS_AT_A_TIME = 8192  # of a table, or lines of a FASTA file, are written together
BASES_PER_LINE = 80  # of FASTA for people, as NCBI writes it


@dataclass(frozen=True, kw_only=True)
class OutputFigures(TaskFigures):
    """The number of records by status and by call, and of chunks by status."""

    statuses: Mapping[str, int]
    calls: Mapping[str, int]
    chunks: Mapping[str, int]


@dataclass(frozen=True)
class OutputStage(HostStage):
    """Writes the tables of chunks and records, and the records called virus.

    ``seen`` is the stamp of the source from before its digest was taken: nothing is committed
    where it has changed. False discovery rates are given only where the scores are ``calibrated``
    probabilities. ``contig_model`` says how the chunks of a record are put together; None takes
    the rule of the original program.
    """

    name: ClassVar[str] = "output"
    reads_intermediate: ClassVar[bool] = False
    version: ClassVar[int] = 2  # 2: column fdr

    layout: RunLayout
    source: Path
    seen: FileStamp
    calibrated: bool
    contig_model: ContigModel | None = None

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all results."""
        layout = self.layout
        inputs = (self.source, layout.records_table, layout.frames_table, layout.consensus)
        outputs = (layout.chunks_table, layout.contigs_table, layout.virus_fasta)
        records = receipts.outputs("chunking")[1].rows
        params: dict[str, Json] = {
            "chunk_length": layout.chunk_length,
            "calibrated": self.calibrated,
        }
        if self.contig_model is not None:
            params["contig_model"] = list(astuple(self.contig_model))
        return [self.whole(inputs, outputs, params, records, OutputFigures)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Walk over records, chunks and scores side by side; all are in input order.

        Raises:
            InputError: the input is not the one that was chunked.
        """
        statuses: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        chunk_statuses: Counter[str] = Counter()
        rates = self._rates()
        with (
            self.disk.create(task.outputs[0]) as chunks_table,
            self.disk.create(task.outputs[1]) as contigs_table,
            self.disk.create(task.outputs[2]) as virus,
        ):
            chunks_table.write(CHUNKS.header.encode())
            contigs_table.write(CONTIGS.header.encode())
            rows_of_records = self._chunks()
            # A record is read before its chunks are gathered, and both are let go before the next
            # one is read: a chromosome takes a GB while it is parsed.
            for record in read_records(self.source):
                row = next(rows_of_records, None)
                if row is None or len(record.sequence) != row[1]:
                    raise changed_input_error(self.source)
                name, length, chunks = row
                call = call_record(length, chunks, self.contig_model)
                for start in range(0, len(chunks), ROWS_AT_A_TIME):
                    batch = chunks[start : start + ROWS_AT_A_TIME]
                    chunks_table.write("".join(c.row(name) for c in batch).encode(), len(batch))
                line = CONTIGS.line(record=name, length=length, fdr=next(rates), **call._asdict())
                contigs_table.write(line.encode(), 1)
                statuses[call.status] += 1
                calls[call.call] += 1
                chunk_statuses.update(chunk.status for chunk in chunks)
                if call.call == "virus":
                    header = record.header.replace(record.id, name, 1)  # renamed, or unchanged
                    _write_fasta(virus, header, record.sequence)
                del record, chunks, row
                report(1, 0)
            if next(rows_of_records, None) is not None:
                raise changed_input_error(self.source)
            if input_stamp(self.source) != self.seen:
                raise changed_input_error(self.source)
        outputs = (chunks_table.output, contigs_table.output, virus.output)
        figures = OutputFigures(
            statuses=dict(sorted(statuses.items())),
            calls=dict(sorted(calls.items())),
            chunks=dict(sorted(chunk_statuses.items())),
        )
        return TaskResult(task, outputs, figures)

    def _rates(self) -> Iterator[float | None]:
        """Yield the false discovery rate of every record.

        It depends on all records of the run, so the scores are read twice.
        """
        if not self.calibrated:
            return repeat(None)
        probabilities, scored = array("d"), array("q")
        for _, _, chunks in self._chunks():
            scored_chunks = [chunk for chunk in chunks if chunk.status == "scored"]
            if self.contig_model is None or not scored_chunks:
                probabilities.extend(chunk.probability for chunk in scored_chunks)
                scored.append(len(scored_chunks))
            else:
                log_odds = self.contig_model.log_odds([chunk.log_odds for chunk in scored_chunks])
                probabilities.append(0.5 * (1 + math.tanh(log_odds / 2)))
                scored.append(1)
        fdr = contig_fdr(np.array(probabilities), np.array(scored, np.int64))
        return (None if math.isnan(rate) else rate for rate in fdr.tolist())

    def _chunks(self) -> Iterator[tuple[str, int, list[Chunk]]]:
        """Yield name, length and chunks of every record."""
        frames = FRAMES.read(self.layout.frames_table, "chunk", "frames", "status")
        scores = CONSENSUS.read(self.layout.consensus, "Modified_ID", "max_score_0", "max_score_1")
        score = next(scores, None)
        for name, length in RECORDS.read(self.layout.records_table, "record", "length"):
            chunks = []
            for start, stop in chunk_spans(int(length), self.layout.chunk_length):
                chunk, count, status = next(frames)
                others = virus = MISSING
                if score is not None and score[0] == chunk:
                    status, others, virus = "scored", score[1], score[2]
                    score = next(scores, None)
                elif int(count) > 0:
                    status = "failed"
                chunks.append(Chunk(chunk, start, stop, status, int(count), others, virus))
            yield name, int(length), chunks
        if score is not None:
            raise AssertionError(f"{self.layout.consensus} scores {score[0]}, which is not a chunk")


def _write_fasta(out: OutputWriter, header: str, sequence: str) -> None:
    out.write(f">{header}\n".encode(), 1)
    for start in range(0, len(sequence), BASES_PER_LINE * ROWS_AT_A_TIME):
        block = sequence[start : start + BASES_PER_LINE * ROWS_AT_A_TIME]
        lines = (block[i : i + BASES_PER_LINE] for i in range(0, len(block), BASES_PER_LINE))
        out.write("".join(f"{line}\n" for line in lines).encode())
