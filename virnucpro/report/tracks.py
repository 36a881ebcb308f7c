"""Tracks: the scores of a record along its bases, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from virnucpro.columns import MISSING
from virnucpro.errors import InputError, UsageError
from virnucpro.formatting import counted
from virnucpro.metrics.plots import image_of
from virnucpro.report.figures import COLOURS, DOTS_PER_INCH
from virnucpro.results import PredictionRun
from virnucpro.tables import CHUNKS, ContigRow, RegionRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The drawing, in points; the script of the page knows these places, too.
WIDTH, HEIGHT = 800, 172
LEFT, RIGHT, TOP, BOTTOM = 44, 770, 10, 146
UNSCORED, LOWEST = -1.24, -1.47  # heights of the lane below the scores, and of the axis
MOST_VECTOR_DOTS = 500  # more are drawn as an image
LONGEST_TITLE = 80  # letters of an id
NAMED_REGIONS = 5


@dataclass
class Track:
    """The chunks of one record, in order."""

    row: ContigRow
    regions: list[RegionRow] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # bases counted from 1
    ends: list[int] = field(default_factory=list)  # the last base included
    others: list[float] = field(default_factory=list)  # NaN where it was not scored
    virus: list[float] = field(default_factory=list)

    @property
    def differences(self) -> npt.NDArray[np.float64]:
        """The score of each chunk from -1 to 1: the score of virus less the score of others."""
        return np.subtract(self.virus, self.others)

    @property
    def score_text(self) -> str:
        """The score of the record in words."""
        score = self.row.virus_score
        return "not scored" if score is None else f"virus score {score:.3f}"

    @property
    def description(self) -> str:
        """The track in words, for those who do not see it."""
        values = self.differences
        above, below = int((values > 0).sum()), int((values <= 0).sum())
        text = (
            f"{counted(self.row.length, 'base')}, {counted(len(values), 'chunk')}: "
            f"{above:,} more like virus, {below:,} more like others, "
            f"{len(values) - above - below:,} not scored."
        )
        if self.regions:
            shown = [f"{region.start:,} to {region.end:,}" for region in self.regions]
            more = f" and {len(shown) - NAMED_REGIONS:,} more" if shown[NAMED_REGIONS:] else ""
            text += f" Viral regions: bases {'; '.join(shown[:NAMED_REGIONS])}{more}."
        return text


def read_tracks(run: PredictionRun, records: Sequence[ContigRow]) -> list[Track]:
    """Return the tracks of ``records``, in their order; InputError for a damaged table."""
    tracks = {row.record: Track(row) for row in records}
    for region in run.regions() if any(row.regions for row in records) else ():
        if region.record in tracks:
            tracks[region.record].regions.append(region)
    path = run.folder / CHUNKS.path.format(stem=run.stem)
    names = ("record", "start", "end", "max_score_0", "max_score_1")
    left = sum(row.chunks for row in records)
    try:
        # Most chunks belong to no track, and are not parsed.
        for record, start, end, *scores in CHUNKS.read(path, *names):
            if (track := tracks.get(record)) is not None:
                others, virus = (float("nan" if cell == MISSING else cell) for cell in scores)
                track.starts.append(int(start))
                track.ends.append(int(end))
                track.others.append(others)
                track.virus.append(virus)
                left -= 1
                if not left:
                    break
        if left:
            raise ValueError(f"missing: {counted(left, 'chunk')}")
    except (OSError, LookupError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); the command that made it restores it"
        ) from error
    return list(tracks.values())


def draw_track(track: Track) -> Figure:
    """Return the drawing of a track: dots for scored chunks, strokes in a lane for the others."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))  # an inch has 72 points
    width, height = (RIGHT - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT
    axes = figure.add_axes((LEFT / WIDTH, 1 - BOTTOM / HEIGHT, width, height))
    middles, values = np.add(track.starts, track.ends) / 2, track.differences
    heights, many = np.nan_to_num(values, nan=UNSCORED), len(values) > MOST_VECTOR_DOTS
    look: dict[str, Any] = {"clip_on": False, "rasterized": many}
    for kind, marker, size, chosen, label in (
        ("virus", "o", 2 if many else 4, values > 0, "more like virus"),
        ("nonvirus", "o", 2 if many else 4, values <= 0, "more like others"),
        ("unscored", "|", 10, np.isnan(values), "not scored"),
    ):
        if chosen.any():
            look |= {"color": COLOURS[kind], "markersize": size, "label": label}
            axes.plot(middles[chosen], heights[chosen], marker, **look)
    for number, region in enumerate(track.regions):
        label = "_" if number else "viral region"
        axes.axvspan(region.start - 1, region.end, color=COLOURS["region"], alpha=0.2, label=label)
    axes.set(xlim=(0, track.row.length), ylim=(LOWEST, 1), yticks=(1, 0, -1, UNSCORED))
    axes.set_yticklabels(["1", "0", "-1", "none"])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=6)  # each number takes a millisecond
    axes.grid(axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def track_picture(run: PredictionRun, record: str, suffix: str) -> bytes:
    """Return a picture of a record: ``png`` or ``svg``. The same track gives the same bytes.

    Raises UsageError where the run has no chunks of the record.
    """
    row = next((row for row in run.contigs() if row.record == record and row.chunks), None)
    if row is None:
        raise UsageError(
            f"{run.contigs().path} has no chunks of a record {record!r}: check the id, the first "
            f"word of the header"
        )
    (track,) = read_tracks(run, [row])
    figure = draw_track(track)
    name = record[:LONGEST_TITLE] + ("…" if len(record) > LONGEST_TITLE else "")
    call = "" if track.row.virus_score is None else f"{track.row.call}, "
    title = f"{name}, {counted(track.row.length, 'base')}: {call}{track.score_text}"
    figure.suptitle(title, y=1.1, parse_math=False)
    figure.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.axes[0].set(xlabel="base", ylabel="virus less others")
    return image_of(figure, suffix, dpi=DOTS_PER_INCH, bbox_inches="tight")
