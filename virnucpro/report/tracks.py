"""Tracks: the scores of a record along its bases, drawn with matplotlib."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from virnucpro.columns import MISSING, gff3_escaped
from virnucpro.errors import InputError, UsageError
from virnucpro.formatting import counted, shortened_ids
from virnucpro.layout import Layout
from virnucpro.report.plots import COLOURS, DOTS_PER_INCH, image_of
from virnucpro.results import PredictionRun
from virnucpro.tables import CHUNKS, ContigRow, RegionRow

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

Values = npt.NDArray[np.float64]

# The drawing, in points.
WIDTH, HEIGHT = 800, 172
LEFT, RIGHT, TOP, BOTTOM = 44, 770, 10, 146
UNSCORED, LOWEST = -1.24, -1.47  # heights of the lane below the scores, and of the axis
GENES, HIGHEST = 1.3, 1.5  # heights of the genes, and of the axis where there are any
MOST_DOTS = 500  # of more chunks, the means of so many stretches are drawn
LONGEST_TITLE = 80  # letters of an id
NAMED_REGIONS = 10


class Gene(NamedTuple):
    """The first and the last base of a gene, counted from 1, and its product if it is known."""

    start: int
    end: int
    forward: bool
    product: str


@dataclass
class Track:
    """The chunks of one record, in order."""

    row: ContigRow
    regions: list[RegionRow] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # bases counted from 1
    ends: list[int] = field(default_factory=list)  # the last base included
    others: list[float] = field(default_factory=list)  # NaN where it was not scored
    virus: list[float] = field(default_factory=list)
    genes: list[Gene] = field(default_factory=list)

    @property
    def is_smoothed(self) -> bool:
        """Whether there are too many chunks for a dot each; its genes are drawn by region then."""
        return len(self.starts) > MOST_DOTS

    @property
    def differences(self) -> Values:
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
        return text if self.is_smoothed else f"{text} {self.genes_text(1, self.row.length)}"

    def genes_text(self, start: int, end: int) -> str:
        """The genes from one base to another in words; empty where none is known."""
        genes = [gene for gene in self.genes if start <= gene.end and gene.start <= end]
        products = dict.fromkeys(gene.product for gene in genes if gene.product)
        named = f", among them: {'; '.join(products)}" if products else ""
        return f"{counted(len(genes), 'gene')}{named}." if genes else ""


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
        path = Layout(run.folder, run.stem).virus_genes[0]
        if path.is_file():  # there is none of reads, and with --no-genes
            _add_genes(path, tracks)
    except (OSError, LookupError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); the command that made it restores it"
        ) from error
    return list(tracks.values())


def _add_genes(path: Path, tracks: Mapping[str, Track]) -> None:
    """Add the genes of a GFF3 file to the tracks of their records."""
    by_id = {gff3_escaped(record): track for record, track in tracks.items()}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            id, *cells = line.rstrip("\n").split("\t")
            if id in by_id and cells[1] == "CDS":
                product = re.search(r"\bproduct=([^;]*)", cells[-1])
                text = unquote(product[1]) if product else ""
                gene = Gene(int(cells[2]), int(cells[3]), cells[5] == "+", text)
                by_id[id].genes.append(gene)


def draw_track(track: Track, region: RegionRow | None = None) -> Figure:
    """Return the drawing of a track: dots for scored chunks, strokes in a lane for the others.

    A long one is an area between 0 and the means of neighbouring scores, unless only a ``region``
    of it is drawn, with half of its length on both sides. Arrows above the scores are genes.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))  # an inch has 72 points
    width, height = (RIGHT - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT
    axes = figure.add_axes((LEFT / WIDTH, 1 - BOTTOM / HEIGHT, width, height))
    middles, values = np.add(track.starts, track.ends) / 2, track.differences
    first, last, smoothed = 0, track.row.length, track.is_smoothed and region is None
    if region is not None:
        first = max(first, region.start - region.length // 2)
        last = min(last, region.end + region.length // 2)
    elif smoothed:
        middles, values = _means(middles, values)
    inside = (first <= middles) & (middles <= last)
    for kind, marker, size, chosen, label in (
        ("virus", "o", 4, values > 0, "more like virus"),
        ("nonvirus", "o", 4, values <= 0, "more like others"),
        ("unscored", "|", 10, np.isnan(values), "not scored"),
    ):
        look: dict[str, Any] = {"color": COLOURS[kind], "label": label}
        dots = chosen & inside
        if smoothed and kind != "unscored":
            axes.fill_between(
                middles, 0, values, where=chosen.tolist(), interpolate=True, lw=0.8, **look
            )
        elif dots.any():
            look |= {"markersize": size, "clip_on": False}
            axes.plot(middles[dots], np.nan_to_num(values, nan=UNSCORED)[dots], marker, **look)
    genes = [] if smoothed else track.genes
    if genes:
        arrows = [_arrow(gene, (last - first) / 100) for gene in genes]
        colours = [COLOURS["region" if gene.product else "unscored"] for gene in genes]
        axes.add_collection(PolyCollection(arrows, color=colours, lw=0, label="gene"))
    for number, each in enumerate(track.regions):
        label = "_" if number else "viral region"
        look = {"color": COLOURS["region"], "alpha": 0.2, "label": label, "zorder": 0}
        axes.axvspan(each.start - 1, each.end, **look)
    ends = LOWEST, HIGHEST if genes else 1
    axes.set(xlim=(first, last), ylim=ends, yticks=(1, 0, -1, UNSCORED))
    axes.set_yticklabels(["1", "0", "-1", "none"])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=6)  # each number takes a millisecond
    axes.grid(axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _means(middles: Values, values: Values) -> tuple[Values, Values]:
    """Return the places and the means of ``MOST_DOTS`` stretches; NaN where no value is known."""
    starts = np.linspace(0, len(values), MOST_DOTS, endpoint=False).astype(int)
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0), starts)
    with np.errstate(invalid="ignore"):
        return middles[starts], sums / np.add.reduceat(known.astype(int), starts)


def _arrow(gene: Gene, longest_head: float) -> list[tuple[float, float]]:
    """Return the corners of a gene; its head takes at most so many bases."""
    tail, tip = (gene.start - 1, gene.end) if gene.forward else (gene.end, gene.start - 1)
    neck = tip - np.clip(tip - tail, -longest_head, longest_head)
    low, high = GENES - 0.1, GENES + 0.1
    return [(tail, low), (neck, low), (tip, GENES), (neck, high), (tail, high)]


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
    (name,) = shortened_ids([record], LONGEST_TITLE).values()
    call = "" if track.row.virus_score is None else f"{track.row.call}, "
    title = f"{name}, {counted(track.row.length, 'base')}: {call}{track.score_text}"
    figure.suptitle(title, y=1.1, parse_math=False)
    figure.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.axes[0].set(xlabel="base", ylabel="virus less others")
    return image_of(figure, suffix, dpi=DOTS_PER_INCH, bbox_inches="tight")
