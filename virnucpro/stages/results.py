"""The files of results, written record by record in the order of the input."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from gzip import GzipFile
from typing import Any

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
_chunk_line = CHUNKS.row_format(
    "record", "chunk", "start", "end", "status", "frames", "max_score_0", "max_score_1"
)


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

    def __init__(self, files: Sequence[OutputWriter], fastq: Sequence[GzipFile]) -> None:
        """Begin the ``files``, in the order of the outputs of :class:`OutputStage`.

        ``fastq`` compress into the last ones: one file, or one for each of both mates.
        """
        self._chunks, self._contigs, self._virus, self._regions = tables = files[:4]
        self._bed, self._gff3, self._fasta, *self._mates = files[4:]
        self._fastq = fastq
        self._ranked: list[bytes] = []  # rows of STEM_virus.tsv, until all of them are known
        self._ranks = array("d")
        self._statuses: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._chunk_statuses: Counter[str] = Counter()
        names = ("sure", "doubtful", "regions", "with_regions", "more_regions")
        self._counts: dict[str, Any] = dict.fromkeys(names, 0)
        self._highest_rate = 0.0
        for table, writer in zip((CHUNKS, CONTIGS, VIRUS, REGIONS), tables, strict=True):
            writer.write(table.header.encode())
        self._gff3.write(GFF3_HEADER.encode())

    def add(
        self,
        record: Record,
        name: str,
        chunks: Sequence[Chunk],
        call: Call,
        regions: Sequence[Region],
    ) -> None:
        """Write a record, which results call ``name``, with its chunks, call and regions."""
        for id_, start, stop, *cells in chunks:  # coordinates from 1, the last one included
            self._chunks.write(_chunk_line(name, id_, start + 1, stop, *cells).encode(), 1)
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
        contig = gff3_escaped(name)
        self._gff3.write(f"##sequence-region {contig} 1 {len(record.sequence)}\n".encode())
        for region in regions:
            start, stop = region.start, region.stop
            own_id = f"{name}|region_{start + 1}_{stop}"  # its name in all files
            values = region._asdict() | {"start": start + 1, "end": stop, "length": stop - start}
            del values["stop"]
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
            **self._counts,
            highest_rate=self._highest_rate,
            cuts=cuts,
            calibrated=calibrated,
            contig_model=() if model is None else astuple(model),
        )


def _write_fastq(out: GzipFile, header: str, sequence: str, qualities: str) -> None:
    out.write(f"@{header}\n{sequence}\n+\n{qualities}\n".encode())


def _write_fasta(out: OutputWriter, header: str, sequence: str) -> None:
    out.write(f">{header}\n".encode(), 1)
    for start in range(0, len(sequence), BASES_PER_LINE):
        out.write(f"{sequence[start : start + BASES_PER_LINE]}\n".encode())
