"""Draw the plots of an evaluation as PNG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.evaluation.measure import Evaluation, slice_title
from virnucpro.metrics.classification import BINS, Bools, Floats
from virnucpro.metrics.plots import BLACK, GREY, ORANGE, OTHERS, image_of, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
TITLES = {
    "roc.png": "ROC curve, false positive rate on a logarithmic axis",
    "pr.png": "Precision and recall at every threshold",
    "reliability.png": "Reliability: does a score mean what it says?",
}
PLOTS = tuple(TITLES)


def draw_plots(evaluation: Evaluation, unit: str) -> dict[str, bytes]:
    """Return the PNG files of ``PLOTS`` by name.

    ``unit`` is what a row is, in the plural and in words, for the titles: ``chunks of sample``.
    There are no curves where a label is missing.
    """
    from matplotlib.figure import Figure

    metrics, plots = evaluation.slices[0], {}
    rows = f"{unit}: {metrics['virus']:,} virus, {metrics['others']:,} others"
    draws = dict(zip(PLOTS, (_roc, _precision_recall, _reliability), strict=True))
    for name in PLOTS if metrics["auroc"] is not None else PLOTS[2:]:
        figure = Figure(figsize=(5.5, 5.5), layout="constrained")
        draws[name](figure, evaluation)
        figure.suptitle(f"{TITLES[name]}\n{rows}", fontsize="medium")
        plots[name] = image_of(figure, "png")
    return plots


def _lines(
    evaluation: Evaluation,
) -> Iterator[tuple[dict[str, Any], Bools, Floats, dict[str, Any]]]:
    """Yield the whole sample and the first lengths that have both labels, with rows and a style."""
    rows, lengths = evaluation.sample.rows, evaluation.of_kind("length")
    drawn = [row for row in (evaluation.slices[0], *lengths) if row["auroc"] is not None]
    if len(drawn) == 2:  # a single length has the same curve
        drawn.pop()
    for row, colour, dash in zip(drawn, (BLACK, *OTHERS), DASHES, strict=False):
        part = rows[rows.length == row["name"]] if row["slice"] == "length" else rows
        style = {"color": colour, "linestyle": dash, "linewidth": 1.5}
        yield row, part.virus.to_numpy(), part.score.to_numpy(np.float64), style


def _roc(figure: Figure, evaluation: Evaluation) -> None:
    """Draw recall over the logarithm of the false positive rate: good models differ at its left."""
    from sklearn.metrics import roc_curve

    axes = plain_axes(figure.subplots())
    axes.set(xlabel="false positive rate of others", ylabel="viruses found (recall)")
    least = 0.5 / int((~evaluation.sample.rows.virus).sum())  # half of a single false positive
    guessing = np.geomspace(least, 1, 200)
    axes.plot(guessing, guessing, color=GREY, linewidth=1, label="guessing 0.5")
    for row, virus, scores, style in _lines(evaluation):
        false_positive_rate, recall, _ = roc_curve(virus, scores)
        label = f"{slice_title(row)} {row['auroc']:.3f}"
        axes.plot(np.maximum(false_positive_rate, least), recall, label=label, **style)
    axes.set(xscale="log", xlim=(least, 1.05), ylim=(-0.01, 1.01))
    axes.legend(title="AUROC", loc="best", frameon=False)


def _precision_recall(figure: Figure, evaluation: Evaluation) -> None:
    from sklearn.metrics import precision_recall_curve

    axes = plain_axes(figure.subplots())
    axes.set(xlabel="viruses found (recall)", ylabel="classified as viral and right (precision)")
    share = float(evaluation.sample.rows.virus.mean())
    axes.axhline(share, color=GREY, linewidth=1, label=f"guessing {share:.3f}")
    for row, virus, scores, style in _lines(evaluation):
        precision, recall, _ = precision_recall_curve(virus, scores, drop_intermediate=True)
        label = f"{slice_title(row)} {row['auprc']:.3f}"
        axes.step(recall[-2::-1], precision[-2::-1], where="pre", label=label, **style)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.legend(title="AUPRC", loc="lower left", frameon=False)


def _reliability(figure: Figure, evaluation: Evaluation) -> None:
    """Draw the share of virus by score, and below it the rows of each bin."""
    from pandas import DataFrame

    upper, lower = map(plain_axes, figure.subplots(2, sharex=True, height_ratios=(3, 1)))
    bins = DataFrame(evaluation.reliability).query("rows > 0")
    upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="calibrated")
    label = f"observed, calibration error {evaluation.slices[0]['ece']:.3f}"
    upper.plot(bins.mean_score, bins.share_virus, "o-", color=ORANGE, markersize=4, label=label)
    upper.set(ylabel="share of virus", xlim=(-0.01, 1.01), ylim=(-0.02, 1.05))
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    bars = lower.bar((bins.low + bins.high) / 2, bins.rows, 0.9 / BINS, color="#BBBBBB")
    lower.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=6, rotation=90)
    lower.set(xlabel="score", ylabel="rows", yscale="log", ylim=(0.5, 40 * bins.rows.max()))
