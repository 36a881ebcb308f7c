"""The files of results, written record by record in the order of the input."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from gzip import GzipFile

import numpy as np

from virnucpro.contracts import Json, TaskFigures
from virnucpro.io.gff3 import HEADER as GFF3_HEADER
from virnucpro.io.pairs import mate_headers
from virnucpro.io.records import Record
from virnucpro.settings import DOUBTFUL, Cuts
from virnucpro.stages.calls import Call, Chunk
from virnucpro.stages.region_files import bed_row, gff3_rows, region_id, table_row
from virnucpro.stages.regions import Region
from virnucpro.store.disk import OutputWriter
from virnucpro.tables import CHUNKS, CONTIGS, REGIONS, VIRUS

ROWS_AT_A_TIME = 8192  # of a table, or lines of a FASTA file, are written together
BASES_PER_LINE = 80  # of FASTA for people, as NCBI writes it


@dataclass(frozen=True, kw_only=True)
class OutputFigures(TaskFigures):
    """What the results hold, and what they were made with.

    Attributes:
        statuses: records by status.
        calls: records by call.
        chunks: chunks by status.
        sure: records called virus of the tier ``high``.
        doubtful: records called virus with a false discovery rate above ``DOUBTFUL``.
        regions: viral regions in all records.
        with_regions: records that are not called virus and hold viral regions.
        more_regions: viral regions in these.
        highest_rate: the highest rate of a record called virus; 0 where there is none.
        cuts: what a record needed to be called virus.
        calibrated: whether the scores of the classifier are calibrated.
        contig_model: the coefficients of the contig model; empty for none.
    """

    statuses: Mapping[str, int]
    calls: Mapping[str, int]
    chunks: Mapping[str, int]
    sure: int
    doubtful: int
    regions: int
    with_regions: int
    more_regions: int
    highest_rate: float
    cuts: Cuts
    calibrated: bool
    contig_model: tuple[float, ...]

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


class GatheredRows:
    """Rows on their way to a table, where many are written together."""

    def __init__(self, table: OutputWriter) -> None:
        self._table = table
        self._rows: list[str] = []

    def add(self, *rows: str) -> None:
        """Add rows behind the others."""
        self._rows += rows
        if len(self._rows) >= ROWS_AT_A_TIME:
            self.flush()

    def flush(self) -> None:
        """Write what was added."""
        self._table.write("".join(self._rows).encode(), len(self._rows))
        self._rows.clear()


class RankedRows:
    """The rows of ``STEM_virus.tsv`` until all of them are known and can be put in order."""

    def __init__(self) -> None:
        self._text = bytearray()  # one object: a million rows as strings would take three times it
        self._ends = array("q")
        self._low = array("b")
        self._scores = array("d")
        self._lengths = array("q")

    def add(self, name: str, length: int, call: Call) -> None:
        """Keep the row of a record that is called virus."""
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
        self._text += row.encode()
        self._ends.append(len(self._text))
        self._low.append(call.tier != "high")
        self._scores.append(call.virus_score or 0.0)
        self._lengths.append(length)

    def write(self, table: OutputWriter) -> None:
        """Write all rows: by tier, score and length, then in the order of the input."""
        table.write(VIRUS.header.encode())
        order = np.lexsort((-np.array(self._lengths), -np.array(self._scores), np.array(self._low)))
        for number in order.tolist():
            start = self._ends[number - 1] if number else 0
            table.write(self._text[start : self._ends[number]], 1)


class ResultFiles:
    """Writes all files of results, and counts what they hold.

    Attributes:
        statuses: records by status.
        calls: records by call.
        chunk_statuses: chunks by status.
        counts: the other counts of :class:`OutputFigures`.
        highest_rate: see there.
    """

    def __init__(
        self,
        chunks: OutputWriter,
        contigs: OutputWriter,
        virus: OutputWriter,
        regions: OutputWriter,
        bed: OutputWriter,
        gff3: OutputWriter,
        fasta: OutputWriter,
        *,
        fastq: Sequence[GzipFile] = (),
        mates: Sequence[OutputWriter] = (),
    ) -> None:
        """Begin the files.

        ``fastq`` are for records with qualities: one file, or one for each of both mates. ``mates``
        are the same two for pairs without qualities.
        """
        self._chunks, self._contigs = GatheredRows(chunks), GatheredRows(contigs)
        self._virus = virus
        self._fasta, self._fastq, self._mates = fasta, fastq, mates
        self._regions, self._bed, self._gff3 = regions, bed, gff3
        self._ranked = RankedRows()
        self.statuses: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.chunk_statuses: Counter[str] = Counter()
        names = ("sure", "doubtful", "regions", "with_regions", "more_regions")
        self.counts = dict.fromkeys(names, 0)
        self.highest_rate = 0.0
        chunks.write(CHUNKS.header.encode())
        contigs.write(CONTIGS.header.encode())
        regions.write(REGIONS.header.encode())
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
        for start in range(0, len(chunks), ROWS_AT_A_TIME):
            self._chunks.add(*(c.row(name) for c in chunks[start : start + ROWS_AT_A_TIME]))
        length = sum(record.lengths)
        line = CONTIGS.line(
            record=name,
            length=length,
            regions=len(regions),
            viral_bases=_viral_bases(length, call, regions),
            **call._asdict(),
        )
        self._contigs.add(line)
        self.statuses[call.status] += 1
        self.calls[call.call] += 1
        for chunk in chunks:
            self.chunk_statuses[chunk.status] += 1
        if regions:
            self._add_regions(record, name, call, regions)
        if call.call == "virus":
            self._ranked.add(name, length, call)
            self.counts["sure"] += call.tier == "high"
            if call.fdr is not None:
                self.counts["doubtful"] += call.fdr > DOUBTFUL
                self.highest_rate = max(self.highest_rate, call.fdr)
            if record.mate is not None:
                self._add_pair(record, record.mate, name)
            else:
                self._add_sequence(record, name, 0, length)

    def _add_regions(
        self, record: Record, name: str, call: Call, regions: Sequence[Region]
    ) -> None:
        for region in regions:
            self._regions.write(table_row(name, region).encode(), 1)
            self._bed.write(bed_row(name, region).encode(), 1)
            if call.call != "virus":
                self._add_sequence(record, region_id(name, region), region.start, region.stop)
        self._gff3.write(gff3_rows(name, len(record.sequence), regions).encode(), len(regions))
        self.counts["regions"] += len(regions)
        if call.call != "virus":
            self.counts["with_regions"] += 1
            self.counts["more_regions"] += len(regions)

    def _add_sequence(self, record: Record, name: str, start: int, stop: int) -> None:
        """Write the bases ``start`` to ``stop`` (0-based, half-open) of a record as ``name``."""
        header = record.header.replace(record.id, name, 1)  # renamed, or unchanged
        sequence = record.sequence[start:stop]
        _write_fasta(self._fasta, header, sequence)
        if record.qualities is not None:
            _write_fastq(self._fastq[0], header, sequence, record.qualities[start:stop])

    def _add_pair(self, first: Record, second: Record, name: str) -> None:
        """Write both mates as ``name/1`` and ``name/2``, and each with its header to its file."""
        headers = mate_headers(first, name)
        for place, mate in enumerate((first, second)):
            _write_fasta(self._fasta, headers[place], mate.sequence)
            header = mate.header.replace(mate.id, name, 1)
            if mate.qualities is None:
                _write_fasta(self._mates[place], header, mate.sequence)
            else:
                _write_fastq(self._fastq[place], header, mate.sequence, mate.qualities)

    def finish(self) -> None:
        """Write what could not be written before all records were known."""
        self._chunks.flush()
        self._contigs.flush()
        self._ranked.write(self._virus)


def _viral_bases(length: int, call: Call, regions: Sequence[Region]) -> int:
    """Return the bases in regions, or all of a record that is virus as a whole."""
    if regions:
        return sum(region.stop - region.start for region in regions)
    return length if call.call == "virus" else 0


def _write_fastq(out: GzipFile, header: str, sequence: str, qualities: str) -> None:
    out.write(f"@{header}\n{sequence}\n+\n{qualities}\n".encode())


def _write_fasta(out: OutputWriter, header: str, sequence: str) -> None:
    out.write(f">{header}\n".encode(), 1)
    for start in range(0, len(sequence), BASES_PER_LINE * ROWS_AT_A_TIME):
        block = sequence[start : start + BASES_PER_LINE * ROWS_AT_A_TIME]
        lines = (block[i : i + BASES_PER_LINE] for i in range(0, len(block), BASES_PER_LINE))
        out.write("".join(f"{line}\n" for line in lines).encode())
