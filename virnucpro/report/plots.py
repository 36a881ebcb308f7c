"""How plots look and become files, and the plots of a report, as SVG in the colours of its page.

The colours of files are those of Okabe and Ito, which the colour-blind can tell apart too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from html import escape
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.formatting import counted
from virnucpro.report.content import Content
from virnucpro.settings import NONVIRUS_BELOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are equal, as those of reads, where the longer one of these two is at most so many times
# as long. There is nothing to see then in a figure of lengths.
EQUAL_SHARE, EQUAL = (0.05, 0.95), 1.25
FEWEST_RECORDS = 10  # with a score; a figure of fewer says less than the table
_BINS = 40
_SCORES = (-1, -0.5, 0, 0.5, 1)  # of the axes
_VECTOR_DOTS = 2000  # more are drawn as an image: each would take 100 bytes
MOST_DOTS = 20_000  # per call; more cannot be told apart in a drawing of this size
DOTS_PER_INCH = 160
# The kinds can be told apart by the colour-blind, and stand out from white and from black.
COLOURS = {
    "virus": "#d9480f",
    "region": "#0f8a68",
    "undecided": "#a187d8",
    "nonvirus": "#3b8fd1",
    "unscored": "#8a93a3",
}
SCORED_CALLS = ("nonvirus", "undecided", "virus")
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
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handletextpad": 0.4,
}
# Above the drawing, where it covers nothing.
_LEGEND: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 0.98), "ncols": 3}
_PLACES = re.compile(r' (?:d|x|y|transform)="[^"]*"')
_DIGITS = re.compile(r"(\.\d)\d+")  # less than a tenth of a point cannot be seen


def draw_plots(content: Content) -> Iterator[tuple[str, str, str]]:
    """Yield title, drawing, and description of each figure of a run."""
    from matplotlib.figure import Figure

    plots: dict[str, Callable[[Axes, Content], str]] = {
        f"Virus scores of all {content.noun}s": _histogram,
    }
    short, long = np.quantile(content.numbers["length"], EQUAL_SHARE)
    if long > EQUAL * short:
        plots["Virus score and length"] = _scatter
    for title, draw in plots.items():
        with page_style(title):
            figure = Figure(figsize=(5.6, 3.5))
            figure.subplots_adjust(left=0.13, right=0.97, top=0.91, bottom=0.15)
            axes = figure.subplots()
            axes.grid()
            words = draw(axes, content)
            drawing = page_svg(figure, f"{title}. {words}")
        yield title, drawing, words


def page_style(salt: str) -> AbstractContextManager[None]:
    """Return the settings to draw with; ids in a drawing are made from its own ``salt``."""
    from matplotlib import rc_context

    return rc_context({**_SETTINGS, "svg.hashsalt": salt})


def page_svg(figure: Figure, label: str) -> str:
    """Return a drawing as it can stand within a page; ``label`` is it in words."""
    out = StringIO()
    figure.savefig(out, format="svg", dpi=DOTS_PER_INCH, transparent=True, metadata={"Date": None})
    text = re.sub(r"\A.*?(?=<svg)|<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    start = f'<svg role="img" aria-label="{escape(label)}"'
    text = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>',
        lambda found: f'{start} viewBox="{found[1]}" xmlns="http://www.w3.org/2000/svg">',
        text,
        count=1,
    )
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # of which some are the same in each drawing
    text = text.replace(_TEXT, "currentColor").replace(_GRID, "var(--line,#d5dae2)")
    text = _PLACES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), text)
    return re.sub(r"\n\s*", "\n", text)


def _histogram(axes: Axes, content: Content) -> str:
    """Draw how many records have which score, by call."""
    axes.hist(
        [np.clip(content.of_call(call)["score"], -1, 1) for call in SCORED_CALLS],
        np.linspace(-1, 1, _BINS + 1).tolist(),
        stacked=True,
        color=[COLOURS[call] for call in SCORED_CALLS],
        label=SCORED_CALLS,
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter("")
    axes.set(
        xlim=(-1, 1), xticks=_SCORES, xlabel="virus score", ylabel=f"{content.noun}s (log scale)"
    )
    axes.set_ylim(bottom=0.7)
    for threshold in (NONVIRUS_BELOW, content.thresholds.min_score):
        axes.axvline(threshold, color=_TEXT, linestyle="--", linewidth=1)
    axes.legend(**_LEGEND)
    nonvirus, undecided, virus = (content.tallies[call][0] for call in SCORED_CALLS)
    is_viral = content.thresholds.described(calibrated=content.calibrated)
    return (
        f"{counted(content.scored, content.noun)} with a score: {nonvirus:,} "
        f"classified as nonviral (below {NONVIRUS_BELOW:g}), {virus:,} as viral "
        f"({is_viral}), {undecided:,} undecided. The dashed lines are these scores."
    )


def _scatter(axes: Axes, content: Content) -> str:
    """Draw the score of each record over its length; weak evidence is hollow."""
    drawn = 0
    for call in SCORED_CALLS:
        rows = content.of_call(call)
        rows = rows[:: -(-len(rows) // MOST_DOTS) or 1]  # evenly from the whole input
        drawn += len(rows)
        for weak in (True, False):
            part = rows[rows["weak"] == weak]
            axes.scatter(
                part["length"],
                part["score"],
                s=6 if content.scored > _VECTOR_DOTS else 16,
                facecolors="none" if weak else COLOURS[call],
                edgecolors=COLOURS[call],
                linewidths=0.7,
                alpha=0.75,
                rasterized=content.scored > _VECTOR_DOTS,
                label="" if weak else call,
            )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")
    lengths = np.floor(np.log10(np.maximum(content.numbers["length"], 1)))
    axes.set_xlim(10 ** lengths.min(), 10 ** (lengths.max() + 1))
    axes.set(ylim=(-1.06, 1.06), yticks=_SCORES, ylabel="virus score")
    axes.set_xlabel("length in bases (log scale)")
    axes.legend(**_LEGEND)
    weak_records = sum(int(content.of_call(call)["weak"].sum()) for call in SCORED_CALLS)
    part_drawn = f" {drawn:,} of them are drawn." if drawn < content.scored else ""
    return (
        f"One dot per {content.noun}.{part_drawn} Hollow dots are weak evidence, "
        f"{counted(weak_records, content.noun)}: only one chunk was scored, or less than a quarter "
        f"of the bases."
    )


# --- plots in files of their own

BLACK, BLUE, ORANGE, GREY = "#000000", "#0072B2", "#D55E00", "#999999"
OTHERS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def plain_axes(axes: Axes) -> Axes:
    """Return axes with a grid, and without lines on the right and at the top."""
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def image_of(figure: Figure, form: str, **options: Any) -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf``. Equal figures give equal bytes."""
    from matplotlib import rc_context

    out = BytesIO()
    # Neither the time nor random names.
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with rc_context({"svg.hashsalt": "virnucpro"}):
        figure.savefig(out, format=form, metadata=dated, **{"dpi": 150, **options})
    return out.getvalue()
