"""What a report shows, read from the table of records in one pass, some thousand rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import convert

from virnucpro.results import PredictionRun
from virnucpro.settings import Thresholds, recorded_thresholds
from virnucpro.stages.calls import LITTLE
from virnucpro.tables import ContigRow

CALLS = ("virus", "undecided", "nonvirus", "unscored")
MOST_OTHER_ROWS = 400  # of the table, for each call that is not virus
MOST_TRACKS = 30
MOST_OTHER_TRACKS = 5  # of records that are neither classified as viral nor hold regions
FEWEST_CHUNKS = 3  # of a record with a track; fewer say no more than its score
# What the figures need of every record: the place of its call in CALLS, whether the score rests on
# one chunk or on less than a quarter of the bases, score and rate (NaN for none), and bases.
FIGURES = [("call", "i1"), ("weak", "?"), ("score", "f8"), ("fdr", "f8"), ("length", "i8")]

WHOLE_NUMBERS = ("length", "chunks", "chunks_scored", "regions", "viral_bases")


@dataclass
class Content:
    """Everything that a report shows of the table of records.

    ``counts`` are the ``regions`` and their bases, the records not classified as viral that hold
    regions (``hosts``), and the bases of the regions in these.
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


Best = list[tuple[tuple[float, ...], list[str | None]]]
"""Rows of the table as text behind their keys, the smallest key first."""


def _keep_best(
    best: Best,
    most: int,
    columns: Sequence[Sequence[str | None]],
    is_meant: npt.NDArray[np.bool_],
    *keys: npt.NDArray[Any],
) -> None:
    """Keep the ``most`` rows with the smallest ``keys`` of ``best`` and those meant of a block."""
    if best and len(best) == most:
        is_better = np.zeros(len(is_meant), bool)  # than the last one of the best
        for key, last in zip(keys[::-1], best[-1][0][::-1], strict=True):
            is_better = (key < last) | ((key == last) & is_better)
        is_meant = is_meant & is_better
    places = np.flatnonzero(is_meant)
    for place in places[np.lexsort([key[places] for key in keys[::-1]])][:most].tolist():
        best.append((tuple(key[place] for key in keys), [column[place] for column in columns]))
    best.sort()
    del best[most:]


def read_content(run: PredictionRun) -> Content:
    """Read the table of records of a run; LookupError and so on where it was changed."""
    settings = run.record["settings"]
    thresholds = recorded_thresholds(settings)
    chunk_length = int(settings["analysis"]["chunk_length"])
    counts, tracked = Counter[str](), Best()
    others = {call: Best() for call in CALLS if call != "virus"}
    parts, records = [np.empty(0, FIGURES)], 0
    for columns in run.contigs().columns():
        cells: dict[str, Any] = dict(zip(ContigRow._fields, columns, strict=True))
        length, chunks, scored, regions, viral_bases = (
            np.array(list(map(int, cells[name]))) for name in WHOLE_NUMBERS
        )
        score, rate, coverage = (
            np.array(cells[name], float) for name in ("virus_score", "fdr", "coverage")
        )
        call = np.array(list(map(CALLS.index, cells["call"])))
        is_host = (call != CALLS.index("virus")) & (regions > 0)
        counts["regions"] += int(regions.sum())
        counts["region_bases"] += int(viral_bases[regions > 0].sum())
        counts["hosts"] += int(is_host.sum())
        counts["host_bases"] += int(viral_bases[is_host].sum())
        order = np.arange(records, records + len(call))
        for name, best in others.items():
            first = -np.nan_to_num(score) if name == "undecided" else np.zeros(len(call))
            is_meant = call == CALLS.index(name)
            _keep_best(best, MOST_OTHER_ROWS, columns, is_meant, first, -length, order)
        has_track = chunks >= FEWEST_CHUNKS
        kinds = regions == 0, call != CALLS.index("virus")
        _keep_best(tracked, MOST_TRACKS, columns, has_track, *kinds, -length, order)
        figures = np.empty(len(call), FIGURES)
        figures["call"], figures["length"], figures["score"], figures["fdr"] = (
            call,
            length,
            score,
            rate,
        )
        figures["weak"] = (scored == 1) | (coverage < LITTLE)
        parts.append(figures)
        records += len(call)
    figures = np.concatenate(parts)
    rows = [cells for best in others.values() for _, cells in best]
    tracks = convert([cells for _, cells in tracked], list[ContigRow], strict=False)
    viral = sum(row.call == "virus" or row.regions > 0 for row in tracks)
    return Content(
        run,
        thresholds,
        chunk_length,
        figures,
        counts,
        tracks[: viral + MOST_OTHER_TRACKS],
        convert(rows, list[ContigRow], strict=False),
        noun="pair" if run.paired else "record",
        records=records,
        bases=int(figures["length"].sum()),
        scored=int((figures["call"] != CALLS.index("unscored")).sum()),
        calibrated=bool(run.record["models"]["classifier"]["calibrated"]),
    )
