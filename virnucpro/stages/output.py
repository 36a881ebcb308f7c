"""The last stage: from the scores of chunks to the calls of all records, and their files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cache
from gzip import GzipFile
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.columns import GFF3_HEADER, MISSING
from virnucpro.contracts import Json, Receipts, ReportProgress, Task, TaskResult
from virnucpro.io.frames import spans_of_records
from virnucpro.io.pairs import InputFiles
from virnucpro.io.records import Record, holds_qualities
from virnucpro.metrics.classification import Bools, Floats, Ints
from virnucpro.results import INCOMPLETE
from virnucpro.settings import DEFAULT_THRESHOLDS, NONVIRUS_BELOW, Thresholds
from virnucpro.stages.base import HostStage
from virnucpro.stages.calls import (
    FAILED,
    SCORED,
    STATUSES,
    Chunks,
    Summaries,
    call_of,
    contig_rates,
    met,
    summarise,
)
from virnucpro.stages.genes import FoundGenes, GeneFinder, Searched
from virnucpro.stages.regions import SHORTEST_RECORD, Region, find_regions
from virnucpro.stages.result_files import (
    MOST_BASES_AT_A_TIME,
    Block,
    BlockRegions,
    OutputFigures,
    ResultFiles,
)
from virnucpro.store.disk import GZIP_LEVEL, OutputWriter
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import HashedFile, changed_input_error, refuse_changed_input
from virnucpro.tables import CONSENSUS, FRAMES, PAIRS, RECORDS

LONG = 5000  # bases; the hallmark genes of undecided records of this length are found, too
# Bases; no virus is longer (Pandoravirus salinus: 2.5 million, Philippe et al. 2013, Science
# 341:281-286), and finding genes takes 100 bytes of memory for each.
LONGEST = 3_000_000
CHUNKS_AT_A_TIME = 4096  # are written together, or those of one longer record
# Of chunks without a score, by the status that the table of frames has.
UNSCORED = {"framed": FAILED, **{status: place for place, status in enumerate(STATUSES)}}


def is_searched(
    lengths: Ints, scores: Floats, thresholds: Thresholds, errors: Floats | None = None
) -> Bools:
    """Return which records have their genes found: those that may be viral.

    ``errors`` are their own error rates without hallmark genes, where these are known.
    """
    is_viral = met(thresholds, lengths, scores, np.array(np.nan), errors)
    return is_viral | (scores >= NONVIRUS_BELOW) & (lengths >= LONG) & (lengths <= LONGEST)


@cache
def gene_finder() -> GeneFinder:
    """Return what finds genes, the same for all runs: its profiles take long to read."""
    return GeneFinder()


@dataclass(frozen=True)
class OutputStage(HostStage):
    """Writes the tables of chunks and records, and the records classified as viral.

    ``seen`` are the files of the source as they were hashed: earlier results stay as they are where
    one has changed. False discovery rates are given only where the scores are ``calibrated``.
    ``contig_model`` says how the chunks of a record are put together; None takes the rule of the
    original program. ``thresholds`` say what a record needs to be classified as viral.
    """

    name, title = "output", "Output"
    reads_intermediate: ClassVar[bool] = False
    version: ClassVar[int] = 20
    same_inputs: ClassVar[range] = range(15, version + 1)  # versions that read the same tables

    source: InputFiles
    seen: Sequence[HashedFile]
    calibrated: bool
    contig_model: ContigModel | None = None
    thresholds: Thresholds = DEFAULT_THRESHOLDS

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all results."""
        layout = self.layout
        inputs = (*self.source.paths, layout.records_table, layout.frames_table, layout.consensus)
        outputs: tuple[Path, ...] = (
            layout.chunks_table,
            layout.contigs_table,
            layout.virus_table,
            layout.virus_fasta,
        )
        fastq = holds_qualities(self.source.first)
        if self.source.paired:
            outputs += layout.virus_mates_fastq if fastq else layout.virus_mates_fasta
        else:
            outputs += layout.regions_table, layout.regions_bed, layout.regions_gff3
            outputs += (layout.virus_fastq,) if fastq else ()
        outputs += (layout.multiqc,)
        records = receipts.rows("chunking", layout.records_table)
        params: dict[str, Json] = {
            "chunk_length": layout.chunk_length,
            "calibrated": self.calibrated,
            "thresholds": asdict(self.thresholds),
        }
        if self.contig_model is not None:
            params["contig_model"] = list(self.contig_model)
        more: dict[str, Any] = {"figures": OutputFigures, "optional": layout.virus_genes}
        return [self.whole(inputs, outputs, params, count=records, **more)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Walk over records, chunks and scores side by side; all are in input order."""
        with ExitStack() as stack:
            writers = [stack.enter_context(self.disk.create(path)) for path in task.outputs]
            fastq = [
                # Without name and time.
                stack.enter_context(GzipFile("", "wb", GZIP_LEVEL, writer, mtime=0))
                for path, writer in zip(task.outputs, writers, strict=True)
                if path.suffix == ".gz"
            ]

            def open_genes() -> Sequence[OutputWriter]:
                writers.extend(stack.enter_context(self.disk.create(p)) for p in task.optional)
                writers[-2].write(GFF3_HEADER.encode())
                return writers[-2:]

            files = ResultFiles(writers, fastq, paired=self.source.paired, open_genes=open_genes)
            found, odds, long = self._summaries(files)
            files.genes, functions = self._genes(found, odds, long, report)
            rates = self._rates(found, odds, functions)
            # zip would hold records while the next ones are read
            summarised, halves = iter(found), iter(_halves(found))
            for block, records in self._records():
                summaries, regions = next(summarised)
                (fdr, errors), rates = np.split(rates, [len(records)], axis=1)
                hallmarks, functions = np.split(functions, [len(records)])
                calls = call_of(block.bases, summaries, fdr, self.thresholds, errors, hallmarks)
                files.add(records, block, calls, regions)
                report(len(records) - next(halves), 0)
                del records
            figures = files.finish(self.thresholds, self.contig_model, calibrated=self.calibrated)
            multiqc = writers[len(task.outputs) - 1]
            multiqc.write(files.multiqc_table(self.layout.sample), 1)
            refuse_changed_input(self.seen)
            # Mark an earlier record of the run until another one describes the new results.
            with suppress(OSError, ValueError, TypeError):  # there is none, or it was damaged
                earlier = {**parse_json(self.layout.run_json.read_bytes()), INCOMPLETE: True}
                content = json.dumps(earlier, indent=1) + "\n"
                self.disk.save(self.layout.run_json, content.encode())
        written = tuple(writer.output for writer in writers)
        for path in set(task.optional).difference(output.path for output in written):
            self.disk.remove(path)  # of an earlier call with other settings
        return TaskResult(task, written, figures)

    def _summaries(
        self, files: ResultFiles
    ) -> tuple[list[tuple[Summaries, BlockRegions]], list[Floats], list[dict[int, Chunks]]]:
        """Write all chunks; return what follows from those of each block, and its log odds.

        Regions are those of scores alone. The last are the chunks of the records that have any.
        This takes 72 bytes of memory for each record, and 48 for each of these chunks.
        """
        found: list[tuple[Summaries, BlockRegions]] = []
        odds, long = [], []
        for block, chunks, cells in self._chunks():
            files.add_chunks(block.names, chunks, cells)
            summaries, own = summarise(block.bases, chunks, self.contig_model)
            regions, with_regions = self._regions(block, chunks)
            found.append((summaries, regions))
            long.append(with_regions)
            if self.calibrated:
                odds.append(own)
        return found, odds, long

    def _rates(
        self,
        found: Sequence[tuple[Summaries, BlockRegions]],
        odds: Sequence[Floats],
        hallmarks: Ints,
    ) -> Floats:
        """Return the rates of :func:`contig_rates`, ``[2, records]``; NaN where not known."""
        if not self.calibrated:
            return np.full((2, len(hallmarks)), np.nan)
        scored = np.concatenate([summaries.chunks_scored for summaries, _ in found])
        return np.stack(contig_rates(np.concatenate(odds), scored, self.contig_model, hallmarks))

    def _records(self) -> Iterator[tuple[Block, list[Record]]]:
        """Yield the records of the input, some at a time. Raises InputError if it has changed.

        Let go of them before the next ones are read: a chromosome takes a GB while it is parsed.
        """
        sequences = iter(self.source.records())
        for block in self._blocks():
            records = list(islice(sequences, len(block.names)))
            mates = [records]
            if self.source.paired:
                mates.append([record.mate for record in records if record.mate])
            lengths = np.array([[len(mate.sequence) for mate in each] for each in mates])
            if not np.array_equal(lengths, block.lengths):
                raise changed_input_error(self.source.first)
            yield block, records
            del records
        if next(sequences, None) is not None:
            raise changed_input_error(self.source.first)

    def _genes(
        self,
        found: Sequence[tuple[Summaries, BlockRegions]],
        odds: Sequence[Floats],
        long: Sequence[dict[int, Chunks]],
        report: ReportProgress,
    ) -> tuple[FoundGenes, Ints]:
        """Find the genes of records that may be viral, and of regions. Reports half of all records.

        Before, regions in ``found`` are found again without arrays of repeats. Returns also
        ``[records]``, how many functions the hallmark genes of each record have, which is 0 where
        none were looked for. Those of an undecided record with a viral region say that the region
        is viral: a host with a provirus is no virus. Genes take 700 bytes of memory for each record
        searched, and a quarter of a byte for each of its bases.
        """
        genes: FoundGenes = {}
        functions = [np.zeros(len(summaries.status), np.int64) for summaries, _ in found]
        searched = self._searched(found, odds)
        if not any(searched) and not any(long):
            report(sum(_halves(found)), 0)
            return genes, np.concatenate(functions)
        rest = zip(searched, long, found, functions, _halves(found), strict=True)
        for block, records in self._records():  # zip would hold records while others are read
            places, with_regions, (_, regions), own, half = next(rest)
            parts = [Searched(block.names[i], records[i].sequence) for i in places]
            for i, chunks in with_regions.items():
                name, sequence = block.names[i], records[i].sequence
                regions[i] = self._regions_of(len(sequence), chunks, sequence)
                parts += [Searched(name, sequence, (r.start, r.stop)) for r in regions[i]]
            del records
            if parts and self._finds_genes:
                results = gene_finder().find(parts)
                own[places] = [len(set(result.hallmarks)) for result in results[: len(places)]]
                genes |= {(e.record, e.region): r for e, r in zip(parts, results, strict=True)}
            report(half, 0)
        return genes, np.concatenate(functions)

    @property
    def _finds_genes(self) -> bool:
        is_fasta = not self.source.paired and not holds_qualities(self.source.first)
        return self.thresholds.genes and is_fasta

    def _searched(
        self, found: Sequence[tuple[Summaries, BlockRegions]], odds: Sequence[Floats]
    ) -> list[list[int]]:
        """Return for each block the places of the records that are searched."""
        if not self._finds_genes:
            return [[] for _ in found]
        # Hallmarks lower the error rate of their own record, and of no other one.
        none = np.zeros(sum(len(summaries.status) for summaries, _ in found), np.int64)
        _, errors = self._rates(found, odds, none)
        searched = []
        for block, (summaries, regions) in zip(self._blocks(), found, strict=True):
            own, errors = np.split(errors, [len(block.names)])
            bases, scores = block.bases, summaries.virus_score
            is_meant = is_searched(bases, scores, self.thresholds, own)
            is_viral = met(self.thresholds, bases, scores, np.array(np.nan), own)
            hosts = list(regions)  # unless they are viral themselves
            is_meant[hosts] = is_viral[hosts]
            searched.append(np.flatnonzero(is_meant).tolist())
        return searched

    def _regions(self, block: Block, chunks: Chunks) -> tuple[BlockRegions, dict[int, Chunks]]:
        """Return the regions by the place of their record, and all chunks of these records."""
        regions: BlockRegions = {}
        long = {}
        is_long = (block.bases >= SHORTEST_RECORD) & (not self.source.paired)
        for place in np.flatnonzero(is_long).tolist():
            own = chunks.chosen(slice(*np.searchsorted(chunks.record, [place, place + 1])))
            if found := self._regions_of(int(block.lengths[0, place]), own):
                regions[place], long[place] = found, own
        return regions, long

    def _regions_of(self, length: int, chunks: Chunks, sequence: str | None = None) -> list[Region]:
        """Return the regions of a record that are classified as viral."""
        return [
            region
            for region in find_regions(length, chunks, self.contig_model, sequence)
            # The rate of a region depends on all regions, and --max-fdr is for records alone.
            if region.score > self.thresholds.min_score
            and region.stop - region.start >= self.thresholds.min_length
        ]

    def _blocks(self) -> Iterator[Block]:
        """Yield all records, some at a time; all but the first are below a limit together."""
        most = min(CHUNKS_AT_A_TIME * self.layout.chunk_length, MOST_BASES_AT_A_TIME)
        declared = PAIRS if self.source.paired else RECORDS
        for names, *cells in declared.read_columns(
            self.layout.records_table, *declared.row._fields
        ):
            lengths = np.array([list(map(int, column)) for column in cells])
            number = lengths.sum(axis=0).cumsum() // most
            ends = [*(np.flatnonzero(np.diff(number)) + 1).tolist(), len(names)]
            for start, end in pairwise([0, *ends]):
                yield Block(names[start:end], lengths[:, start:end])

    def _chunks(self) -> Iterator[tuple[Block, Chunks, dict[str, list[str]]]]:
        """Yield all records, some at a time, with their chunks and cells of their rows."""
        frames = FRAMES.read(self.layout.frames_table, "chunk", "frames", "status")
        scores = CONSENSUS.read(self.layout.consensus, "Modified_ID", "max_score_0", "max_score_1")
        score = next(scores, None)
        for block in self._blocks():
            record, start, stop = spans_of_records(block.lengths, self.layout.chunk_length)
            ids, counts, others, virus = ([""] * len(record) for _ in range(4))
            status = np.full(len(record), SCORED)
            for place, (chunk, count, reason) in enumerate(islice(frames, len(record))):
                ids[place], counts[place] = chunk, count
                if score is not None and score[0] == chunk:
                    _, others[place], virus[place] = score
                    score = next(scores, None)
                else:
                    others[place] = virus[place] = MISSING
                    status[place] = UNSCORED[reason]
            numbers = (
                np.array([math.nan if cell == MISSING else float(cell) for cell in column])
                for column in (others, virus)
            )
            cells = {"chunk": ids, "frames": counts, "max_score_0": others, "max_score_1": virus}
            yield block, Chunks(record, start, stop, status, *numbers), cells
        if score is not None:
            raise AssertionError(f"{self.layout.consensus} scores {score[0]}, which is not a chunk")


def _halves(found: Sequence[tuple[Summaries, BlockRegions]]) -> list[int]:
    """Return about half of the records of each block: what is done when their genes are found."""
    ends = np.cumsum([0, *(len(summaries.status) for summaries, _ in found)])
    halves: list[int] = np.diff(ends // 2).tolist()
    return halves
