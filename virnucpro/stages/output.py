"""The results: every record and every chunk accounted for, and the viral sequences."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from gzip import GzipFile
from itertools import compress, islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.columns import GFF3_HEADER, MISSING, gff3_escaped
from virnucpro.contracts import Json, Receipts, ReportProgress, Task, TaskFigures, TaskResult
from virnucpro.io.frames import spans_of_records
from virnucpro.io.pairs import InputFiles, mate_headers
from virnucpro.io.records import Record, holds_qualities
from virnucpro.metrics.classification import Floats, Ints
from virnucpro.results import INCOMPLETE
from virnucpro.settings import DEFAULT_THRESHOLDS, DOUBTFUL, Thresholds
from virnucpro.stages.base import HostStage
from virnucpro.stages.calls import (
    FAILED,
    NONVIRUS_BELOW,
    SCORED,
    STATUSES,
    Calls,
    Chunks,
    Summaries,
    call_of,
    contig_fdr,
    evidence_of,
    met,
    summarise,
)
from virnucpro.stages.genes import (
    FoundGenes,
    GeneFinder,
    Genes,
    Searched,
    hallmark_columns,
    region_id,
    write_genes,
)
from virnucpro.stages.kinds import VirusKinds, windows
from virnucpro.stages.regions import SHORTEST_RECORD, Region, find_regions
from virnucpro.stages.topology import topology
from virnucpro.store.disk import GZIP_LEVEL, OutputWriter
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import HashedFile, changed_input_error, refuse_changed_input
from virnucpro.tables import CHUNKS, CONSENSUS, CONTIGS, FRAMES, PAIRS, RECORDS, REGIONS, VIRUS

BASES_PER_LINE = 80  # of FASTA for people, as NCBI writes it
BASES_AT_A_TIME = 8192 * BASES_PER_LINE  # are written together
RECORDS_AT_A_TIME = 1000  # of those classified as viral get their kinds together
MOST_BASES_AT_A_TIME = 10_000_000  # or fewer records, with so many bases
LONG = 5000  # bases; the hallmark genes of undecided records of this length are found, too
# SO:0001041, the sequence of a virus: a region may be a provirus, or a viral part of a chimera.
SEQUENCE_ONTOLOGY_TYPE = "viral_sequence"
# The first lines of STEM_mqc.tsv, which MultiQC reads as columns of its general statistics
# (docs.seqera.io/multiqc/custom_content).
MULTIQC_HEAD = """\
# id: virnucpro
# plot_type: generalstats
# headers:
#   virus: {title: Virus, description: Records classified as viral, format: "{:,.0f}"}
#   virus_share: {title: "% virus", description: Share of the bases}
#   records: {title: Records, format: "{:,.0f}"}
#   unscored: {title: Unscored, description: Records without a score, format: "{:,.0f}"}
Sample\tvirus\tvirus_share\trecords\tunscored
"""
CHUNKS_AT_A_TIME = 4096  # are written together, or those of one longer record
# Of chunks without a score, by the status that the table of frames has.
UNSCORED = {"framed": FAILED, **{status: place for place, status in enumerate(STATUSES)}}


class Block(NamedTuple):
    """Records that follow each other, as the table of records has them."""

    names: list[str]  # in results
    lengths: Ints  # [1, records], in bases, or [2, records] for both mates of pairs

    @property
    def bases(self) -> Ints:
        """The bases of each record: of both mates of a pair."""
        bases: Ints = self.lengths.sum(axis=0)
        return bases


BlockRegions = dict[int, list[Region]]
"""The viral regions of the records of a block, by their place in it."""


@dataclass(frozen=True, kw_only=True)
class OutputFigures(TaskFigures):
    """What the results hold, and what they were made with."""

    statuses: Mapping[str, int]  # records by status
    calls: Mapping[str, int]  # records by call
    chunks: Mapping[str, int]  # chunks by status
    sure: int  # records classified as viral of the tier ``high``
    doubtful: int  # records classified as viral with a false discovery rate above ``DOUBTFUL``
    regions: int  # viral regions in all records
    with_regions: int  # records that are not classified as viral and hold viral regions
    more_regions: int  # viral regions in these
    highest_rate: float | None  # of a record classified as viral; None where none is known
    thresholds: Thresholds  # what a record needed to be classified as viral
    unfamiliar: int  # records classified as viral that are unlike all training data of lite
    calibrated: bool  # whether the scores of the classifier are calibrated
    contig_model: tuple[float, ...]  # its coefficients; empty for none

    @property
    def records(self) -> int:
        """All records."""
        return sum(self.statuses.values())

    @property
    def scored(self) -> int:
        """Records with at least one scored chunk."""
        return self.statuses.get("scored", 0)

    @property
    def unscored(self) -> dict[str, int]:
        """The other records, by the reason."""
        return {name: count for name, count in self.statuses.items() if name != "scored"}


def result_counts(figures: OutputFigures) -> dict[str, Json]:
    """Return the counts of results as they stand in ``STEM_run.json``."""
    return {
        "records_scored": figures.scored,
        "records_unscored": figures.unscored,
        "calls": dict(figures.calls),
        "unfamiliar_viruses": figures.unfamiliar,
        "regions": figures.regions,
        "records_with_regions_not_called_virus": figures.with_regions,
        "chunks": dict(figures.chunks),
    }


class ResultFiles:
    """Writes all files of results, and counts what they hold."""

    def __init__(
        self,
        files: Sequence[OutputWriter],
        fastq: Sequence[GzipFile] = (),
        *,
        paired: bool = False,
        open_genes: Callable[[], Sequence[OutputWriter]] | None = None,
    ) -> None:
        """Begin the ``files``, in the order of the outputs of :class:`OutputStage`.

        ``fastq`` compress into the last ones: one file, or one for each of both mates.
        ``open_genes`` begins both files of genes, for the first virus or region.
        """
        self._chunks, self._contigs, self._virus, self._fasta, *more = files
        tables = list(zip((CHUNKS, CONTIGS, VIRUS), files, strict=False))
        if paired:
            self._mates = more
        else:
            self._regions, self._bed, self._gff3, *_ = more
            self._gff3.write(GFF3_HEADER.encode())
            tables.append((REGIONS, self._regions))
        self._fastq = fastq
        self._ranked: list[bytes] = []  # rows of STEM_virus.tsv, until all of them are known
        # Columns and windows of the records that have no kind yet.
        self._waiting: list[tuple[dict[str, object], list[str]]] = []
        self._waiting_bases = 0
        self._kinds: VirusKinds | None = None
        self.genes: FoundGenes = {}
        self._gene_files: Sequence[OutputWriter] | None = None
        self._open_genes = open_genes
        self._ranks = array("d")
        self._statuses: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._bases: Counter[str] = Counter()  # of the records, by call
        self._chunk_statuses: Counter[str] = Counter()
        names = ("sure", "doubtful", "regions", "with_regions", "more_regions", "unfamiliar")
        self._counts: dict[str, Any] = dict.fromkeys(names, 0)
        self._highest_rate: float | None = None
        for table, writer in tables:
            writer.write(table.header.encode())

    def add_chunks(
        self, names: Sequence[str], chunks: Chunks, cells: Mapping[str, Sequence[str]]
    ) -> None:
        """Write the chunks of records, which results call ``names``."""
        statuses = [STATUSES[place] for place in chunks.status.tolist()]
        lines = CHUNKS.lines(
            record=[names[number] for number in chunks.record.tolist()],
            start=(chunks.start + 1).tolist(),  # coordinates are from 1, the last one included
            end=chunks.stop.tolist(),
            status=statuses,
            **cells,
        )
        self._chunks.write(lines.encode(), len(statuses))
        self._chunk_statuses.update(statuses)

    def add(
        self,
        records: Sequence[Record],
        block: Block,
        calls: Calls,
        regions: BlockRegions,
    ) -> None:
        """Write the records of a block with their calls; ``regions`` are by place in the block."""
        lengths, is_virus = block.bases.tolist(), [call == "virus" for call in calls.call]
        bases = [length * viral for length, viral in zip(lengths, is_virus, strict=True)]
        for place, own in regions.items():
            bases[place] = sum(region.stop - region.start for region in own)
        lines = CONTIGS.lines(
            record=block.names,
            length=lengths,
            regions=[len(regions.get(place, ())) for place in range(len(records))],
            viral_bases=bases,
            **calls._asdict(),
        )
        self._contigs.write(lines.encode(), len(records))
        self._statuses.update(calls.status)
        self._calls.update(calls.call)
        for call, length in zip(calls.call, lengths, strict=True):
            self._bases[call] += length
        for place in sorted({*np.flatnonzero(is_virus).tolist(), *regions}):
            record, name = records[place], block.names[place]
            if place in regions:
                with_sequences = not is_virus[place]
                self._add_regions(record, name, regions[place], with_sequences=with_sequences)
            if is_virus[place]:
                self._add_virus(record, name, lengths[place], calls, place)

    def _add_regions(
        self, record: Record, name: str, regions: Sequence[Region], *, with_sequences: bool
    ) -> None:
        contig = gff3_escaped(name)
        self._gff3.write(f"##sequence-region {contig} 1 {len(record.sequence)}\n".encode())
        genes = [self.genes.get((name, (region.start, region.stop))) for region in regions]
        for region, found in zip(regions, genes, strict=True):
            start, stop = region.start, region.stop
            own_id = region_id(name, start, stop)
            values = region._asdict() | {"start": start + 1, "end": stop, "length": stop - start}
            del values["stop"]
            values |= hallmark_columns(found)
            self._regions.write(REGIONS.line(region=own_id, record=name, **values).encode(), 1)
            # BED knows no escapes. Only a ``#`` at the beginning would make the line a comment. The
            # score is 1000 times the probability of virus.
            chromosome = name.replace("#", "%23", 1) if name.startswith("#") else name
            cells = (chromosome, start, stop, own_id, round(500 * (1 + region.score)), ".")
            self._bed.write(("\t".join(map(str, cells)) + "\n").encode(), 1)
            attributes = {
                "ID": gff3_escaped(own_id),
                "chunks": region.chunks,
                "chunks_scored": region.chunks_scored,
                "at_edge": str(region.at_edge).lower(),
            }
            if region.flank_score is not None:
                attributes["flank_score"] = f"{region.flank_score:.6f}"
            place = f"{contig}\tvirnucpro\t{SEQUENCE_ONTOLOGY_TYPE}\t{start + 1}\t{stop}"
            text = ";".join(f"{key}={value}" for key, value in attributes.items())
            self._gff3.write(f"{place}\t{region.score:.6f}\t.\t.\t{text}\n".encode(), 1)
            if with_sequences:
                self._add_sequence(record, own_id, start, stop)
        if with_sequences:
            self._add_genes(name, len(record.sequence), genes)
        self._counts["regions"] += len(regions)
        self._counts["with_regions"] += with_sequences
        self._counts["more_regions"] += len(regions) * with_sequences

    def _add_genes(
        self, name: str, length: int, genes: Sequence[Genes | None], *, circular: bool = False
    ) -> None:
        """Write the genes of a record, or of its regions, unless they were not looked for."""
        if self._open_genes and (known := [found for found in genes if found]):
            self._gene_files = self._gene_files or self._open_genes()
            write_genes(self._gene_files, name, length, circular, known)

    def _add_virus(self, record: Record, name: str, length: int, calls: Calls, place: int) -> None:
        # A read is no complete molecule.
        assembled = record.mate is None and record.qualities is None
        shape = topology(record.sequence) if assembled else "linear"
        score, fdr, tier = calls.virus_score[place], calls.fdr[place], calls.tier[place]
        chunks_scored, coverage = calls.chunks_scored[place], calls.coverage[place]
        genes = self.genes.get((name, None))
        values: dict[str, object] = {
            "record": name,
            "length": length,
            "score": score,
            "fdr": fdr,
            "tier": tier,
            "chunks_scored": chunks_scored,
            "coverage": coverage,
            "evidence": evidence_of(chunks_scored, coverage),
            "topology": shape,
            "coding_density": genes and genes.density,
            **hallmark_columns(genes),
        }
        mates = [record.sequence] + ([record.mate.sequence] if record.mate else [])
        self._waiting.append((values, windows(mates)))
        self._waiting_bases += length
        if len(self._waiting) == RECORDS_AT_A_TIME or self._waiting_bases >= MOST_BASES_AT_A_TIME:
            self._add_rows()
        self._add_genes(name, length, [genes], circular=shape == "DTR")
        self._ranks.extend((tier != "high", -(score or 0.0), -length))
        self._counts["sure"] += tier == "high"
        if fdr is not None:
            self._counts["doubtful"] += fdr > DOUBTFUL
            self._highest_rate = max(self._highest_rate or 0.0, fdr)
        if record.mate is None:
            label = " [topology=circular]" if shape == "DTR" else ""
            self._add_sequence(record, name, 0, length, label)
            return
        # Both mates as ``name/1`` and ``name/2``, and each with its header to its file.
        headers = mate_headers(record, name)
        for place, mate in enumerate((record, record.mate)):
            _write_fasta(self._fasta, headers[place], mate.sequence)
            header = mate.header.replace(mate.id, name, 1)
            if mate.qualities is None:
                _write_fasta(self._mates[place], header, mate.sequence)
            else:
                _write_fastq(self._fastq[place], header, mate.sequence, mate.qualities)

    def _add_rows(self) -> None:
        """Find the kinds of the records that wait for them, and complete their rows."""
        if not self._waiting:
            return
        rows, own = zip(*self._waiting, strict=True)
        self._waiting, self._waiting_bases = [], 0
        self._kinds = self._kinds or VirusKinds()
        for values, kind in zip(rows, self._kinds.of(own), strict=True):
            self._ranked.append(VIRUS.line(**values, **kind._asdict()).encode())
            self._counts["unfamiliar"] += kind.unfamiliar == "yes"

    def _add_sequence(
        self, record: Record, name: str, start: int, stop: int, label: str = ""
    ) -> None:
        """Write the bases ``start`` to ``stop`` (0-based, half-open) of a record as ``name``."""
        header = record.header.replace(record.id, name, 1) + label  # renamed, or unchanged
        sequence = record.sequence[start:stop]
        _write_fasta(self._fasta, header, sequence)
        if record.qualities is not None:
            _write_fastq(self._fastq[0], header, sequence, record.qualities[start:stop])

    def multiqc_row(self, sample: str) -> bytes:
        """Return the line of the sample for MultiQC."""
        records, bases = self._calls.total(), self._bases
        share = 100 * bases["virus"] / max(bases.total(), 1)
        counts = self._calls["virus"], f"{share:.4f}", records, self._calls["unscored"]
        cells = " ".join(sample.split()), *map(str, counts)  # a name may hold tabs
        return ("\t".join(cells) + "\n").encode("utf-8", "backslashreplace")

    def finish(
        self, thresholds: Thresholds, model: ContigModel | None, *, calibrated: bool
    ) -> OutputFigures:
        """Write the ranked rows, by tier, score, length and place in the input; count all."""
        ranks = np.array(self._ranks).reshape(-1, 3)
        self._add_rows()
        for number in np.lexsort(ranks.T[::-1]).tolist():
            self._virus.write(self._ranked[number], 1)
        return OutputFigures(
            statuses=dict(sorted(self._statuses.items())),
            calls=dict(sorted(self._calls.items())),
            chunks=dict(sorted(self._chunk_statuses.items())),
            **self._counts,
            highest_rate=self._highest_rate,
            thresholds=thresholds,
            calibrated=calibrated,
            contig_model=tuple(model or ()),
        )


def _write_fastq(out: GzipFile, header: str, sequence: str, qualities: str) -> None:
    out.write(f"@{header}\n{sequence}\n+\n{qualities}\n".encode())


def _write_fasta(out: OutputWriter, header: str, sequence: str) -> None:
    out.write(f">{header}\n".encode(), 1)
    for start in range(0, len(sequence), BASES_AT_A_TIME):
        block = sequence[start : start + BASES_AT_A_TIME]
        lines = (block[i : i + BASES_PER_LINE] for i in range(0, len(block), BASES_PER_LINE))
        out.write("".join(f"{line}\n" for line in lines).encode())


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
    version: ClassVar[int] = 16

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
            found, chances = self._summaries(files)
            files.genes, _hallmarks = self._genes(found)  # of these, the calls know nothing yet
            scored = np.concatenate([summaries.chunks_scored for summaries, _ in found])
            fdr = np.full(len(scored), np.nan)  # where the rates are not known
            if self.calibrated:
                fdr = contig_fdr(np.concatenate(chances), scored, self.contig_model)
            summarised = iter(found)  # zip would hold records while the next ones are read
            for block, records in self._records():
                summaries, regions = next(summarised)
                rates, fdr = np.split(fdr, [len(records)])
                calls = call_of(block.bases, summaries, rates, self.thresholds)
                files.add(records, block, calls, regions)
                report(len(records), 0)
                del records
            figures = files.finish(self.thresholds, self.contig_model, calibrated=self.calibrated)
            multiqc = writers[len(task.outputs) - 1]
            multiqc.write(MULTIQC_HEAD.encode() + files.multiqc_row(self.layout.sample), 1)
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
    ) -> tuple[list[tuple[Summaries, BlockRegions]], list[Floats]]:
        """Write all chunks; return what follows from those of each block, and its probabilities.

        This takes 64 bytes of memory for each record.
        """
        found: list[tuple[Summaries, BlockRegions]] = []
        probabilities = []
        for block, chunks, cells in self._chunks():
            files.add_chunks(block.names, chunks, cells)
            summaries, chances = summarise(block.bases, chunks, self.contig_model)
            found.append((summaries, self._regions(block, chunks)))
            if self.calibrated:
                probabilities.append(chances)
        return found, probabilities

    def _records(self) -> Iterator[tuple[Block, list[Record]]]:
        """Yield the records of the input, some at a time. Raises InputError if it has changed.

        Let go of them before the next ones are read: a chromosome takes a GB while it is parsed.
        """
        sequences = iter(self.source.records())
        for block in self._blocks():
            records = list(islice(sequences, len(block.names)))
            lengths = np.array([record.lengths for record in records]).T
            if not np.array_equal(lengths, block.lengths):
                raise changed_input_error(self.source.first)
            yield block, records
            del records
        if next(sequences, None) is not None:
            raise changed_input_error(self.source.first)

    def _genes(self, found: Sequence[tuple[Summaries, BlockRegions]]) -> tuple[FoundGenes, Ints]:
        """Find the genes of records that may be viral, and of regions.

        Returns also ``[records]``, how many functions the hallmark genes of each record have, which
        is 0 where none were looked for. Genes take a quarter of a byte for each base searched.
        """
        genes: FoundGenes = {}
        functions = [np.zeros(len(summaries.status), np.int64) for summaries, _ in found]
        reads = self.source.paired or holds_qualities(self.source.first)
        if not self.thresholds.genes or reads:
            return genes, np.concatenate(functions)
        finder: GeneFinder | None = None
        blocks = zip(found, functions, strict=True)
        for block, records in self._records():
            (summaries, regions), own = next(blocks)
            bases, scores = block.bases, summaries.virus_score
            may_be_viral = met(self.thresholds, bases, scores, np.array(np.nan))
            may_be_viral |= (scores >= NONVIRUS_BELOW) & (bases >= LONG)
            places = np.flatnonzero(may_be_viral).tolist()
            parts = [Searched(block.names[i], records[i].sequence) for i in places]
            for i, own_regions in regions.items():
                name, sequence = block.names[i], records[i].sequence
                parts += [Searched(name, sequence, (r.start, r.stop)) for r in own_regions]
            del records
            if parts:
                finder = finder or GeneFinder()
                results = finder.find(parts)
                own[places] = [len(set(result.hallmarks)) for result in results[: len(places)]]
                genes |= {(e.record, e.region): r for e, r in zip(parts, results, strict=True)}
        return genes, np.concatenate(functions)

    def _regions(self, block: Block, chunks: Chunks) -> BlockRegions:
        """Return the regions that are classified as viral, by the place of their record."""
        regions: BlockRegions = {}
        if self.source.paired:
            return regions
        for place in np.flatnonzero(block.bases >= SHORTEST_RECORD).tolist():
            own = slice(*np.searchsorted(chunks.record, [place, place + 1]))
            length = int(block.lengths[0, place])
            found = find_regions(length, chunks.chosen(own), self.contig_model)
            lengths = np.array([region.stop - region.start for region in found])
            scores = np.array([region.score for region in found])
            # No false discovery rate is known of a region.
            if (is_met := met(self.thresholds, lengths, scores, np.full(len(found), np.nan))).any():
                regions[place] = list(compress(found, is_met))
        return regions

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
