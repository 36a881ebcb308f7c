"""Draw the plots of an evaluation as PNG.

The colours are those of Okabe and Ito, which the colour-blind can tell apart too.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.evaluation.evaluation import Evaluation, SliceResult
from virnucpro.evaluation.slices import cells_of, slices_of
from virnucpro.metrics.classification import Curves, Floats, curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, BLUE, ORANGE = "#000000", "#0072B2", "#D55E00"
OTHERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # lengths
DASHES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
PLOTS = ("roc.png", "pr.png", "reliability.png", "scores.png")
BAR = 0.2  # height of the highest bar of a reliability diagram
POINTS = 2000  # of a curve; more cannot be seen
DOTS_PER_INCH = 150


def draw_plots(evaluation: Evaluation) -> dict[str, bytes]:
    """Return the PNG files of ``PLOTS`` by name.

    There are none for calls without scores, and no curves where a label is missing.
    """
    if not evaluation.graded:
        return {}
    both_labels = evaluation.overall.metrics.auroc is not None
    drawn = PLOTS if both_labels else PLOTS[2:]
    draw = dict(zip(PLOTS, (_roc, _precision_recall, _reliability, _scores), strict=True))
    return {name: _png(draw[name], evaluation) for name in drawn}


def _png(draw: Callable[[Figure, Evaluation], None], evaluation: Evaluation) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5), layout="constrained")
    draw(figure, evaluation)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=DOTS_PER_INCH)
    return out.getvalue()


def _axes(figure: Figure, xlabel: str, ylabel: str) -> Axes:
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _curves(evaluation: Evaluation) -> list[tuple[SliceResult, Curves]]:
    """Return the curves of the whole sample and of the first lengths that have both labels."""
    sample, candidates = evaluation.sample, evaluation.slices[: 1 + len(OTHERS)]
    cells = cells_of(sample)
    parts = slices_of(sample, cells)
    drawn = []
    for result, part in zip(candidates, parts, strict=False):  # both in the same order
        rows = part.rows[cells.of_row]
        if result.kind != "group" and (curve := curves(sample.virus[rows], sample.scores[rows])):
            drawn.append((result, curve))
    return drawn[:1] if len(drawn) == 2 else drawn  # a single length has the same curve


def _roc(figure: Figure, evaluation: Evaluation) -> None:
    axes = _axes(figure, "others called virus (false positive rate)", "viruses found (recall)")
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="guessing 0.5")
    for i, (result, curve) in enumerate(_curves(evaluation)):
        x, y = _thinned(curve.false_positive_rate, curve.recall)
        axes.plot(x, y, label=f"{result.title} {result.metrics.auroc:.3f}", **_style(i))
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.legend(title="AUROC", loc="lower right", frameon=False)


def _precision_recall(figure: Figure, evaluation: Evaluation) -> None:
    axes = _axes(figure, "viruses found (recall)", "called virus and right (precision)")
    share = float(evaluation.sample.virus.mean())
    axes.axhline(share, color="#999999", linewidth=1, label=f"guessing {share:.3f}")
    for i, (result, curve) in enumerate(_curves(evaluation)):
        x, y = _thinned(curve.recall[1:], curve.precision[1:])
        axes.step(
            x, y, where="pre", label=f"{result.title} {result.metrics.auprc:.3f}", **_style(i)
        )
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.legend(title="AUPRC", loc="lower left", frameon=False)


def _reliability(figure: Figure, evaluation: Evaluation) -> None:
    axes = _axes(figure, "score", "share of virus")
    observed = [
        (b.mean_score, b.share_virus)
        for b in evaluation.reliability
        if b.mean_score is not None and b.share_virus is not None
    ]
    rows = np.array([b.rows for b in evaluation.reliability])
    middles = [(b.low + b.high) / 2 for b in evaluation.reliability]
    width = evaluation.reliability[0].high - evaluation.reliability[0].low
    axes.bar(
        middles,
        BAR * rows / rows.max(),
        width * 0.9,
        color="#BBBBBB",
        alpha=0.5,
        label=f"rows (highest bar: {rows.max():,})",
    )
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="calibrated")
    ece = evaluation.overall.metrics.ece
    axes.plot(
        *zip(*observed, strict=True),
        color=ORANGE,
        marker="o",
        markersize=4,
        label=f"observed, calibration error {ece:.3f}",
    )
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.05))
    axes.legend(loc="upper left", frameon=False)


def _scores(figure: Figure, evaluation: Evaluation) -> None:
    axes = _axes(figure, "score", "share of the rows of the label")
    edges = np.linspace(0, 1, 51)
    for name, chosen, colour, dash in (
        ("virus", evaluation.sample.virus, ORANGE, "-"),
        ("others", ~evaluation.sample.virus, BLUE, "--"),
    ):
        rows = int(chosen.sum())
        if rows:
            shares = np.histogram(evaluation.sample.scores[chosen], edges)[0] / rows
            axes.stairs(shares, edges, fill=True, color=colour, alpha=0.25)
            label = f"{name}, {rows:,} rows"
            axes.stairs(shares, edges, color=colour, linewidth=1.8, linestyle=dash, label=label)
    label = f"threshold {evaluation.threshold:g}"
    axes.axvline(evaluation.threshold, color=BLACK, linewidth=1, linestyle=":", label=label)
    axes.set(xlim=(-0.01, 1.01))
    figure.legend(loc="outside upper center", ncols=3, frameon=False)


def _style(number: int) -> dict[str, Any]:
    """Return the style: black for the whole sample, its own colour and dashes for each length."""
    if number == 0:
        return {"color": BLACK, "linewidth": 2}
    return {"color": OTHERS[number - 1], "linestyle": DASHES[number - 1], "linewidth": 1.5}


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Reduce a curve to at most ``POINTS`` points, its ends among them."""
    if len(x) <= POINTS:
        return x, y
    indices = np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(np.int64))
    return x[indices], y[indices]
