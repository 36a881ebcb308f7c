"""Draw the plots of an evaluation as PNG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.evaluation.measure import SliceRow, slice_title
from virnucpro.metrics import BINS, Bools, Floats
from virnucpro.report.plots import BLACK, GREY, ORANGE, OTHERS, image_of, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
TITLES = {
    "roc.png": "ROC curve, false positive rate on a logarithmic axis",
    "pr.png": "Precision and recall at every threshold",
    "reliability.png": "Reliability: does a score mean what it says?",
}
PLOTS = tuple(TITLES)


def draw_plots(rows: DataFrame, measured: Mapping[str, Any], unit: str) -> dict[str, bytes]:
    """Return the PNG files of ``PLOTS`` by name, of what ``evaluate`` returns.

    ``unit`` is what a row is, in the plural and in words, for the titles: ``chunks of sample``.
    There are no curves where a label is missing.
    """
    from matplotlib.figure import Figure

    whole, plots = measured["slices"][0], {}
    amounts = f"{unit}: {whole['virus']:,} virus, {whole['others']:,} others"
    draws = dict(zip(PLOTS, (_roc, _precision_recall, _reliability), strict=True))
    for name in PLOTS if whole["auroc"] is not None else PLOTS[2:]:
        figure = Figure(figsize=(5.5, 5.5), layout="constrained")
        draws[name](figure, rows, measured)
        figure.suptitle(f"{TITLES[name]}\n{amounts}", fontsize="medium")
        plots[name] = image_of(figure, "png")
    return plots


def _lines(
    rows: DataFrame, measured: Mapping[str, Any]
) -> Iterator[tuple[SliceRow, Bools, Floats, dict[str, Any]]]:
    """Yield the whole sample and the first lengths that have both labels, with rows and a style."""
    of_kinds = [row for row in measured["slices"] if row["slice"] != "group"]
    drawn = [row for row in of_kinds if row["auroc"] is not None]
    if len(drawn) == 2:  # a single length has the same curve
        drawn.pop()
    for row, colour, dash in zip(drawn, (BLACK, *OTHERS), DASHES, strict=False):
        part = rows[rows.length == row["name"]] if row["slice"] == "length" else rows
        style = {"color": colour, "linestyle": dash, "linewidth": 1.5}
        yield row, part.virus.to_numpy(), part.score.to_numpy(np.float64), style


def _roc(figure: Figure, rows: DataFrame, measured: Mapping[str, Any]) -> None:
    """Draw recall over the logarithm of the false positive rate: good models differ at its left."""
    from sklearn.metrics import roc_curve

    axes = plain_axes(figure.subplots())
    axes.set(xlabel="false positive rate of others", ylabel="viruses found (recall)")
    least = 0.5 / int((~rows.virus).sum())  # half of a single false positive
    guessing = np.geomspace(least, 1, 200)
    axes.plot(guessing, guessing, color=GREY, linewidth=1, label="guessing 0.5")
    for row, virus, scores, style in _lines(rows, measured):
        false_positive_rate, recall, _ = roc_curve(virus, scores)
        label = f"{slice_title(row)} {row['auroc']:.3f}"
        axes.plot(np.maximum(false_positive_rate, least), recall, label=label, **style)
    axes.set(xscale="log", xlim=(least, 1.05), ylim=(-0.01, 1.01))
    axes.legend(title="AUROC", loc="best", frameon=False)


def _precision_recall(figure: Figure, rows: DataFrame, measured: Mapping[str, Any]) -> None:
    from sklearn.metrics import precision_recall_curve

    axes = plain_axes(figure.subplots())
    axes.set(xlabel="viruses found (recall)", ylabel="classified as viral and right (precision)")
    share = float(rows.virus.mean())
    axes.axhline(share, color=GREY, linewidth=1, label=f"guessing {share:.3f}")
    for row, virus, scores, style in _lines(rows, measured):
        precision, recall, _ = precision_recall_curve(virus, scores, drop_intermediate=True)
        label = f"{slice_title(row)} {row['auprc']:.3f}"
        axes.step(recall[-2::-1], precision[-2::-1], where="pre", label=label, **style)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.legend(title="AUPRC", loc="lower left", frameon=False)


def _reliability(figure: Figure, rows: DataFrame, measured: Mapping[str, Any]) -> None:
    """Draw the share of virus by score, and below it the rows of each bin."""
    from pandas import DataFrame

    upper, lower = map(plain_axes, figure.subplots(2, sharex=True, height_ratios=(3, 1)))
    bins = DataFrame(measured["reliability"]).query("rows > 0")
    upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="calibrated")
    label = f"observed, calibration error {measured['slices'][0]['ece']:.3f}"
    upper.plot(bins.mean_score, bins.share_virus, "o-", color=ORANGE, markersize=4, label=label)
    upper.set(ylabel="share of virus", xlim=(-0.01, 1.01), ylim=(-0.02, 1.05))
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    bars = lower.bar((bins.low + bins.high) / 2, bins.rows, 0.9 / BINS, color="#BBBBBB")
    lower.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=6, rotation=90)
    lower.set(xlabel="score", ylabel="rows", yscale="log", ylim=(0.5, 40 * bins.rows.max()))
