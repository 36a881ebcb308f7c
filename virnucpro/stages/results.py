"""The files of results, written record by record in the order of the input."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from gzip import GzipFile

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.columns import GFF3_HEADER, gff3_escaped
from virnucpro.contracts import Json, TaskFigures
from virnucpro.io.pairs import mate_headers
from virnucpro.io.records import Record
from virnucpro.settings import DOUBTFUL, Cuts
from virnucpro.stages.calls import Call, Chunk
from virnucpro.stages.regions import Region
from virnucpro.store.disk import OutputWriter
from virnucpro.tables import CHUNKS, CONTIGS, REGIONS, VIRUS

BASES_PER_LINE = 80  # of FASTA for people, as NCBI writes it
# SO:0001041, the sequence of a virus: a region may be a provirus, or a viral part of a chimera.
SEQUENCE_ONTOLOGY_TYPE = "viral_sequence"
LINES_AT_A_TIME = 8192  # of a FASTA file are written together


@dataclass(frozen=True, kw_only=True)
class OutputFigures(TaskFigures):
    """What the results hold, and what they were made with."""

    statuses: Mapping[str, int]  # records by status
    calls: Mapping[str, int]  # records by call
    chunks: Mapping[str, int]  # chunks by status
    sure: int  # records called virus of the tier ``high``
    doubtful: int  # records called virus with a false discovery rate above ``DOUBTFUL``
    regions: int  # viral regions in all records
    with_regions: int  # records that are not called virus and hold viral regions
    more_regions: int  # viral regions in these
    highest_rate: float  # of a record called virus; 0 where there is none
    cuts: Cuts  # what a record needed to be called virus
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
        "regions": figures.regions,
        "records_with_regions_not_called_virus": figures.with_regions,
        "chunks": dict(figures.chunks),
    }


class ResultFiles:
    """Writes all files of results, and counts what they hold."""

    def __init__(
        self,
        tables: Sequence[OutputWriter],
        bed: OutputWriter,
        gff3: OutputWriter,
        fasta: OutputWriter,
        *,
        fastq: Sequence[GzipFile] = (),
        mates: Sequence[OutputWriter] = (),
    ) -> None:
        """Begin the files. The ``tables`` are those of chunks, contigs, virus and regions.

        ``fastq`` are for records with qualities: one file, or one for each of both mates. ``mates``
        are the same two for pairs without qualities.
        """
        self._chunks, self._contigs, self._virus, self._regions = tables
        self._bed, self._gff3, self._fasta = bed, gff3, fasta
        self._fastq, self._mates = fastq, mates
        self._ranked: list[bytes] = []  # rows of STEM_virus.tsv, until all of them are known
        self._ranks = array("d")
        self._statuses: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._chunk_statuses: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._highest_rate = 0.0
        for table, writer in zip((CHUNKS, CONTIGS, VIRUS, REGIONS), tables, strict=True):
            writer.write(table.header.encode())
        gff3.write(GFF3_HEADER.encode())

    def add(
        self,
        record: Record,
        name: str,
        chunks: Sequence[Chunk],
        call: Call,
        regions: Sequence[Region],
    ) -> None:
        """Write a record, which results call ``name``, with its chunks, call and regions."""
        self._chunks.write("".join([chunk.row(name) for chunk in chunks]).encode(), len(chunks))
        length, is_virus = sum(record.lengths), call.call == "virus"
        in_regions = sum(region.stop - region.start for region in regions)
        line = CONTIGS.line(
            record=name,
            length=length,
            regions=len(regions),
            viral_bases=in_regions or (length if is_virus else 0),
            **call._asdict(),
        )
        self._contigs.write(line.encode(), 1)
        self._statuses[call.status] += 1
        self._calls[call.call] += 1
        for chunk in chunks:
            self._chunk_statuses[chunk.status] += 1
        if regions:
            self._add_regions(record, name, regions, with_sequences=not is_virus)
        if is_virus:
            self._add_virus(record, name, length, call)

    def _add_regions(
        self, record: Record, name: str, regions: Sequence[Region], *, with_sequences: bool
    ) -> None:
        for region in regions:
            self._regions.write(table_row(name, region).encode(), 1)
            self._bed.write(bed_row(name, region).encode(), 1)
            if with_sequences:
                self._add_sequence(record, region_id(name, region), region.start, region.stop)
        self._gff3.write(gff3_rows(name, len(record.sequence), regions).encode(), len(regions))
        self._counts["regions"] += len(regions)
        self._counts["with_regions"] += with_sequences
        self._counts["more_regions"] += len(regions) * with_sequences

    def _add_virus(self, record: Record, name: str, length: int, call: Call) -> None:
        row = VIRUS.line(
            record=name,
            length=length,
            score=call.virus_score,
            fdr=call.fdr,
            tier=call.tier,
            chunks_scored=call.chunks_scored,
            coverage=call.coverage,
            evidence=call.evidence,
        )
        self._ranked.append(row.encode())
        self._ranks.extend((call.tier != "high", -(call.virus_score or 0.0), -length))
        self._counts["sure"] += call.tier == "high"
        if call.fdr is not None:
            self._counts["doubtful"] += call.fdr > DOUBTFUL
            self._highest_rate = max(self._highest_rate, call.fdr)
        if record.mate is None:
            self._add_sequence(record, name, 0, length)
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

    def _add_sequence(self, record: Record, name: str, start: int, stop: int) -> None:
        """Write the bases ``start`` to ``stop`` (0-based, half-open) of a record as ``name``."""
        header = record.header.replace(record.id, name, 1)  # renamed, or unchanged
        sequence = record.sequence[start:stop]
        _write_fasta(self._fasta, header, sequence)
        if record.qualities is not None:
            _write_fastq(self._fastq[0], header, sequence, record.qualities[start:stop])

    def finish(self, cuts: Cuts, model: ContigModel | None, *, calibrated: bool) -> OutputFigures:
        """Write the ranked rows, by tier, score, length and place in the input; count all."""
        ranks = np.array(self._ranks).reshape(-1, 3)
        for number in np.lexsort(ranks.T[::-1]).tolist():
            self._virus.write(self._ranked[number], 1)
        return OutputFigures(
            statuses=dict(sorted(self._statuses.items())),
            calls=dict(sorted(self._calls.items())),
            chunks=dict(sorted(self._chunk_statuses.items())),
            sure=self._counts["sure"],
            doubtful=self._counts["doubtful"],
            regions=self._counts["regions"],
            with_regions=self._counts["with_regions"],
            more_regions=self._counts["more_regions"],
            highest_rate=self._highest_rate,
            cuts=cuts,
            calibrated=calibrated,
            contig_model=() if model is None else astuple(model),
        )


def _write_fastq(out: GzipFile, header: str, sequence: str, qualities: str) -> None:
    out.write(f"@{header}\n{sequence}\n+\n{qualities}\n".encode())


def _write_fasta(out: OutputWriter, header: str, sequence: str) -> None:
    out.write(f">{header}\n".encode(), 1)
    for start in range(0, len(sequence), BASES_PER_LINE * LINES_AT_A_TIME):
        block = sequence[start : start + BASES_PER_LINE * LINES_AT_A_TIME]
        lines = (block[i : i + BASES_PER_LINE] for i in range(0, len(block), BASES_PER_LINE))
        out.write("".join(f"{line}\n" for line in lines).encode())


# --- viral regions as rows of a table, of a BED file and of a GFF3 file


def region_id(record: str, region: Region) -> str:
    """Return the id of a region, which is its name in all files."""
    return f"{record}|region_{region.start + 1}_{region.stop}"


def table_row(record: str, region: Region) -> str:
    """Return the line of ``STEM_regions.tsv``."""
    return REGIONS.line(
        region=region_id(record, region),
        record=record,
        start=region.start + 1,
        end=region.stop,
        length=region.stop - region.start,
        chunks=region.chunks,
        chunks_scored=region.chunks_scored,
        score=region.score,
        flank_score=region.flank_score,
        at_edge=region.at_edge,
    )


def bed_row(record: str, region: Region) -> str:
    """Return the line of ``STEM_regions.bed``; the score is 1000 times the probability of virus.

    BED knows no escapes. Only a ``#`` at the beginning of the line would make it a comment.
    """
    score = min(1000, max(0, round(500 * (1 + region.score))))
    chromosome = record.replace("#", "%23", 1) if record.startswith("#") else record
    cells = (chromosome, region.start, region.stop, region_id(record, region), score, ".")
    return "\t".join(map(str, cells)) + "\n"


def gff3_rows(record: str, length: int, regions: Sequence[Region]) -> str:
    """Return the lines of ``STEM_regions.gff3`` for a record of ``length`` bases."""
    if not regions:
        return ""
    name = gff3_escaped(record)
    lines = [f"##sequence-region {name} 1 {length}"]
    for region in regions:
        attributes = {
            "ID": gff3_escaped(region_id(record, region)),
            "chunks": str(region.chunks),
            "chunks_scored": str(region.chunks_scored),
            "at_edge": "true" if region.at_edge else "false",
        }
        if region.flank_score is not None:
            attributes["flank_score"] = f"{region.flank_score:.6f}"
        place = f"{name}\tvirnucpro\t{SEQUENCE_ONTOLOGY_TYPE}\t{region.start + 1}\t{region.stop}"
        text = ";".join(f"{key}={value}" for key, value in attributes.items())
        lines.append(f"{place}\t{region.score:.6f}\t.\t.\t{text}")
    return "\n".join([*lines, ""])
