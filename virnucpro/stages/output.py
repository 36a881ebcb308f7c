"""The last stage: from the scores of chunks to the calls of all records, and their files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cache
from gzip import GzipFile
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.evidence import GeneEvidence, no_evidence
from virnucpro.columns import GFF3_HEADER, MISSING
from virnucpro.contracts import Json, ReportProgress, Task, TaskResult
from virnucpro.io.frames import spans_of_records
from virnucpro.io.inputs import InputFiles
from virnucpro.io.records import Record, holds_qualities
from virnucpro.layout import Layout
from virnucpro.metrics import Bools, Floats, Ints
from virnucpro.results import INCOMPLETE
from virnucpro.settings import NONVIRUS_BELOW, Thresholds
from virnucpro.stages.base import HostStage
from virnucpro.stages.calls import (
    FAILED,
    SCORED,
    STATUSES,
    Chunks,
    Rates,
    Summaries,
    call_of,
    contig_rates,
    met,
    summarise,
    unknown_rates,
)
from virnucpro.stages.genes import (
    FoundGenes,
    GeneFinder,
    Hit,
    Predicted,
    Span,
    count_functions,
    write_genes,
)
from virnucpro.stages.prediction import ConsensusStage
from virnucpro.stages.regions import SHORTEST_RECORD, Region, find_regions, region_fdr
from virnucpro.stages.result_files import (
    MATES,
    MOST_BASES_AT_A_TIME,
    Block,
    BlockRegions,
    OutputFigures,
    ResultFiles,
)
from virnucpro.store.disk import GZIP_LEVEL, Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import HashedFile, changed_input_error, refuse_changed_input
from virnucpro.store.ledger import Ledger
from virnucpro.tables import CONSENSUS, FRAMES, PAIRS, RECORDS

UNCERTAIN = 2_000  # bases; the genes of undecided records of this length are found, too
CHUNKS_AT_A_TIME = 4096  # are written together, or those of one longer record
# Of chunks without a score, by the status that the table of frames has.
UNSCORED = {"framed": FAILED, **{status: place for place, status in enumerate(STATUSES)}}


def is_searched(lengths: Ints, scores: Floats, thresholds: Thresholds) -> Bools:
    """Return which records have their genes found; a score of NaN stands for none.

    Those that are long enough for viral regions all have, also where they score as a host.
    """
    is_uncertain = (scores >= NONVIRUS_BELOW) & (lengths >= UNCERTAIN)
    is_long = lengths >= SHORTEST_RECORD
    searched: Bools = (scores > thresholds.min_score) | is_uncertain | is_long
    return searched


def may_be_viral(score: float, hits: Sequence[Hit], thresholds: Thresholds) -> bool:
    """Return whether virus markers are looked for among all genes of a record, and these kept.

    ``hits`` are those that say something of the record.
    """
    is_possible = score >= min(thresholds.min_score, NONVIRUS_BELOW)
    return bool(is_possible) or any(hit.kind == "hallmark" for hit in hits)


class Scored(NamedTuple):
    """What the scores of a block of records say."""

    lengths: Ints  # [records], in bases
    summaries: Summaries
    odds: Floats  # as `summarise` returns them
    long: dict[
        int, Chunks
    ]  # the chunks of the records that may have regions, by place in the block
    regions: BlockRegions  # found later, with their genes


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
    version: ClassVar[int] = 2

    source: InputFiles
    seen: Sequence[HashedFile]
    calibrated: bool
    contig_model: ContigModel | None
    thresholds: Thresholds

    @property
    def files(self) -> dict[str, Path]:
        """The files of results by their names, but those of genes."""
        layout, fastq = self.layout, holds_qualities(self.source.first)
        files = {
            "chunks": layout.chunks_table,
            "contigs": layout.contigs_table,
            "virus": layout.virus_table,
            "fasta": layout.virus_fasta,
            "multiqc": layout.multiqc,
        }
        if self.source.paired:
            mates = layout.virus_mates_fastq if fastq else layout.virus_mates_fasta
            return files | dict(zip(MATES, mates, strict=True))
        files |= {"regions": layout.regions_table, "bed": layout.regions_bed}
        files |= {"gff3": layout.regions_gff3}
        return files | ({"reads": layout.virus_fastq} if fastq else {})

    def task(self, ledger: Ledger) -> Task:
        """Return the task of all results."""
        layout, outputs = self.layout, tuple(self.files.values())
        inputs = (*self.source.paths, layout.records_table, layout.frames_table, layout.consensus)
        params: dict[str, Json] = {
            "calibrated": self.calibrated,
            "thresholds": asdict(self.thresholds),
        }
        if self.contig_model is not None:
            params["contig_model"] = list(self.contig_model)
        more: dict[str, Any] = {"figures": OutputFigures, "optional": layout.virus_genes}
        records = ledger.rows(layout.records_table)
        return self.whole(inputs, outputs, params, count=records, **more)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Read the scores, find genes and regions, decide, and write, in the order of the input."""
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(self.disk.create(path))
                for name, path in self.files.items()
            }
            compressed = {
                # Without name and time.
                name: stack.enter_context(GzipFile("", "wb", GZIP_LEVEL, writers[name], mtime=0))
                for name, path in self.files.items()
                if path.suffix == ".gz"
            }
            files = ResultFiles(writers, compressed)
            found = self._read_scores(files)
            evidence = self._find_genes_and_regions(found, files.genes, report)
            rates = self._rates(found, evidence)
            self._rate_regions(found, rates, evidence)
            self._write_records(files, found, rates, evidence, report)
            figures = files.finish(self.thresholds, self.contig_model, calibrated=self.calibrated)
            writers["multiqc"].write(files.multiqc_table(self.layout.sample), 1)
            of_genes = []
            if files.described:
                of_genes = [stack.enter_context(self.disk.create(path)) for path in task.optional]
                of_genes[0].write(GFF3_HEADER.encode())
                for described in files.described:
                    write_genes(of_genes, *described)
            refuse_changed_input(self.seen)
            # Mark an earlier record of the run until another one describes the new results.
            with suppress(OSError, ValueError, TypeError):  # there is none, or it was damaged
                earlier = {**parse_json(self.layout.run_record.read_bytes()), INCOMPLETE: True}
                content = json.dumps(earlier, indent=1) + "\n"
                self.disk.save(self.layout.run_record, content.encode())
        written = tuple(writer.output for writer in (*writers.values(), *of_genes))
        for path in set(task.optional).difference(output.path for output in written):
            self.disk.remove(path)  # of an earlier call with other settings
        return TaskResult(task, written, figures)

    def _read_scores(self, files: ResultFiles) -> list[Scored]:
        """Write all chunks; return what follows from those of each block.

        This takes 72 bytes of memory for each record, and 48 for each chunk of a long one.
        """
        found = []
        for block, chunks, cells in self._chunks():
            files.add_chunks(block.names, chunks, cells)
            summaries, odds = summarise(block.bases, chunks, self.contig_model)
            has_regions = (block.bases >= SHORTEST_RECORD) & (not self.source.paired)
            long = {
                place: chunks.chosen(slice(*np.searchsorted(chunks.record, [place, place + 1])))
                for place in np.flatnonzero(has_regions).tolist()
            }
            found.append(Scored(block.bases, summaries, odds, long, {}))
        return found

    def _find_genes_and_regions(
        self, found: Sequence[Scored], genes: FoundGenes, report: ReportProgress
    ) -> GeneEvidence:
        """Find the genes of records, and then their regions. Reports half of all records.

        The ``genes`` of records that may be viral, and of regions, are kept: they take 700 bytes of
        memory for each of these, and a quarter of a byte for each of its bases.
        """
        evidence = no_evidence(sum(len(scored.lengths) for scored in found))
        is_fasta = not self.source.paired and not holds_qualities(self.source.first)
        searched = [np.zeros(len(scored.lengths), bool) for scored in found]
        if self.thresholds.genes and is_fasta:
            searched = [
                is_searched(scored.lengths, scored.summaries.virus_score, self.thresholds)
                for scored in found
            ]
        if not any(own.any() or scored.long for own, scored in zip(searched, found, strict=True)):
            report(len(evidence.searched) // 2, 0)
            return evidence
        end = 0
        for (block, records), scored, meant in zip(self._records(), found, searched, strict=True):
            start, end = end, end + len(records)
            places = np.flatnonzero(meant).tolist()
            parts = [records[place].sequence for place in places]
            predicted = dict(zip(places, gene_finder().find(parts) if parts else [], strict=True))
            for place in sorted({*places, *scored.long}):
                sequence, its = records[place].sequence, predicted.get(place)
                regions = self._regions(scored.long.get(place), sequence, its.hits if its else [])
                if regions:
                    scored.regions[place] = regions
            self._keep_genes(block.names, scored, predicted, genes)
            for place, its in predicted.items():
                counts = count_functions(self._own_hits(scored, place, its))
                evidence.put(start + place, *counts)
            report(end // 2 - start // 2, 0)
        return evidence

    def _regions(self, chunks: Chunks | None, sequence: str, hits: Sequence[Hit]) -> list[Region]:
        """Return the regions of a record that are classified as viral."""
        if chunks is None:
            return []
        return [
            region
            for region in find_regions(len(sequence), chunks, self.contig_model, sequence, hits)
            if region.score > self.thresholds.min_score
            and region.stop - region.start >= self.thresholds.min_length
        ]

    def _own_hits(self, scored: Scored, place: int, predicted: Predicted) -> list[Hit]:
        """Return the hits that say something of the record itself.

        Those in a region say that the region is viral. They count for a record that its score
        calls viral, and not for another one: a host with a provirus is no virus.
        """
        if scored.summaries.virus_score[place] > self.thresholds.min_score:
            return predicted.hits
        regions = scored.regions.get(place, [])
        return [
            hit
            for hit in predicted.hits
            if not any(region.start <= hit.begin < region.stop for region in regions)
        ]

    def _keep_genes(
        self,
        names: Sequence[str],
        scored: Scored,
        predicted: Mapping[int, Predicted],
        genes: FoundGenes,
    ) -> None:
        """Keep the genes of records that may be viral, and of regions, with their virus markers.

        ``predicted`` are the genes of records by their places in the block.
        """
        shown: dict[int, list[Span | None]] = {}
        for place, its in predicted.items():
            hits, score = self._own_hits(scored, place, its), scored.summaries.virus_score[place]
            regions = scored.regions.get(place, [])
            shown[place] = [None] * may_be_viral(score, hits, self.thresholds)
            shown[place] += [(region.start, region.stop) for region in regions]
        if predicted:
            gene_finder().find_virus_markers([(predicted[i], spans) for i, spans in shown.items()])
        for place, spans in shown.items():
            name, length = names[place], int(scored.lengths[place])
            for span in spans:
                genes[name, span] = predicted[place].described(name, length, span)

    def _rates(self, found: Sequence[Scored], evidence: GeneEvidence) -> Rates:
        """Return the rates of all records."""
        if not self.calibrated:
            return unknown_rates(len(evidence.searched))
        odds = np.concatenate([scored.odds for scored in found])
        chunks = np.concatenate([scored.summaries.chunks_scored for scored in found])
        lengths = np.concatenate([scored.lengths for scored in found])
        return contig_rates(odds, chunks, lengths, evidence, self.contig_model)

    def _rate_regions(self, found: Sequence[Scored], rates: Rates, evidence: GeneEvidence) -> None:
        """Give all regions that are reported their rates, and leave out the others.

        A part of a virus that looks more viral than the rest is no region, unless the rest looks
        like a host. Bases of long records that are no virus count as searched.
        """
        end = searched = 0
        for scored in found:
            start, end = end, end + len(scored.lengths)
            own, scores = slice(start, end), scored.summaries.virus_score
            of_records = rates.chosen(own), evidence.chosen(own)
            is_virus = met(self.thresholds, scored.lengths, scores, *of_records)
            searched += int(scored.lengths[~is_virus & (scored.lengths >= SHORTEST_RECORD)].sum())
            for place, regions in scored.regions.items():
                kept = [region for region in regions if region.in_host or not is_virus[place]]
                scored.regions[place] = kept
        kept = [region for scored in found for own in scored.regions.values() for region in own]
        scores = np.array([region.score for region in kept], np.float64)
        fdr = iter(region_fdr(scores, searched if self.calibrated else math.nan))
        for scored in found:
            for place, regions in scored.regions.items():
                rated = [region._replace(fdr=next(fdr)) for region in regions]
                most = self.thresholds.max_fdr
                scored.regions[place] = [region for region in rated if (region.fdr or 0) <= most]

    def _write_records(
        self,
        files: ResultFiles,
        found: Sequence[Scored],
        rates: Rates,
        evidence: GeneEvidence,
        report: ReportProgress,
    ) -> None:
        """Write all records with their calls. Reports the other half of them."""
        end = 0
        for (block, records), scored in zip(self._records(), found, strict=True):
            start, end = end, end + len(records)
            which = slice(start, end)
            own = rates.chosen(which), evidence.chosen(which)
            calls = call_of(scored.lengths, scored.summaries, *own, self.thresholds)
            files.add(records, block, calls, scored.regions)
            report((end + 1) // 2 - (start + 1) // 2, 0)

    def _records(self) -> Iterator[tuple[Block, list[Record]]]:
        """Yield the records of the input, some at a time. Raises InputError if it has changed."""
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
        if next(sequences, None) is not None:
            raise changed_input_error(self.source.first)

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


def result_stages(
    layout: Layout,
    disk: Disk,
    source: InputFiles,
    seen: Sequence[HashedFile],
    calibrated: bool,
    contig_model: ContigModel | None,
    thresholds: Thresholds,
) -> list[HostStage]:
    """Return the stages that need only the input, scores, and the tables of records and frames.

    ``predict`` carries them out last, and ``call`` once more. The arguments are those of
    :class:`OutputStage`.
    """
    own = OutputStage(layout, disk, source, seen, calibrated, contig_model, thresholds)
    return [ConsensusStage(layout, disk), own]
