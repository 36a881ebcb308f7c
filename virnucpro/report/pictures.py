"""The track of one record as a picture, drawn with matplotlib."""

from __future__ import annotations

from io import BytesIO

import numpy as np

from virnucpro.errors import UsageError
from virnucpro.report.figures import COLOURS
from virnucpro.report.tracks import Track, read_tracks
from virnucpro.results import PredictionRun

REGION = "#0f8a68"
_DOTS_PER_INCH = 150
_LONGEST_TITLE = 80  # letters of an id


def find_track(run: PredictionRun, record: str) -> Track:
    """Return the track of a record.

    Raises:
        UsageError: the run has no such record.
        InputError: a table of the run is missing or damaged.
    """
    row = next((row for row in run.contigs() if row.record == record), None)
    if row is None:
        raise UsageError(
            f"{run.contigs().path} has no record {record!r}: check the id, which is the first word "
            f"of the header"
        )
    if not row.chunks:
        raise UsageError(f"{record!r} has no chunks, so there is nothing to draw")
    regions = [region for region in run.regions() if region.record == record] if row.regions else []
    return read_tracks(run, [row], {record: regions})[0]


def draw_track(track: Track, suffix: str) -> bytes:
    """Return a picture: ``png`` or ``svg``. The same track gives the same bytes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    above, lane = figure.subplots(2, 1, sharex=True, height_ratios=(8, 1))
    middles = (np.array(track.starts) + np.array(track.ends)) / 2
    scores = np.array([np.nan if value is None else value for value in track.differences])
    known = ~np.isnan(scores)
    many = len(scores) > 500
    for colour, part, label in (
        (COLOURS["virus"], known & (scores > 0), "more like virus"),
        (COLOURS["nonvirus"], known & (scores <= 0), "more like others"),
    ):
        above.scatter(middles[part], scores[part], s=4 if many else 16, color=colour, label=label)
    for number, region in enumerate(track.regions):
        named = {} if number else {"label": "viral region"}
        above.axvspan(region.start, region.end, color=REGION, alpha=0.18, linewidth=0, **named)
    lane.vlines(middles[~known], 0, 1, color="#5b6472", linewidth=1)
    above.axhline(0, color="#999999", linewidth=0.8)
    above.set(ylim=(-1.08, 1.08), ylabel="virus less others", xlim=(0, track.length + 1))
    lane.set(ylim=(0, 1), yticks=[0.5], xlabel="base")
    lane.set_yticklabels(["not scored"])
    lane.xaxis.set_major_formatter("{x:,.0f}")
    lane.tick_params(axis="y", length=0)
    for axes in (above, lane):
        axes.spines[["top", "right"]].set_visible(False)
    above.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    name = track.record[:_LONGEST_TITLE] + ("…" if len(track.record) > _LONGEST_TITLE else "")
    score = "not scored" if track.score is None else f"{track.call}, virus score {track.score:.3f}"
    figure.suptitle(f"{name}, {track.length:,} bases: {score}", parse_math=False)
    out = BytesIO()
    # Neither the time nor random names: equal pictures are equal files.
    dated = {"Date": None} if suffix == "svg" else None
    with rc_context({"svg.hashsalt": "virnucpro"}):
        figure.savefig(out, format=suffix, dpi=_DOTS_PER_INCH, metadata=dated)
    return out.getvalue()
