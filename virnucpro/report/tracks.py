"""Tracks: the scores of a record along its bases, drawn as SVG that needs no program to be seen."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from virnucpro.columns import MISSING
from virnucpro.errors import InputError
from virnucpro.formatting import counted
from virnucpro.results import PredictionRun
from virnucpro.tables import CHUNKS, ContigRow, RegionRow

# The drawing, in units of the SVG; a page shows about one per pixel.
WIDTH, HEIGHT = 800, 172
LEFT, RIGHT = 44, 790
TOP, BOTTOM = 10, 120
UNSCORED = 133  # middle of the lane below the scores
AXIS = 146
_NICE_STEPS = (1, 2, 5)
_MOST_TICKS = 8
_COARSE = 5000  # chunks; the dots of longer records are placed on a coarser grid
MOST_HOVER_CHUNKS = 60_000  # of all tracks; of more, the page would be too large
MOST_DRAWN = 1_200_000  # characters of all drawings

STYLE = """\
.track text{font:12px system-ui,sans-serif;fill:var(--text,#1d2430)}
.track .axis{stroke:var(--muted,#667085);stroke-width:1;fill:none}
.track .grid{stroke:var(--line,#d5dae2);stroke-width:1;fill:none}
.track .dots{stroke-width:4;stroke-linecap:round;fill:none}
.track .fine{stroke-width:2}
.track .v{stroke:var(--virus,#c2410c)}
.track .n{stroke:var(--nonvirus,#2b7bba)}
.track .u{stroke:var(--muted,#667085);stroke-width:1.5;fill:none}
.track .lane{fill:var(--lane,#eef1f5)}
.track .region{fill:var(--region,#0f8a68);fill-opacity:.2}
.track .mark{stroke:var(--text,#1d2430);stroke-width:1;stroke-dasharray:2 2}
"""


@dataclass
class Track:
    """The chunks of one record, in order.

    ``starts`` and ``ends`` are bases counted from 1, the last included; ``others`` and ``virus``
    are the two scores of each chunk, None where it was not scored, and ``regions`` the viral
    regions of the record.
    """

    record: str
    length: int
    call: str
    score: float | None
    regions: Sequence[RegionRow] = ()
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    others: list[float | None] = field(default_factory=list)
    virus: list[float | None] = field(default_factory=list)

    @property
    def differences(self) -> Iterator[float | None]:
        """The score of each chunk from -1 to 1: that of virus less that of others."""
        for others, virus in zip(self.others, self.virus, strict=True):
            yield None if others is None or virus is None else virus - others

    @property
    def description(self) -> str:
        """The track in words, for those who do not see it."""
        known = [value for value in self.differences if value is not None]
        above = sum(value > 0 for value in known)
        text = (
            f"{counted(self.length, 'base')}, {counted(len(self.starts), 'chunk')}: "
            f"{above:,} more like virus, {len(known) - above:,} more like others, "
            f"{len(self.starts) - len(known):,} not scored."
        )
        shown = [f"{region.start:,} to {region.end:,}" for region in self.regions[:5]]
        if shown:
            more = len(self.regions) - len(shown)
            also = f" and {more:,} more" if more else ""
            text += f" Viral regions: bases {'; '.join(shown)}{also}."
        return text


def read_tracks(
    run: PredictionRun,
    records: Sequence[ContigRow],
    regions: dict[str, list[RegionRow]],
) -> list[Track]:
    """Return the tracks of ``records``, in their order.

    Raises:
        InputError: the table of chunks is missing or damaged.
    """
    tracks = {
        row.record: Track(
            row.record, row.length, row.call, row.virus_score, regions.get(row.record, ())
        )
        for row in records
    }
    path = run.folder / CHUNKS.place(run.stem)
    left = {row.record: row.chunks for row in records}
    try:
        for record, start, end, others, virus in _chunk_rows(run, left):
            track = tracks[record]
            track.starts.append(int(start))
            track.ends.append(int(end))
            track.others.append(None if others == MISSING else float(others))
            track.virus.append(None if virus == MISSING else float(virus))
            left[record] -= 1
            if not left[record]:
                del left[record]
            if not left:
                break
    except (OSError, LookupError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); the command that made it restores it"
        ) from error
    if left:
        raise InputError(
            f"{path} lacks chunks of {next(iter(left))}; the command that made it restores it"
        )
    return list(tracks.values())


def _chunk_rows(run: PredictionRun, wanted: Collection[str]) -> Iterator[Sequence[str]]:
    """Yield the cells of the chunks of ``wanted``; they are not parsed, of which most are not."""
    names = ("record", "start", "end", "max_score_0", "max_score_1")
    for cells in CHUNKS.read(run.folder / CHUNKS.place(run.stem), *names):
        if cells[0] in wanted:
            yield cells


def track_svg(track: Track) -> str:
    """Return the drawing of a track; its colours are those of the page, or of ``STYLE`` alone."""
    parts = [
        f'<svg class="track" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(track.description)}" xmlns="http://www.w3.org/2000/svg">',
        f'<rect class="lane" x="{LEFT}" y="{UNSCORED - 7}" width="{RIGHT - LEFT}" height="14"/>',
        *_scale(),
    ]
    for region in track.regions:
        left, right = _across(region.start, track.length), _across(region.end, track.length)
        parts.append(
            f'<rect class="region" x="{left:.1f}" y="{TOP}" width="{max(right - left, 1.5):.1f}" '
            f'height="{BOTTOM - TOP}"><title>Viral region, bases {region.start:,} to '
            f"{region.end:,}, score {region.score:.2f}</title></rect>"
        )
    parts += [*_dots(track), *_bases(track.length), "</svg>"]
    return "".join(parts)


def hover_data(track: Track) -> str:
    """Return the coordinates and scores of a track as JSON.

    ``d`` has the distances of the starts, ``s`` the sizes of the chunks, or one where all are the
    same, ``v`` and ``o`` thousandths of the scores, -1 where there is none.
    """
    starts = track.starts
    steps = [start - before for start, before in zip(starts, [0, *starts], strict=False)]
    sizes = [end - start + 1 for start, end in zip(starts, track.ends, strict=True)]
    data = {
        "length": track.length,
        "d": steps,
        "s": sizes[:1] if len(set(sizes)) == 1 else sizes,
        "v": [-1 if value is None else round(1000 * value) for value in track.virus],
        "o": [-1 if value is None else round(1000 * value) for value in track.others],
    }
    return json.dumps(data, separators=(",", ":"))


def _across(base: float, length: int) -> float:
    return LEFT + (RIGHT - LEFT) * base / max(length, 1)


def _up(value: float) -> float:
    return (TOP + BOTTOM) / 2 - (BOTTOM - TOP) / 2 * value


def _scale() -> Iterator[str]:
    """Yield the vertical axis with its numbers."""
    for value, text in ((1, "1"), (0, "0"), (-1, "-1")):
        height = _up(value)
        yield f'<path class="grid" d="M{LEFT} {height:.0f}H{RIGHT}"/>'
        yield f'<text x="{LEFT - 6}" y="{height + 4:.0f}" text-anchor="end">{text}</text>'
    yield f'<text x="{LEFT - 6}" y="{UNSCORED + 4}" text-anchor="end">none</text>'


def _bases(length: int) -> Iterator[str]:
    """Yield the horizontal axis with its numbers."""
    step = next(
        nice * 10**power
        for power in range(12)
        for nice in _NICE_STEPS
        if nice * 10**power * _MOST_TICKS >= length
    )
    yield f'<path class="axis" d="M{LEFT} {AXIS}H{RIGHT}'
    ticks = range(0, length + 1, step)
    for base in ticks:
        yield f"M{_across(base, length):.1f} {AXIS}v4"
    yield '"/>'
    for base in ticks:
        across = _across(base, length)
        anchor = "end" if across > RIGHT - 30 else "middle" if base else "start"
        yield f'<text x="{across:.1f}" y="{AXIS + 17}" text-anchor="{anchor}">{base:,}</text>'


def _dots(track: Track) -> Iterator[str]:
    """Yield the chunks: dots where they were scored, strokes in a lane of their own where not.

    A dot is a line of no length with round ends. Dots in the same place are drawn once.
    """
    fine = len(track.starts) > _COARSE // 10
    digits = 0 if len(track.starts) > _COARSE else 1
    places: dict[str, dict[str, None]] = {"v": {}, "n": {}, "u": {}}
    for start, end, value in zip(track.starts, track.ends, track.differences, strict=True):
        across = _across((start - 1 + end) / 2, track.length)
        if value is None:
            places["u"][f"M{across:.{digits}f} {UNSCORED - 5}v10"] = None
        else:
            kind = "v" if value > 0 else "n"
            places[kind][f"M{across:.{digits}f} {_up(value):.{digits}f}h0"] = None
    for kind, drawn in places.items():
        look = kind if kind == "u" else f"dots {kind}{' fine' if fine else ''}"
        if drawn:
            yield f'<path class="{look}" d="{"".join(drawn)}"/>'
