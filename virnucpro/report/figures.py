"""The figures of a report, drawn with matplotlib as SVG in the colours of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from virnucpro.formatting import counted, percent
from virnucpro.report.content import CALLS, Content
from virnucpro.stages.calls import NONVIRUS_BELOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

FEWEST_RECORDS = 10  # with a score; a figure of fewer says less than the table
_BINS = 40
_SCORES = (-1, -0.5, 0, 0.5, 1)  # of the axes
_VECTOR_DOTS = 2000  # more are drawn as an image: each would take 100 bytes
_MOST_DOTS = 200_000
_DOTS_PER_INCH = 160
# Half a pixel of a drawing of 340 by 425 pixels: four dots there, each of three quarters of its
# colour, look like any number of them.
_PLACES_PER_SCORE, _PLACES_PER_DECADE, _DOTS_AT_A_PLACE = 400, 400, 4
LENGTH_CLASSES = (0, 300, 500, 1000, 2000, 5000, 10_000, 50_000)
# Of calls. They can be told apart by the colour-blind, and stand out from white and from black.
COLOURS = {"virus": "#d9480f", "undecided": "#a187d8", "nonvirus": "#3b8fd1", "unscored": "#8a93a3"}
# Stand for the colours of the page, which are other ones in the dark.
_TEXT, _GRID = "#010203", "#040506"
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
_PLACES = re.compile(r' (?:d|x|y|transform)="[^"]*"')
_DIGITS = re.compile(r"(\.\d)\d+")  # less than a tenth of a point cannot be seen
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class PageFigure:
    """A figure with its title and, in words, what it shows."""

    title: str
    svg: str
    description: str


def draw_figures(content: Content) -> list[PageFigure]:
    """Return the figures of a run; none where fewer than ``FEWEST_RECORDS`` have a score."""
    if content.scored < FEWEST_RECORDS:
        return []
    figures = [
        ("Virus scores of all records", _histogram),
        ("Virus score and length", _scatter),
        ("Share of records that were scored, by length", _shares),
    ]
    if content.calibrated:
        figures.append(("Estimated errors, and records called virus", _rates))
    arrays = content.columns.arrays()
    return [_figure(title, draw, content, arrays) for title, draw in figures]


def _figure(
    title: str, draw: Callable[[Axes, Content, Arrays], str], content: Content, arrays: Arrays
) -> PageFigure:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    out = StringIO()
    # Another salt for each figure: the ids in a page must differ. No date: the same run gives the
    # same bytes.
    with rc_context({**_SETTINGS, "svg.hashsalt": title}):
        figure = Figure(figsize=(5.6, 3.5))
        figure.subplots_adjust(left=0.13, right=0.97, top=0.91, bottom=0.15)
        description = draw(figure.subplots(), content, arrays)
        figure.savefig(
            out, format="svg", dpi=_DOTS_PER_INCH, transparent=True, metadata={"Date": None}
        )
    return PageFigure(title, _page_svg(out.getvalue()), description)


def _page_svg(text: str) -> str:
    """Return a drawing of matplotlib as it can stand within a page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', text, count=1)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # of which some are the same in each drawing
    text = text.replace(_TEXT, "currentColor").replace(_GRID, "var(--line)")
    text = _PLACES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), text)
    return re.sub(r"\n\s*", "\n", text).replace("<g", "\n<g")


def _histogram(axes: Axes, content: Content, arrays: Arrays) -> str:
    """Draw how many records have which score, by call."""
    edges = np.linspace(-1, 1, _BINS + 1)
    below = np.zeros(_BINS)
    for call in ("nonvirus", "undecided", "virus"):
        scores = arrays["scores"][arrays["calls"] == CALLS.index(call)]
        counts = np.histogram(np.clip(scores, -1, 1), edges)[0]
        if not len(scores):
            continue
        axes.bar(
            edges[:-1],
            counts,
            bottom=below,
            width=np.diff(edges),
            align="edge",
            color=COLOURS[call],
        )
        below = below + counts
    axes.set_yscale("log")
    _write_plain_numbers(axes.yaxis)
    axes.set(xlim=(-1, 1), xticks=_SCORES, xlabel="virus score", ylabel="records (log scale)")
    axes.set_ylim(bottom=0.7)
    for cut in (NONVIRUS_BELOW, content.cuts.min_score):
        axes.axvline(cut, color=_TEXT, linestyle="--", linewidth=1)
    _legend(axes, content)
    tallies = content.tallies
    return (
        f"{counted(content.scored, 'record')} with a score: {tallies['nonvirus'].records:,} called "
        f"nonvirus (below {NONVIRUS_BELOW:g}), {tallies['virus'].records:,} called virus (above "
        f"{content.cuts.min_score:g}), {tallies['undecided'].records:,} undecided. The dashed "
        f"lines are these cuts."
    )


def _scatter(axes: Axes, content: Content, arrays: Arrays) -> str:
    """Draw the score of each record over its length; weak evidence is hollow."""
    scored = np.flatnonzero(~np.isnan(arrays["scores"]))
    drawn = scored
    if len(scored) > _MOST_DOTS:  # evenly from the whole input
        drawn = scored[np.linspace(0, len(scored) - 1, _MOST_DOTS).astype(np.int64)]
    many = len(drawn) > _VECTOR_DOTS
    for call in ("nonvirus", "undecided", "virus"):
        for weak in (1, 0):
            part = drawn[
                (arrays["calls"][drawn] == CALLS.index(call)) & (arrays["weak"][drawn] == weak)
            ]
            if len(part):
                part = part[_not_covered(arrays["lengths"][part], arrays["scores"][part])]
                axes.scatter(
                    arrays["lengths"][part],
                    arrays["scores"][part],
                    s=6 if many else 16,
                    facecolors="none" if weak else COLOURS[call],
                    edgecolors=COLOURS[call],
                    linewidths=0.7,
                    alpha=0.75,
                    rasterized=many,
                )
    axes.set_xscale("log")
    _write_plain_numbers(axes.xaxis)
    axes.set(ylim=(-1.06, 1.06), yticks=_SCORES, ylabel="virus score")
    axes.set_xlabel("length in bases (log scale)")
    _legend(axes, content)
    weak = int(arrays["weak"][scored].sum())
    part = f" {len(drawn):,} of them are drawn." if len(drawn) < len(scored) else ""
    return (
        f"One dot per record.{part} Hollow dots are weak evidence, {counted(weak, 'record')}: only "
        f"one chunk was scored, or less than a quarter of the bases."
    )


def _not_covered(
    lengths: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Return the numbers of the dots that can be seen: the first few at each place.

    Reads of one length stand in one column, where thousands cover each other.
    """
    rows = np.round(scores * _PLACES_PER_SCORE).astype(np.int64)
    columns = np.round(np.log10(np.maximum(lengths, 1)) * _PLACES_PER_DECADE).astype(np.int64)
    places = columns * (4 * _PLACES_PER_SCORE) + rows
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    firsts = np.searchsorted(ordered, ordered)
    return np.sort(order[np.arange(len(order)) - firsts < _DOTS_AT_A_PLACE])


def _write_plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with 100 and 1,000 instead of powers of ten."""
    from matplotlib.ticker import LogFormatter

    class PlainNumbers(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:,.0f}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(PlainNumbers())
    axis.set_minor_formatter(PlainNumbers())


def _legend(axes: Axes, content: Content) -> None:
    """Name the colours above the drawing, where they cover nothing."""
    from matplotlib.lines import Line2D

    names = [call for call in ("nonvirus", "undecided", "virus") if content.tallies[call].records]
    axes.legend(
        [Line2D([], [], marker="o", linestyle="", color=COLOURS[name]) for name in names],
        names,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        borderaxespad=0.2,
        handletextpad=0.1,
    )


def _shares(axes: Axes, content: Content, arrays: Arrays) -> str:
    """Draw the share of scored records in each class of lengths."""
    edges = [*LENGTH_CLASSES, np.iinfo(np.int64).max]
    scored = ~np.isnan(arrays["scores"])
    all_counts = np.histogram(arrays["lengths"], edges)[0]
    counts = np.histogram(arrays["lengths"][scored], edges)[0]
    present = np.flatnonzero(all_counts)
    names = [_class_name(int(number)) for number in present]
    shares = 100 * counts[present] / all_counts[present]
    axes.bar(range(len(present)), shares, color=COLOURS["nonvirus"], width=0.7)
    axes.set_xticks(range(len(present)), names, fontsize=8.5)
    for place, number in enumerate(present):
        axes.text(place, shares[place] + 1.5, f"{all_counts[number]:,}", ha="center", fontsize=8.5)
    axes.grid(visible=False, axis="x")
    axes.set(ylim=(0, 112), yticks=range(0, 101, 20))
    axes.set(xlabel="length in bases; above the bars: records", ylabel="scored, in percent")
    words = (
        f"{name}: {share:.0f} % of {all_counts[number]:,}"
        for name, share, number in zip(names, shares, present, strict=True)
    )
    return f"Records with at least one scored chunk. {'; '.join(words)}."


def _class_name(number: int) -> str:
    def short(length: int) -> str:
        return f"{length // 1000}k" if length >= 1000 else str(length)

    if number == len(LENGTH_CLASSES) - 1:
        return f"≥ {short(LENGTH_CLASSES[-1])}"
    if number == 0:
        return f"< {short(LENGTH_CLASSES[1])}"
    return f"{short(LENGTH_CLASSES[number])}-{short(LENGTH_CLASSES[number + 1])}"


def _rates(axes: Axes, content: Content, arrays: Arrays) -> str:
    """Draw the false discovery rate over the number of records that would be called virus."""
    virus = arrays["rates"][arrays["calls"] == CALLS.index("virus")]
    rates = np.sort(arrays["rates"][~np.isnan(arrays["rates"])])
    numbers = np.arange(1, len(rates) + 1)
    shown = np.unique(np.linspace(0, len(rates) - 1, 500).astype(np.int64))
    axes.step(numbers[shown], rates[shown], where="post", color=COLOURS["virus"], linewidth=1.8)
    called = len(virus)
    if called:
        now = float(np.nanmax(virus))
        axes.plot([called], [now], "o", color=_TEXT)
        axes.annotate(
            f"this run: {called:,}",
            (called, now),
            xytext=(8, -4),
            textcoords="offset points",
        )
    axes.set(xlabel="records called virus, the surest first", ylabel="estimated fdr")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    within = [f"{int((rates <= most).sum()):,} at {percent(most)}" for most in (0.01, 0.05, 0.1)]
    return (
        f"How many records can be called virus at which estimated false discovery rate: "
        f"{', '.join(within)}. This run calls {called:,}."
    )
