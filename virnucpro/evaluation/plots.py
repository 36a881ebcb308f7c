"""The plots of an evaluation, as PNG; colours by Okabe and Ito, for the colour-blind too."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.evaluation.evaluation import Evaluation, Line
from virnucpro.evaluation.metrics import Curves, curves
from virnucpro.evaluation.sample import Floats
from virnucpro.evaluation.slices import cells_of, slices_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, BLUE, ORANGE = "#000000", "#0072B2", "#D55E00"
OTHERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # lengths
DASHES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
PLOTS = ("roc.png", "pr.png", "reliability.png", "scores.png")
BAR = 0.2  # height of the highest bar of a reliability diagram
POINTS = 2000  # of a curve; more cannot be seen
DOTS = 150  # dots an inch


def draw_plots(found: Evaluation) -> dict[str, bytes]:
    """PNG files by name, of ``PLOTS``; none of mere calls, no curves where a label is missing."""
    drawn = PLOTS if found.lines[0].measures.auroc is not None else PLOTS[2:]
    draw = dict(zip(PLOTS, (_roc, _precision_recall, _reliability, _scores), strict=True))
    return {name: _png(draw[name], found) for name in drawn} if found.graded else {}


def _png(draw: Callable[[Figure, Evaluation], None], found: Evaluation) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5), layout="constrained")
    draw(figure, found)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=DOTS)
    return out.getvalue()


def _axes(figure: Figure, xlabel: str, ylabel: str) -> Axes:
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _curves(found: Evaluation) -> list[tuple[Line, Curves]]:
    """The whole sample and the first lengths, where both labels are there."""
    sample, wanted = found.sample, found.lines[: 1 + len(OTHERS)]
    cells = cells_of(sample)
    parts = slices_of(sample, cells)
    drawn = []
    for line, part in zip(wanted, parts, strict=False):  # both in the same order
        if line.kind != "group" and line.measures.auroc is not None:
            rows = part.rows[cells.of_row]
            drawn.append((line, curves(sample.virus[rows], sample.scores[rows])))
    return drawn[:1] if len(drawn) == 2 else drawn  # a single length says the same


def _roc(figure: Figure, found: Evaluation) -> None:
    axes = _axes(figure, "others called virus (false positive rate)", "viruses found (recall)")
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="guessing 0.5")
    for i, (line, curve) in enumerate(_curves(found)):
        x, y = _thinned(curve.false_positive_rate, curve.recall)
        axes.plot(x, y, label=f"{_named(line)} {line.measures.auroc:.3f}", **_style(i))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.legend(title="AUROC", loc="lower right", frameon=False)


def _precision_recall(figure: Figure, found: Evaluation) -> None:
    axes = _axes(figure, "viruses found (recall)", "called virus and right (precision)")
    share = float(found.sample.virus.mean())
    axes.axhline(share, color="#999999", linewidth=1, label=f"guessing {share:.3f}")
    for i, (line, curve) in enumerate(_curves(found)):
        x, y = _thinned(curve.recall[1:], curve.precision[1:])
        axes.step(x, y, where="pre", label=f"{_named(line)} {line.measures.auprc:.3f}", **_style(i))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.legend(title="AUPRC", loc="lower left", frameon=False)


def _reliability(figure: Figure, found: Evaluation) -> None:
    axes = _axes(figure, "score", "share of virus")
    observed = [
        (b.mean_score, b.share_virus)
        for b in found.reliability
        if b.mean_score is not None and b.share_virus is not None
    ]
    rows = np.array([b.rows for b in found.reliability])
    middles = [(b.low + b.high) / 2 for b in found.reliability]
    width = found.reliability[0].high - found.reliability[0].low
    axes.bar(
        middles,
        BAR * rows / rows.max(),
        width * 0.9,
        color="#BBBBBB",
        alpha=0.5,
        label=f"rows (highest bar: {rows.max():,})",
    )
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="calibrated")
    ece = found.lines[0].measures.ece
    axes.plot(
        *zip(*observed, strict=True),
        color=ORANGE,
        marker="o",
        markersize=4,
        label=f"observed, calibration error {ece:.3f}",
    )
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.05))
    axes.legend(loc="upper left", frameon=False)


def _scores(figure: Figure, found: Evaluation) -> None:
    axes = _axes(figure, "score", "share of the rows of the label")
    edges = np.linspace(0, 1, 51)
    for name, chosen, colour, dash in (
        ("virus", found.sample.virus, ORANGE, "-"),
        ("others", ~found.sample.virus, BLUE, "--"),
    ):
        rows = int(chosen.sum())
        if rows:
            shares = np.histogram(found.sample.scores[chosen], edges)[0] / rows
            axes.stairs(shares, edges, fill=True, color=colour, alpha=0.25)
            label = f"{name}, {rows:,} rows"
            axes.stairs(shares, edges, color=colour, linewidth=1.8, linestyle=dash, label=label)
    label = f"threshold {found.threshold:g}"
    axes.axvline(found.threshold, color=BLACK, linewidth=1, linestyle=":", label=label)
    axes.set(xlim=(-0.01, 1.01))
    figure.legend(loc="outside upper center", ncols=3, frameon=False)


def _named(line: Line) -> str:
    return f"{line.name} bases" if line.kind == "length" else line.name


def _style(number: int) -> dict[str, Any]:
    """The whole sample in black; lengths in colours and dashes of their own."""
    if number == 0:
        return {"color": BLACK, "linewidth": 2}
    return {"color": OTHERS[number - 1], "linestyle": DASHES[number - 1], "linewidth": 1.5}


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most ``POINTS`` points of a curve, its ends among them."""
    if len(x) <= POINTS:
        return x, y
    kept = np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(np.int64))
    return x[kept], y[kept]
