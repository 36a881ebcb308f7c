"""The files of results: every record and every chunk accounted for, and the viral sequences."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from gzip import GzipFile
from typing import Any, NamedTuple

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.evidence import share_with_hallmark
from virnucpro.columns import GFF3_HEADER, MISSING, gff3_escaped
from virnucpro.contracts import Json, TaskFigures
from virnucpro.io.inputs import mate_headers
from virnucpro.io.records import Record
from virnucpro.metrics import Ints
from virnucpro.settings import DOUBTFUL, Thresholds
from virnucpro.stages.calls import HIGH_SCORE, STATUSES, TIERS, Calls, Chunks, basis_of
from virnucpro.stages.genes import FoundGenes, Genes, gene_columns, region_id
from virnucpro.stages.kinds import virus_kinds, windows
from virnucpro.stages.regions import (
    Region,
    region_tier,
)
from virnucpro.stages.topology import topology
from virnucpro.store.disk import OutputWriter
from virnucpro.tables import CHUNKS, CONTIGS, REGIONS, VIRUS

BASES_PER_LINE = 80  # of FASTA for people, as NCBI writes it
BASES_AT_A_TIME = 8192 * BASES_PER_LINE  # are written together
RECORDS_AT_A_TIME = 1000  # of those classified as viral get their kinds together
MOST_BASES_AT_A_TIME = 10_000_000  # or fewer records, with so many bases
# SO:0001041, the sequence of a virus: a region may be a provirus, or a viral part of a chimera.
SEQUENCE_ONTOLOGY_TYPE = "viral_sequence"
# Of regions by tier: genome browsers shade scores from 0 to 1000, the certain ones darkest.
BED_SCORES = {"high": 1000, "medium": 600, "low": 300}
# Columns of STEM_regions.tsv that are attributes in GFF3, too.
GFF3_ATTRIBUTES = "chunks", "chunks_scored", "at_edge", "virus_kind", "tier", "flank_score", "fdr"
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


MATES = "mate_1", "mate_2"  # the names of the files with the mates of viral pairs
TABLES = {"chunks": CHUNKS, "contigs": CONTIGS, "virus": VIRUS, "regions": REGIONS}
FEWEST_EXPECTED = 3.0  # hallmarked viruses, where their absence says something of a sample
FEWEST_MIDDLING = 5  # records classified as viral, where most of them say something of a sample


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
    bases: int  # of all records
    tiers: Mapping[str, int]  # records classified as viral by tier
    region_tiers: Mapping[str, int]  # regions by tier
    hallmarked: int  # records classified as viral with hallmark genes
    middling: int  # of the others, those with a score of at most ``HIGH_SCORE``
    # How many of the records classified as viral would have hallmark genes if all were viruses: of
    # those whose genes were looked for.
    expected: float
    doubtful: int  # records classified as viral with a false discovery rate above ``DOUBTFUL``
    regions: int  # viral regions in all records
    with_regions: int  # records that are not classified as viral and hold viral regions
    region_bases: int  # in all viral regions
    highest_rate: float | None  # of a record classified as viral; None where none is known
    thresholds: Thresholds  # what a record needed to be classified as viral
    unfamiliar: int  # records classified as viral that are unlike all training data of lite
    calibrated: bool  # whether the scores of the classifier are calibrated
    contig_model: ContigModel | None  # how the chunks of a record were put together

    @property
    def records(self) -> int:
        """All records."""
        return sum(self.statuses.values())

    @property
    def scored(self) -> int:
        """Records with at least one scored chunk."""
        return self.statuses.get("scored", 0)

    @property
    def caution(self) -> str | None:
        """What the calls of the sample rest on, in a sentence, if it is little."""
        virus = self.calls.get("virus", 0)
        if self.expected >= FEWEST_EXPECTED and self.hallmarked < self.expected / 3:
            return (
                f"Of as many viruses of these lengths about {self.expected:.0f} would have "
                f"hallmark genes, and {self.hallmarked:,} have: most may be unusual hosts."
            )
        if virus >= FEWEST_MIDDLING and 2 * self.middling > virus:
            return (
                f"{self.middling:,} of these have middling scores and no hallmark gene, as the "
                f"records of one unusual host may have."
            )
        return None

    @property
    def region_counts(self) -> tuple[int, int, int]:
        """Regions, their bases, and the records not classified as viral that hold regions."""
        return self.regions, self.region_bases, self.with_regions

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
        "viruses_by_tier": dict(figures.tiers),
        "viruses_with_hallmarks": figures.hallmarked,
        "caution": figures.caution,
        "viruses_fdr": figures.highest_rate,
        "unfamiliar_viruses": figures.unfamiliar,
        "regions": figures.regions,
        "region_bases": figures.region_bases,
        "regions_by_tier": dict(figures.region_tiers),
        "records_with_regions_not_called_virus": figures.with_regions,
        "chunks": dict(figures.chunks),
    }


class ResultFiles:
    """Writes all files of results, and counts what they hold."""

    def __init__(
        self,
        files: Mapping[str, OutputWriter],
        compressed: Mapping[str, GzipFile] | None = None,
    ) -> None:
        """Begin the ``files``, which have the names that :class:`OutputStage` gives them.

        ``compressed`` compress into those of reads.
        """
        self._files, self._compressed = files, compressed or {}
        self._ranked: list[bytes] = []  # rows of STEM_virus.tsv, until all of them are known
        # Columns and windows of the records that have no kind yet.
        self._waiting: list[tuple[dict[str, object], list[str]]] = []
        self._waiting_bases = 0
        self.genes: FoundGenes = {}
        # The genes of viruses, and of records with regions, as `write_genes` takes them.
        self.described: list[tuple[str, int, bool, list[Genes]]] = []
        self._ranks = array("d")
        self._statuses: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._tiers: Counter[str] = Counter()  # of the records classified as viral
        self._region_tiers: Counter[str] = Counter()
        self._bases: Counter[str] = Counter()  # of the records, by call
        self._chunk_statuses: Counter[str] = Counter()
        names = "hallmarked", "middling", "doubtful", "regions", "with_regions", "region_bases"
        self._counts: dict[str, Any] = dict.fromkeys((*names, "unfamiliar"), 0)
        self._lengths: list[int] = []  # of the viruses whose genes were looked for
        self._highest_rate: float | None = None
        for name, table in TABLES.items():
            if name in files:
                files[name].write(table.header.encode())
        if "gff3" in files:
            files["gff3"].write(GFF3_HEADER.encode())

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
        self._files["chunks"].write(lines.encode(), len(statuses))
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
        reported = {place: own for place, own in regions.items() if own}
        bases = [length * viral for length, viral in zip(lengths, is_virus, strict=True)]
        for place, own in reported.items():
            bases[place] = sum(region.stop - region.start for region in own)
        lines = CONTIGS.lines(
            record=block.names,
            length=lengths,
            regions=[len(reported.get(place, ())) for place in range(len(records))],
            viral_bases=bases,
            **calls._asdict(),
        )
        self._files["contigs"].write(lines.encode(), len(records))
        self._statuses.update(calls.status)
        self._calls.update(calls.call)
        for call, length in zip(calls.call, lengths, strict=True):
            self._bases[call] += length
        for place in sorted({*np.flatnonzero(is_virus).tolist(), *reported}):
            record, name = records[place], block.names[place]
            if place in reported:
                with_sequences = not is_virus[place]
                self._add_regions(record, name, reported[place], with_sequences=with_sequences)
            if is_virus[place]:
                self._add_virus(record, name, lengths[place], calls, place)

    def _add_regions(
        self, record: Record, name: str, regions: Sequence[Region], *, with_sequences: bool
    ) -> None:
        contig = gff3_escaped(name)
        self._files["gff3"].write(f"##sequence-region {contig} 1 {len(record.sequence)}\n".encode())
        kinds = virus_kinds().of([windows([record.sequence[r.start : r.stop]]) for r in regions])
        genes = [self.genes.get((name, (r.start, r.stop))) for r in regions]
        for region, kind, found in zip(regions, kinds, genes, strict=True):
            start, stop = region.start, region.stop
            own_id = region_id(name, start, stop)
            columns = gene_columns(found)
            hallmarks = None if found is None else len(found.functions("hallmark"))
            tier = region_tier(region.score, stop - start, region.fdr, hallmarks)
            values = region._asdict() | {"start": start + 1, "end": stop, "length": stop - start}
            values |= {"region": own_id, "record": name, "virus_kind": kind.virus_kind}
            values |= {"tier": tier, **columns}
            del values["stop"], values["in_host"]
            self._add_region(REGIONS.line(**values), name, start, tier)
            if with_sequences:
                self._add_sequence(record, own_id, start, stop)
            self._counts["region_bases"] += stop - start
            self._region_tiers[tier] += 1
        if with_sequences:
            self._add_genes(name, len(record.sequence), genes)
        self._counts["regions"] += len(regions)
        self._counts["with_regions"] += with_sequences

    def _add_region(self, line: str, name: str, start: int, tier: str) -> None:
        """Write a region to the table, and as BED and GFF3."""
        self._files["regions"].write(line.encode(), 1)
        cells = dict(zip(REGIONS.row._fields, line.rstrip("\n").split("\t"), strict=True))
        # BED counts from 0, and knows no escapes: only a ``#`` at the beginning would make the
        # line a comment.
        chromosome = re.sub("^#", "%23", name)
        bed = chromosome, start, cells["end"], cells["region"], BED_SCORES[tier], "."
        self._files["bed"].write(("\t".join(map(str, bed)) + "\n").encode(), 1)
        known = [attribute for attribute in GFF3_ATTRIBUTES if cells[attribute] != MISSING]
        texts = (f"{attribute}={cells[attribute].lower()}" for attribute in known)
        attributes = ";".join((f"ID={gff3_escaped(cells['region'])}", *texts))
        place = gff3_escaped(cells["record"]), "virnucpro", SEQUENCE_ONTOLOGY_TYPE
        more = *(cells[column] for column in ("start", "end", "score")), ".", ".", attributes
        self._files["gff3"].write(("\t".join((*place, *more)) + "\n").encode(), 1)

    def _add_genes(
        self, name: str, length: int, genes: Sequence[Genes | None], *, circular: bool = False
    ) -> None:
        """Have the genes of a record, or of its regions, written where they were looked for."""
        if known := [found for found in genes if found]:
            self.described.append((name, length, circular, known))

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
            "error_rate": calls.error_rate[place],
            "tier": tier,
            "chunks_scored": chunks_scored,
            "coverage": coverage,
            "evidence": basis_of(chunks_scored, coverage),
            "topology": shape,
            **gene_columns(genes),
        }
        self._waiting.append((values, windows(record.sequences)))
        self._waiting_bases += length
        if len(self._waiting) == RECORDS_AT_A_TIME or self._waiting_bases >= MOST_BASES_AT_A_TIME:
            self._add_waiting()
        self._add_genes(name, length, [genes], circular=shape == "DTR")
        self._ranks.extend((-TIERS.index(tier or "low"), -(score or 0.0), -length))
        self._tiers[tier or "low"] += 1
        hallmarked = bool(genes and genes.functions("hallmark"))
        self._counts["hallmarked"] += hallmarked
        self._counts["middling"] += (score or 0.0) <= HIGH_SCORE and not hallmarked
        self._lengths += [length] if genes else []
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
            _write_fasta(self._files["fasta"], headers[place], mate.sequence)
            header = mate.header.replace(mate.id, name, 1)
            if mate.qualities is None:
                _write_fasta(self._files[MATES[place]], header, mate.sequence)
            else:
                file = self._compressed[MATES[place]]
                _write_fastq(file, header, mate.sequence, mate.qualities)

    def _add_waiting(self) -> None:
        """Find the kinds of the records that wait for them, and complete their rows."""
        if not self._waiting:
            return
        rows, own = zip(*self._waiting, strict=True)
        self._waiting, self._waiting_bases = [], 0
        for values, kind in zip(rows, virus_kinds().of(own), strict=True):
            self._ranked.append(VIRUS.line(**values, **kind._asdict()).encode())
            self._counts["unfamiliar"] += kind.unfamiliar == "yes"

    def _add_sequence(
        self, record: Record, name: str, start: int, stop: int, label: str = ""
    ) -> None:
        """Write the bases ``start`` to ``stop`` (0-based, half-open) of a record as ``name``."""
        header = record.header.replace(record.id, name, 1) + label  # renamed, or unchanged
        sequence = record.sequence[start:stop]
        _write_fasta(self._files["fasta"], header, sequence)
        if record.qualities is not None:
            file = self._compressed["reads"]
            _write_fastq(file, header, sequence, record.qualities[start:stop])

    def multiqc_table(self, sample: str) -> bytes:
        """Return the file for MultiQC, with the line of the sample."""
        records, bases = self._calls.total(), self._bases
        share = 100 * bases["virus"] / max(bases.total(), 1)
        counts = self._calls["virus"], f"{share:.4f}", records, self._calls["unscored"]
        name = " ".join(sample.split())  # it may hold tabs
        name = f"_{name}" if name.startswith("#") else name  # or the line would be a comment
        cells = name, *map(str, counts)
        return (MULTIQC_HEAD + "\t".join(cells) + "\n").encode("utf-8", "backslashreplace")

    def finish(
        self, thresholds: Thresholds, model: ContigModel | None, *, calibrated: bool
    ) -> OutputFigures:
        """Write the ranked rows, by tier, score, length and place in the input; count all."""
        ranks = np.array(self._ranks).reshape(-1, 3)
        self._add_waiting()
        for number in np.lexsort(ranks.T[::-1]).tolist():
            self._files["virus"].write(self._ranked[number], 1)
        return OutputFigures(
            statuses=dict(sorted(self._statuses.items())),
            calls=dict(sorted(self._calls.items())),
            tiers=dict(sorted(self._tiers.items())),
            region_tiers=dict(sorted(self._region_tiers.items())),
            chunks=dict(sorted(self._chunk_statuses.items())),
            bases=self._bases.total(),
            **self._counts,
            expected=float(share_with_hallmark(np.array(self._lengths, np.int64)).sum()),
            highest_rate=self._highest_rate,
            thresholds=thresholds,
            calibrated=calibrated,
            contig_model=model,
        )


def _write_fastq(out: GzipFile, header: str, sequence: str, qualities: str) -> None:
    out.write(f"@{header}\n{sequence}\n+\n{qualities}\n".encode())


def _write_fasta(out: OutputWriter, header: str, sequence: str) -> None:
    out.write(f">{header}\n".encode(), 1)
    for start in range(0, len(sequence), BASES_AT_A_TIME):
        block = sequence[start : start + BASES_AT_A_TIME]
        lines = (block[i : i + BASES_PER_LINE] for i in range(0, len(block), BASES_PER_LINE))
        out.write("".join(f"{line}\n" for line in lines).encode())
