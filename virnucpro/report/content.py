"""What a report shows, read from the table of records in one pass."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.results import PredictionRun
from virnucpro.settings import Thresholds, recorded_thresholds
from virnucpro.stages.calls import LITTLE
from virnucpro.tables import ContigRow

CALLS = ("virus", "undecided", "nonvirus", "unscored")
MOST_OTHER_ROWS = 400  # of the table, for each call that is not virus
MOST_TRACKS = 30
FEWEST_CHUNKS = 3  # of a record with a track; fewer say no more than its score
# What the figures need of every record: the place of its call in CALLS, whether the score rests on
# one chunk or on less than a quarter of the bases, score and rate (NaN for none), and bases.
FIGURES = [("call", "i1"), ("weak", "?"), ("score", "f8"), ("fdr", "f8"), ("length", "i8")]


@dataclass
class Content:
    """Everything that a report shows of the table of records.

    ``counts`` are the records classified as viral of the tier high (``sure``), ``regions`` and
    their bases, and of other records those that hold regions (``hosts``), these, and their bases.
    """

    run: PredictionRun
    thresholds: Thresholds
    chunk_length: int
    figures: npt.NDArray[Any]  # a row per record, with the fields of FIGURES
    counts: Counter[str]
    tracked: list[ContigRow]  # the records that get a track, in the order of the page
    others: list[ContigRow]  # not classified as viral, with a row in the table
    noun: str  # what a record of the input is: ``record``, or ``pair`` of reads
    records: int  # of the input
    bases: int  # of the input
    scored: int  # records with a score
    calibrated: bool  # whether the classifier is
    rated: bool  # whether there are false discovery rates

    @cached_property
    def tallies(self) -> dict[str, tuple[int, int]]:
        """Records and bases by call, and of records with regions not classified as viral."""
        tallies = {"region": (self.counts["hosts"], self.counts["host_bases"])}
        for call in CALLS:
            lengths = self.of_call(call)["length"]
            tallies[call] = (len(lengths), int(lengths.sum()))
        return tallies

    def of_call(self, call: str) -> npt.NDArray[Any]:
        """Return the rows of ``figures`` of one call."""
        rows: npt.NDArray[Any] = self.figures[self.figures["call"] == CALLS.index(call)]
        return rows


Best = list[tuple[tuple[float, ...], ContigRow]]
"""A heap of the rows with the highest keys; of equal rows the first."""


def _offer(best: Best, most: int, row: ContigRow, *key: float) -> None:
    """Keep ``row`` if it belongs to the ``most`` best."""
    heapq.heappush(best, (key, row))
    if len(best) > most:
        heapq.heappop(best)


def read_content(run: PredictionRun) -> Content:
    """Read the table of records of a run; LookupError and so on where it was changed."""
    settings = run.record["settings"]
    thresholds = recorded_thresholds(settings)
    chunk_length = int(settings["analysis"]["chunk_length"])
    counts, tracked = Counter[str](), Best()
    others = {call: Best() for call in CALLS if call != "virus"}

    def read() -> Iterator[tuple[float | None, ...]]:
        for number, row in enumerate(run.contigs(), 1):
            counts["regions"] += row.regions
            counts["region_bases"] += row.viral_bases if row.regions else 0
            if row.call == "virus":
                counts["sure"] += row.tier == "high"
            else:
                score = row.virus_score or 0.0 if row.call == "undecided" else 0.0
                _offer(others[row.call], MOST_OTHER_ROWS, row, score, row.length, -number)
                counts["hosts"] += row.regions > 0
                counts["more_regions"] += row.regions
                counts["host_bases"] += row.viral_bases if row.regions else 0
            if row.chunks >= FEWEST_CHUNKS:
                _offer(tracked, MOST_TRACKS, row, row.regions > 0, row.length, -number)
            weak = row.chunks_scored == 1 or row.coverage < LITTLE
            yield CALLS.index(row.call), weak, row.virus_score, row.fdr, row.length

    figures = np.fromiter(read(), FIGURES)
    rows = [row for best in others.values() for _, row in sorted(best, reverse=True)]
    tracks = [row for _, row in sorted(tracked, reverse=True)]
    return Content(
        run,
        thresholds,
        chunk_length,
        figures,
        counts,
        tracks,
        rows,
        noun="pair" if run.paired else "record",
        records=len(figures),
        bases=int(figures["length"].sum()),
        scored=int((figures["call"] != CALLS.index("unscored")).sum()),
        calibrated=bool(run.record["models"]["classifier"]["calibrated"]),
        rated=not np.isnan(figures["fdr"]).all(),
    )
