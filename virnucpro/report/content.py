"""What a report shows, read from the tables of a run in one pass."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.events import Emit, Progressed
from virnucpro.results import PredictionRun
from virnucpro.settings import Cuts
from virnucpro.stages.calls import LITTLE
from virnucpro.tables import ContigRow, RegionRow

CALLS = ("virus", "undecided", "nonvirus", "unscored")
MOST_ROWS = 5000  # of the table
MOST_OTHER_ROWS = 400  # of these, for each call that is not virus
MOST_REGION_ROWS = 1000  # of these, where more viruses were found than there are rows
MOST_TRACKS = 30
ROWS_PER_EVENT = 10_000  # read in about a tenth of a second
FEWEST_CHUNKS = 3  # of a record with a track; fewer say no more than its score


@dataclass(frozen=True)
class TableRow:
    """A row of the report's table: a record, or a viral region.

    ``kind`` is ``region`` or the call of the record, and ``remark`` what else is to say.
    """

    id: str
    kind: str
    length: int
    score: float | None
    fdr: float | None
    tier: str | None
    chunks_scored: int
    coverage: float | None
    remark: str


@dataclass
class Tally:
    """Records and bases of one kind."""

    records: int = 0
    bases: int = 0

    def add(self, bases: int) -> None:
        """Count one record."""
        self.records += 1
        self.bases += bases


@dataclass
class Columns:
    """What the figures need of every record, as arrays of the same length.

    ``scores`` and ``rates`` are float64 and NaN where there is none, ``lengths`` int64 in bases,
    ``calls`` int8, the place in ``CALLS``, and ``weak`` int8, 1 where the score rests on one
    chunk or on less than a quarter of the bases.
    """

    scores: array[float] = field(default_factory=lambda: array("d"))
    rates: array[float] = field(default_factory=lambda: array("d"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    calls: array[int] = field(default_factory=lambda: array("b"))
    weak: array[int] = field(default_factory=lambda: array("b"))

    def add(self, row: ContigRow) -> None:
        """Append a record."""
        nan = float("nan")
        self.scores.append(nan if row.virus_score is None else row.virus_score)
        self.rates.append(nan if row.fdr is None else row.fdr)
        self.lengths.append(row.length)
        self.calls.append(CALLS.index(row.call))
        self.weak.append(row.chunks_scored == 1 or row.coverage < LITTLE)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns by their names, without copying them."""
        return {name: np.asarray(column) for name, column in vars(self).items()}


@dataclass
class Content:
    """Everything that a report shows of its tables.

    Attributes:
        run: the run.
        cuts: what a record needed to be called virus.
        chunk_length: bases per chunk.
        tallies: records and bases by call.
        hosts: records that hold regions and are not called virus, and the bases of these regions.
        hosts_by_call: these records by call.
        sure: records called virus of the tier ``high``.
        highest_rate: the highest false discovery rate of a record called virus.
        regions: all regions of the run.
        calibrated: whether there are false discovery rates; None where nothing was scored.
        short: records of less than half a chunk.
        columns: the figures of every record.
        rows: the rows of the table: viruses, regions, then the other calls.
        tracked: the records that get a track, in the order of the page.
        region_rows: the regions of these records, by record.
    """

    run: PredictionRun
    cuts: Cuts
    chunk_length: int
    tallies: dict[str, Tally] = field(default_factory=lambda: {call: Tally() for call in CALLS})
    hosts: Tally = field(default_factory=Tally)
    hosts_by_call: dict[str, int] = field(default_factory=dict)
    sure: int = 0
    highest_rate: float = 0.0
    regions: int = 0
    calibrated: bool | None = None
    short: int = 0
    columns: Columns = field(default_factory=Columns)
    rows: list[TableRow] = field(default_factory=list)
    tracked: list[ContigRow] = field(default_factory=list)
    region_rows: dict[str, list[RegionRow]] = field(default_factory=dict)

    @property
    def noun(self) -> str:
        """What a record of the input is: ``record``, or ``pair`` of reads."""
        files = self.run.record["input"]
        return "pair" if "mates" in files or "interleaved" in files else "record"

    @property
    def records(self) -> int:
        """All records of the input."""
        return sum(tally.records for tally in self.tallies.values())

    @property
    def bases(self) -> int:
        """All bases of the input."""
        return sum(tally.bases for tally in self.tallies.values())

    @property
    def scored(self) -> int:
        """Records with a score."""
        return self.records - self.tallies["unscored"].records


class Best:
    """The rows with the highest keys, however many are offered; of equal ones the first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[tuple[float, ...], ContigRow]] = []
        self._offered = 0

    def offer(self, key: tuple[float, ...], row: ContigRow) -> None:
        """Keep ``row`` if it belongs to the best."""
        self._offered += 1
        item = ((*key, -self._offered), row)  # the number makes keys unique
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, item)
        elif item[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, item)

    def rows(self) -> list[ContigRow]:
        """Return the kept rows, the best first."""
        return [row for _, row in sorted(self._heap, key=lambda item: item[0], reverse=True)]


def read_content(run: PredictionRun, emit: Emit) -> Content:
    """Read the tables of a run.

    Raises:
        InputError: a table is missing, damaged, or was written by an earlier version.
    """
    try:
        settings = run.record["settings"]
        content = Content(
            run, Cuts(**settings.get("cuts", {})), int(settings["analysis"]["chunk_length"])
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{run.folder / run.stem}_run.json was changed: the same command writes it again"
        ) from error
    tracked = Best(MOST_TRACKS)
    others = {call: Best(MOST_OTHER_ROWS) for call in CALLS if call != "virus"}
    for row in run.contigs():
        if row.call not in CALLS:
            raise InputError(
                f"{run.contigs().path} was changed: {row.call!r} is not a call; the command that "
                f"made it restores it"
            )
        _count(content, row)
        content.columns.add(row)
        if row.chunks >= FEWEST_CHUNKS:
            tracked.offer((row.regions > 0, row.length), row)
        if row.call != "virus":
            key = (row.virus_score or 0.0,) if row.call == "undecided" else ()
            others[row.call].offer((*key, row.length), row)
        if len(content.columns.calls) % ROWS_PER_EVENT == 0:
            emit(Progressed(0, ROWS_PER_EVENT, 0))
    emit(Progressed(0, content.records % ROWS_PER_EVENT, 0))
    content.tracked = tracked.rows()
    content.rows = list(_table_rows(content, [row for o in others.values() for row in o.rows()]))
    names = {row.record for row in content.tracked if row.regions}
    for region in run.regions() if names else ():
        if region.record in names:
            content.region_rows.setdefault(region.record, []).append(region)
    return content


def _count(content: Content, row: ContigRow) -> None:
    content.tallies[row.call].add(row.length)
    content.regions += row.regions
    content.short += 2 * row.length < content.chunk_length
    if row.regions and row.call != "virus":
        content.hosts.add(row.viral_bases)
        content.hosts_by_call[row.call] = content.hosts_by_call.get(row.call, 0) + 1
    if row.call == "virus":
        content.sure += row.tier == "high"
        content.highest_rate = max(content.highest_rate, row.fdr or 0.0)
    if row.virus_score is not None:
        content.calibrated = bool(content.calibrated) or row.fdr is not None


def _table_rows(content: Content, others: Sequence[ContigRow]) -> Iterator[TableRow]:
    """Yield at most ``MOST_ROWS`` rows: viruses, regions, and ``others``."""
    viruses = content.tallies["virus"].records
    room = MOST_ROWS - len(others)
    regions = min(content.regions, max(MOST_REGION_ROWS, room - viruses))
    for virus in islice(content.run.virus(), room - regions):
        yield TableRow(
            virus.record,
            "virus",
            virus.length,
            virus.score,
            virus.fdr,
            virus.tier,
            virus.chunks_scored,
            virus.coverage,
            "" if virus.evidence == "ok" else virus.evidence,
        )
    for region in islice(content.run.regions(), regions):
        yield _region_row(region)
    for row in others:
        yield TableRow(
            row.record,
            row.call,
            row.length,
            row.virus_score,
            row.fdr,
            row.tier,
            row.chunks_scored,
            row.coverage,
            _remark(row),
        )


def _region_row(region: RegionRow) -> TableRow:
    remarks = [f"bases {region.start:,} to {region.end:,}"]
    if region.flank_score is not None:
        remarks.append(f"flanks {region.flank_score:.2f}")
    if region.at_edge:
        remarks.append("reaches the end of the record")
    return TableRow(
        region.region,
        "region",
        region.length,
        region.score,
        None,
        None,
        region.chunks_scored,
        region.chunks_scored / region.chunks,
        "; ".join(remarks),
    )


def _remark(row: ContigRow) -> str:
    if row.call == "unscored":
        return row.status.replace("_", " ")
    if row.regions:
        return f"viral regions: {row.regions:,}"
    if row.chunks_scored == 1:
        return "one chunk"
    return "little scored" if row.coverage < LITTLE else ""
