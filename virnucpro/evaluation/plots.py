"""Draw the plots of an evaluation as PNG."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.evaluation.measure import Evaluation, SliceResult
from virnucpro.metrics.classification import Curves, Floats, curves
from virnucpro.metrics.plots import BLACK, BLUE, ORANGE, OTHERS, plain_axes, png_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
TITLES = {
    "roc.png": "ROC curve, false positive rate on a logarithmic axis",
    "pr.png": "Precision and recall at every threshold",
    "reliability.png": "Reliability: does a score mean what it says?",
    "scores.png": "Scores of both labels",
}
PLOTS = tuple(TITLES)
Z95 = 1.959964  # quantile of the normal distribution for an interval of 95 %
POINTS = 2000  # of a curve; more cannot be seen


def draw_plots(evaluation: Evaluation, unit: str) -> dict[str, bytes]:
    """Return the PNG files of ``PLOTS`` by name.

    ``unit`` is what a row is, in the plural and in words, for the titles: ``chunks of sample``.
    There are none for calls without scores, and no curves where a label is missing.
    """
    if not evaluation.graded:
        return {}
    both_labels = evaluation.overall.metrics.auroc is not None
    drawn = PLOTS if both_labels else PLOTS[2:]
    draw = dict(zip(PLOTS, (_roc, _precision_recall, _reliability, _scores), strict=True))
    virus = int(evaluation.sample.virus.sum())
    rows = f"{unit}: {virus:,} virus, {len(evaluation.sample.virus) - virus:,} others"
    return {name: _png(draw[name], evaluation, f"{TITLES[name]}\n{rows}") for name in drawn}


def _png(draw: Callable[[Figure, Evaluation], None], evaluation: Evaluation, title: str) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5.5), layout="constrained")
    draw(figure, evaluation)
    figure.suptitle(title, fontsize="medium")
    return png_of(figure)


def _axes(figure: Figure, xlabel: str, ylabel: str) -> Axes:
    axes = plain_axes(figure.subplots())
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return axes


def _curves(evaluation: Evaluation) -> list[tuple[SliceResult, Curves]]:
    """Return the curves of the whole sample and of the first lengths that have both labels."""
    sample, drawn = evaluation.sample, []
    for result in evaluation.slices[: 1 + len(OTHERS)]:
        rows = result.part.rows[evaluation.cells.of_row]
        if result.part.kind == "group":
            continue
        if curve := curves(sample.virus[rows], sample.scores[rows]):
            drawn.append((result, curve))
    return drawn[:1] if len(drawn) == 2 else drawn  # a single length has the same curve


def _roc(figure: Figure, evaluation: Evaluation) -> None:
    """Draw recall over the logarithm of the false positive rate: good models differ at its left."""
    axes = _axes(figure, "others called virus (false positive rate)", "viruses found (recall)")
    least = 0.5 / int((~evaluation.sample.virus).sum())  # half of a single false positive
    guessing = np.geomspace(least, 1, 200)
    axes.plot(guessing, guessing, color="#999999", linewidth=1, label="guessing 0.5")
    for i, (result, curve) in enumerate(_curves(evaluation)):
        x, y = _thinned(np.maximum(curve.false_positive_rate, least), curve.recall)
        axes.plot(x, y, label=f"{result.title} {result.metrics.auroc:.3f}", **_style(i))
    axes.set(xscale="log", xlim=(least, 1.05), ylim=(-0.01, 1.01))
    axes.legend(title="AUROC", loc="best", frameon=False)


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
    """Draw the share of virus by score with its intervals, and below it the rows of each bin."""
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    bins = evaluation.reliability
    observed = [
        (b.mean_score, b.share_virus, *interval)
        for b, interval in zip(bins, _intervals(evaluation), strict=True)
        if b.mean_score is not None and b.share_virus is not None
    ]
    scores, shares, low, high = np.array(observed).T
    upper.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="calibrated")
    ece = evaluation.overall.metrics.ece
    upper.errorbar(
        scores,
        shares,
        (shares - low, high - shares),
        color=ORANGE,
        linewidth=1,
        capsize=2,
        marker="o",
        markersize=4,
        label=f"observed, calibration error {ece:.3f}",
    )
    upper.plot([], [], color=ORANGE, marker="|", markersize=9, linestyle="", label="95 % interval")
    upper.set(ylabel="share of virus", xlim=(-0.01, 1.01), ylim=(-0.02, 1.05))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    rows = np.array([b.rows for b in bins])
    lower.bar([(b.low + b.high) / 2 for b in bins], rows, 0.9 / len(bins), color="#BBBBBB")
    lower.set(xlabel="score", ylabel="rows", yscale="log", ylim=(0.5, 40 * rows.max()))
    for b in bins:
        if b.rows:
            lower.annotate(
                f"{b.rows:,}",
                ((b.low + b.high) / 2, b.rows),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=6,
                rotation=90,
            )
    for axes in (upper, lower):
        plain_axes(axes)


def _intervals(evaluation: Evaluation) -> list[tuple[float, float]]:
    """Return the 95 % interval of the share of virus in each bin of the reliability diagram.

    It is that of Wilson (1927, doi:10.1080/01621459.1927.10502953) for as many rows as the bin has
    genomes, because rows of a genome resemble each other.
    """
    bins, sample = evaluation.reliability, evaluation.sample
    numbers = np.minimum((sample.scores * len(bins)).astype(np.int64), len(bins) - 1)
    intervals = []
    for number, b in enumerate(bins):
        genomes = len(np.unique(sample.clusters[numbers == number]))
        if b.share_virus is None:
            intervals.append((0.0, 1.0))
            continue
        middle = (b.share_virus + Z95**2 / (2 * genomes)) / (1 + Z95**2 / genomes)
        spread = b.share_virus * (1 - b.share_virus) / genomes + (Z95 / (2 * genomes)) ** 2
        half = Z95 * spread**0.5 / (1 + Z95**2 / genomes)
        low, high = min(middle - half, b.share_virus), max(middle + half, b.share_virus)
        intervals.append((max(low, 0.0), min(high, 1.0)))
    return intervals


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
    if evaluation.threshold is not None:
        label = f"threshold {evaluation.threshold:g}"
        axes.axvline(evaluation.threshold, color=BLACK, linewidth=1, linestyle=":", label=label)
    axes.set(xlim=(-0.01, 1.01))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)


def _style(number: int) -> dict[str, Any]:
    """Return the style: black for the whole sample, its own colour and dashes for each length."""
    if number == 0:
        return {"color": BLACK, "linewidth": 2}
    return {"color": OTHERS[number - 1], "linestyle": DASHES[number - 1], "linewidth": 1.5}


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Reduce a curve to about ``POINTS`` points: of its whole, and more of its beginning."""
    last = len(x) - 1
    if last < POINTS:
        return x, y
    halves = np.linspace(0, last, POINTS // 2), np.geomspace(1, last, POINTS // 2)
    places = np.unique(np.concatenate(halves).astype(np.int64))
    return x[places], y[places]
