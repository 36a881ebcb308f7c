"""What a report shows, read from the tables of a run, some thousand rows at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import convert

from virnucpro.results import PredictionRun
from virnucpro.settings import Thresholds
from virnucpro.stages.calls import LITTLE, TIERS
from virnucpro.tables import ContigRow, RegionRow, VirusRow

CALLS = ("virus", "undecided", "nonvirus", "unscored")
MOST_OTHER_ROWS = 400  # of the table, for each call that is not virus
MOST_TRACKS = 30
MOST_OTHER_TRACKS = 5  # of records that are neither classified as viral nor hold regions
FEWEST_CHUNKS = 3  # of a record with a track; fewer say no more than its score
MOST_ROWS = 5000
MOST_REGION_ROWS = 1000  # of these, where more viruses were found than there are rows
# The columns of the table, with what they mean; one that is empty in all rows is not on the page.
# The kind of a row is a call, or ``region``.
HEADS = {
    "id": "the first word of the header, or the id of a viral region",
    "kind": "what the record is classified as; a region is the viral part of a record",
    "length": "in bases",
    "score": "from -1 (not viral) to 1 (viral)",
    "fdr": "estimated share of errors among this record and all more certain ones; it is large "
    "beside a high score where many records that are not viral score as high, as short reads do",
    "tier": "high, medium or low: how certain the call is, by fdr where it is known, and by score",
    "start": "of a region, its first base in the record, counted from 1",
    "end": "of a region, its last base in the record",
    "virus_kind": "phage or eukaryotic virus, as far as it is sure",
    "hallmarks": "genes that are hallmarks of viruses: how many, and what they are",
    "host_markers": "genes of hosts that viruses nearly never have, likewise",
    "virus_markers": "genes of families without a name that many phages and no hosts have",
    "genes": "all genes of a virus or region",
    "share_scored": "the part of the record with a score, from 0 to 1",
    "remark": "terminal repeats, what is beside a region, what weakens a call",
}
# What is kept of every record: the place of its call in CALLS, whether the score rests on
# one chunk or on less than a quarter of the bases, score and rate (NaN for none), bases, whether it
# has enough chunks for a track, viral regions and their bases, and the place of its tier in TIERS.
NUMBERS = [("call", "i1"), ("weak", "?"), ("score", "f8"), ("fdr", "f8"), ("length", "i8")]
NUMBERS += [("long", "?"), ("regions", "i4"), ("viral_bases", "i8"), ("tier", "i1")]


@dataclass
class Content:
    """Everything that a report shows of the table of records.

    ``counts`` are the ``regions`` and their bases, the records not classified as viral that hold
    regions (``hosts``), and the bases of the regions in these.
    """

    run: PredictionRun
    thresholds: Thresholds
    chunk_length: int
    numbers: npt.NDArray[Any]  # a row per record, with the fields of NUMBERS
    counts: Counter[str]
    tracked: list[ContigRow]  # the records that get a track, in the order of the page
    others: list[ContigRow]  # not classified as viral, with a row in the table
    noun: str  # what a record of the input is: ``record``, or ``pair`` of reads
    records: int  # of the input
    bases: int  # of the input
    scored: int  # records with a score
    calibrated: bool  # whether the classifier is

    @cached_property
    def tallies(self) -> dict[str, tuple[int, int]]:
        """Records and bases by call, and of records with regions not classified as viral."""
        tallies = {"region": (self.counts["hosts"], self.counts["host_bases"])}
        for call in CALLS:
            lengths = self.of_call(call)["length"]
            tallies[call] = (len(lengths), int(lengths.sum()))
        return tallies

    def of_call(self, call: str) -> npt.NDArray[Any]:
        """Return the rows of ``numbers`` of one call."""
        rows: npt.NDArray[Any] = self.numbers[self.numbers["call"] == CALLS.index(call)]
        return rows


def read_content(run: PredictionRun) -> Content:
    """Read the table of records of a run; LookupError and so on where it was changed."""
    settings = run.record["settings"]
    chunk_length = int(settings["analysis"]["chunk_length"])
    blocks = (_numbers_of(columns) for columns in run.contigs().columns())
    numbers = np.concatenate([np.empty(0, NUMBERS), *blocks])
    is_viral, has_regions = numbers["call"] == CALLS.index("virus"), numbers["regions"] > 0
    hosts = numbers[has_regions & ~is_viral]
    counts = Counter(
        regions=int(numbers["regions"].sum()),
        region_bases=int(numbers["viral_bases"][has_regions].sum()),
        hosts=len(hosts),
        host_bases=int(hosts["viral_bases"].sum()),
    )
    certainty = [np.where(is_viral, -numbers[name], 0) for name in ("score", "tier")]
    order = np.lexsort((-numbers["length"], *certainty, ~is_viral, ~has_regions))
    tracked = order[numbers["long"][order]][:MOST_TRACKS]
    viral = int((is_viral | has_regions)[tracked].sum())
    tracked = tracked[: viral + MOST_OTHER_TRACKS]
    others = list[int]()
    for call in CALLS[1:]:
        score = np.zeros(len(numbers))
        if call == "undecided":
            score = np.nan_to_num(numbers["score"])
        order = np.lexsort((-numbers["length"], -score))
        others += order[numbers["call"][order] == CALLS.index(call)][:MOST_OTHER_ROWS].tolist()
    rows = _rows_at(run, [*tracked.tolist(), *others])
    return Content(
        run,
        Thresholds(**settings["thresholds"]),
        chunk_length,
        numbers,
        counts,
        rows[: len(tracked)],
        rows[len(tracked) :],
        noun="pair" if run.paired else "record",
        records=len(numbers),
        bases=int(numbers["length"].sum()),
        scored=int((numbers["call"] != CALLS.index("unscored")).sum()),
        calibrated=bool(run.record["models"]["classifier"]["calibrated"]),
    )


def _numbers_of(columns: Sequence[Sequence[str | None]]) -> npt.NDArray[Any]:
    """Return the numbers of some records from their columns in the table."""
    cells: dict[str, Any] = dict(zip(ContigRow._fields, columns, strict=True))
    numbers = np.empty(len(columns[0]), NUMBERS)
    for name in ("length", "regions", "viral_bases"):
        numbers[name] = list(map(int, cells[name]))
    chunks, scored = (np.array(list(map(int, cells[n]))) for n in ("chunks", "chunks_scored"))
    numbers["score"], numbers["fdr"] = (np.array(cells[n], float) for n in ("virus_score", "fdr"))
    numbers["call"] = list(map(CALLS.index, cells["call"]))
    numbers["weak"] = (scored == 1) | (np.array(cells["coverage"], float) < LITTLE)
    numbers["tier"] = [-1 if tier is None else TIERS.index(tier) for tier in cells["tier"]]
    numbers["long"] = chunks >= FEWEST_CHUNKS
    return numbers


def _rows_at(run: PredictionRun, places: Sequence[int]) -> list[ContigRow]:
    """Return the records at these places of the table, in their order."""
    found, wanted, start = dict[int, list[str | None]](), sorted(places), 0
    for columns in run.contigs().columns():
        stop = start + len(columns[0])
        for place in wanted[bisect_left(wanted, start) : bisect_left(wanted, stop)]:
            found[place] = [column[place - start] for column in columns]
        start = stop
    return convert([found[place] for place in places], list[ContigRow], strict=False)


def table_rows(content: Content) -> list[dict[str, Any]]:
    """Return the rows of the table of the page, by ``HEADS``, with the highest scores first."""
    rows = [dict.fromkeys(HEADS) | row for row in _rows(content)]
    return sorted(rows, key=lambda row: -2 if row["score"] is None else row["score"], reverse=True)


def _rows(content: Content) -> Iterator[dict[str, Any]]:
    """Yield at most ``MOST_ROWS`` rows: viruses, regions, and other records."""
    room = MOST_ROWS - len(content.others)
    free = room - content.tallies["virus"][0]
    regions = min(content.counts["regions"], max(MOST_REGION_ROWS, free))
    for v in islice(content.run.virus(), room - regions):
        strange = "unfamiliar" if v.unfamiliar == "yes" else ""
        facts = strange, v.topology.replace("linear", ""), v.evidence.replace("ok", "")
        yield {
            **_call_and_genes(v, "virus"),
            "id": v.record,
            "share_scored": v.coverage,
            "remark": "; ".join(filter(None, facts)),
        }
    for r in islice(content.run.regions(), regions):
        beside = "" if r.flank_score is None else f"score beside it {r.flank_score:.2f}"
        edge = "reaches the end of the record" if r.at_edge else ""
        yield {
            **_call_and_genes(r, "region"),
            "id": r.region,
            "start": r.start,
            "end": r.end,
            "share_scored": r.chunks_scored / r.chunks,
            "remark": "; ".join(filter(None, (beside, edge))),
        }
    for c in content.others:
        remark = "one chunk" if c.chunks_scored == 1 else "little scored"
        if c.call == "unscored":
            remark = c.status.replace("_", " ")
        elif c.regions:
            remark = f"viral regions: {c.regions:,}"
        elif c.chunks_scored > 1 and c.coverage >= LITTLE:
            remark = ""
        yield {
            "id": c.record,
            "kind": c.call,
            "length": c.length,
            "score": c.virus_score,
            "fdr": c.fdr,
            "tier": c.tier,
            "share_scored": c.coverage,
            "remark": remark,
        }


def _call_and_genes(row: VirusRow | RegionRow, kind: str) -> dict[str, Any]:
    """Return what the table says of the call and of the genes of a virus or a region."""
    names = "length", "score", "fdr", "tier", "virus_kind", "virus_markers", "genes"
    return {
        **{name: getattr(row, name) for name in names},
        "kind": kind,
        "hallmarks": _named(row.hallmarks, row.hallmark_genes),
        "host_markers": _named(row.host_markers, row.host_marker_genes),
    }


def _named(count: int | None, names: str | None) -> str:
    """Return how many genes there are and what they are; empty where none were looked for."""
    words = "" if count is None else f"{count:,}"
    return f"{words}: {names.replace(';', ', ')}" if names else words
