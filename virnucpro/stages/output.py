"""The results: every record and every chunk accounted for, and the viral sequences."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, astuple, dataclass
from itertools import repeat
from pathlib import Path
from typing import ClassVar

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.columns import MISSING
from virnucpro.contracts import Json, Receipts, ReportProgress, Task, TaskResult
from virnucpro.io.frames import record_spans
from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import holds_qualities
from virnucpro.layout import RunLayout
from virnucpro.results import INCOMPLETE
from virnucpro.settings import DEFAULT_CUTS, Cuts
from virnucpro.stages.base import HostStage
from virnucpro.stages.calls import Chunk, call_record
from virnucpro.stages.chunking import changed_input_error, refuse_changed_input
from virnucpro.stages.fdr import contig_fdr, record_probabilities
from virnucpro.stages.regions import find_regions
from virnucpro.stages.results import OutputFigures, ResultFiles
from virnucpro.store.disk import HashedFile, gzip_into
from virnucpro.store.documents import parse_json
from virnucpro.tables import CONSENSUS, FRAMES, PAIRS

PLAIN = 7  # outputs that are always there; then those of FASTQ reads and of pairs


@dataclass(frozen=True)
class OutputStage(HostStage):
    """Writes the tables of chunks and records, and the records called virus.

    ``seen`` are the files of the source as they were hashed: nothing is committed where one has
    changed. False discovery rates are given only where the scores are ``calibrated``.
    ``contig_model`` says how the chunks of a record are put together; None takes the rule of the
    original program. ``cuts`` say what a record needs to be called virus.
    """

    name: ClassVar[str] = "output"
    reads_intermediate: ClassVar[bool] = False
    # 2: column fdr; 3: STEM_virus.tsv, regions, other tiers; 4: the share that contig models
    # assume; 5: STEM_virus.fastq.gz; 7: rates from the tail of others, and that share again
    version: ClassVar[int] = 7

    layout: RunLayout
    source: InputFiles
    seen: Sequence[HashedFile]
    calibrated: bool
    contig_model: ContigModel | None = None
    cuts: Cuts = DEFAULT_CUTS

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all results."""
        layout = self.layout
        inputs = (*self.source.paths, layout.records_table, layout.frames_table, layout.consensus)
        outputs: tuple[Path, ...] = (
            layout.chunks_table,
            layout.contigs_table,
            layout.virus_table,
            layout.regions_table,
            layout.regions_bed,
            layout.regions_gff3,
            layout.virus_fasta,
        )
        fastq = holds_qualities(self.source.first)
        if self.source.paired:
            outputs += layout.virus_mates_fastq if fastq else layout.virus_mates_fasta
        elif fastq:
            outputs += (layout.virus_fastq,)
        records = receipts.outputs("chunking")[1].rows
        params: dict[str, Json] = {
            "chunk_length": layout.chunk_length,
            "calibrated": self.calibrated,
            "cuts": asdict(self.cuts),
        }
        if self.contig_model is not None:
            params["contig_model"] = list(astuple(self.contig_model))
        return [self.whole(inputs, outputs, params, count=records, figures=OutputFigures)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Walk over records, chunks and scores side by side; all are in input order."""
        rates = self._rates()
        fastq = holds_qualities(self.source.first)
        with ExitStack() as stack:
            writers = [stack.enter_context(self.disk.create(path)) for path in task.outputs]
            reads = writers[PLAIN:] if fastq else ()
            files = ResultFiles(writers, [stack.enter_context(gzip_into(each)) for each in reads])
            rows_of_records = self._chunks()
            # A record is read before its chunks are gathered, and both are let go before the next
            # one is read: a chromosome takes a GB while it is parsed.
            for record in self.source.records():
                row = next(rows_of_records, None)
                if row is None or record.lengths != row[1]:
                    raise changed_input_error(self.source.first)
                name, lengths, chunks = row
                length = sum(lengths)
                call = call_record(length, chunks, self.contig_model, next(rates), self.cuts)
                found = [] if record.mate else find_regions(length, chunks, self.contig_model)
                # No false discovery rate is known of a region.
                regions = [r for r in found if self.cuts.met(r.stop - r.start, r.score, None)]
                files.add(record, name, chunks, call, regions)
                del record, chunks, row
                report(1, 0)
            if next(rows_of_records, None) is not None:
                raise changed_input_error(self.source.first)
            figures = files.finish(self.cuts, self.contig_model, calibrated=self.calibrated)
            refuse_changed_input(self.seen)
            # Mark an earlier record of the run until another one describes the new results.
            with suppress(OSError, ValueError, TypeError):  # there is none, or it was damaged
                earlier = {**parse_json(self.layout.run_json.read_bytes()), INCOMPLETE: True}
                content = json.dumps(earlier, indent=1) + "\n"
                self.disk.save(self.layout.run_json, content.encode())
        return TaskResult(task, tuple(writer.output for writer in writers), figures)

    def _rates(self) -> Iterator[float | None]:
        """Yield the false discovery rate of every record, which depends on all records."""
        if not self.calibrated:
            return repeat(None)
        probabilities, scored = array("d"), array("q")
        for _, _, chunks in self._chunks():
            scores = [chunk.scores for chunk in chunks if chunk.status == "scored"]
            found = record_probabilities(scores, self.contig_model)
            probabilities.extend(found)
            scored.append(len(found))
        fdr = contig_fdr(np.array(probabilities), np.array(scored, np.int64), self.contig_model)
        return (None if math.isnan(rate) else rate for rate in fdr.tolist())

    def _chunks(self) -> Iterator[tuple[str, tuple[int, ...], list[Chunk]]]:
        """Yield name, lengths (of a pair those of both mates) and chunks of every record."""
        frames = FRAMES.read(self.layout.frames_table, "chunk", "frames", "status")
        scores = CONSENSUS.read(self.layout.consensus, "Modified_ID", "max_score_0", "max_score_1")
        score = next(scores, None)
        for name, *cells in PAIRS.read(self.layout.records_table, *PAIRS.names):
            lengths = tuple(map(int, cells))
            chunks = []
            for start, stop in record_spans(lengths, self.layout.chunk_length):
                chunk, count, status = next(frames)
                others = virus = MISSING
                if score is not None and score[0] == chunk:
                    status, others, virus = "scored", score[1], score[2]
                    score = next(scores, None)
                elif int(count) > 0:
                    status = "failed"
                chunks.append(Chunk(chunk, start, stop, status, int(count), others, virus))
            yield name, lengths, chunks
        if score is not None:
            raise AssertionError(f"{self.layout.consensus} scores {score[0]}, which is not a chunk")
