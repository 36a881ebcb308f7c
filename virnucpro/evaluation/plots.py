"""Draw the plots of an evaluation as PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.evaluation.measure import Evaluation, SliceResult
from virnucpro.metrics.classification import Bools, Floats, Ints
from virnucpro.metrics.plots import BLACK, BLUE, GREY, ORANGE, OTHERS, plain_axes, png_of

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


def _lines(evaluation: Evaluation) -> Iterator[tuple[SliceResult, Bools, Floats, dict[str, Any]]]:
    """Yield the whole sample and the first lengths that have both labels, with their rows.

    The last value is the style: black for the whole, colours and dashes of its own for a length.
    """
    sample, styles = evaluation.sample, [{"color": BLACK, "linewidth": 2}]
    for colour, dash in zip(OTHERS, DASHES, strict=True):
        styles.append({"color": colour, "linestyle": dash, "linewidth": 1.5})
    drawn = [evaluation.overall, *evaluation.of_kind("length")]
    drawn = [result for result in drawn if result.metrics.auroc is not None]
    if len(drawn) == 2:  # a single length has the same curve
        drawn.pop()
    for result, style in zip(drawn, styles, strict=False):
        rows = (result.part.virus | result.part.others)[evaluation.cells]
        yield result, sample.virus[rows], sample.scores[rows], style


def _roc(figure: Figure, evaluation: Evaluation) -> None:
    """Draw recall over the logarithm of the false positive rate: good models differ at its left."""
    from sklearn.metrics import roc_curve

    axes = _axes(figure, "others called virus (false positive rate)", "viruses found (recall)")
    least = 0.5 / int((~evaluation.sample.virus).sum())  # half of a single false positive
    guessing = np.geomspace(least, 1, 200)
    axes.plot(guessing, guessing, color=GREY, linewidth=1, label="guessing 0.5")
    for result, virus, scores, style in _lines(evaluation):
        false_positive_rate, recall, _ = roc_curve(virus, scores)
        x, y = _thinned(np.maximum(false_positive_rate, least), recall)
        axes.plot(x, y, label=f"{result.title} {result.metrics.auroc:.3f}", **style)
    axes.set(xscale="log", xlim=(least, 1.05), ylim=(-0.01, 1.01))
    axes.legend(title="AUROC", loc="best", frameon=False)


def _precision_recall(figure: Figure, evaluation: Evaluation) -> None:
    from sklearn.metrics import precision_recall_curve

    axes = _axes(figure, "viruses found (recall)", "called virus and right (precision)")
    share = float(evaluation.sample.virus.mean())
    axes.axhline(share, color=GREY, linewidth=1, label=f"guessing {share:.3f}")
    for result, virus, scores, style in _lines(evaluation):
        precision, recall, _ = precision_recall_curve(virus, scores)
        x, y = _thinned(recall[-2::-1], precision[-2::-1])
        label = f"{result.title} {result.metrics.auprc:.3f}"
        axes.step(x, y, where="pre", label=label, **style)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.legend(title="AUPRC", loc="lower left", frameon=False)


def _reliability(figure: Figure, evaluation: Evaluation) -> None:
    """Draw the share of virus by score with its intervals, and below it the rows of each bin."""
    upper, lower = map(plain_axes, figure.subplots(2, sharex=True, height_ratios=(3, 1)))
    bins, sample = evaluation.reliability, evaluation.sample
    numbers = np.minimum((sample.scores * len(bins)).astype(np.int64), len(bins) - 1)
    filled = [number for number, b in enumerate(bins) if b.rows]
    genomes = np.array([len(np.unique(sample.clusters[numbers == n])) for n in filled])
    scores = np.array([bins[n].mean_score for n in filled])
    shares = np.array([bins[n].share_virus for n in filled])
    low, high = _wilson_interval(shares, genomes)
    upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="calibrated")
    label = f"observed, calibration error {evaluation.overall.metrics.ece:.3f}"
    style: dict[str, Any] = {
        "color": ORANGE,
        "linewidth": 1,
        "capsize": 2,
        "marker": "o",
        "markersize": 4,
    }
    upper.errorbar(scores, shares, (shares - low, high - shares), label=label, **style)
    upper.plot([], [], color=ORANGE, marker="|", markersize=9, linestyle="", label="95 % interval")
    upper.set(ylabel="share of virus", xlim=(-0.01, 1.01), ylim=(-0.02, 1.05))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    rows = [bins[n].rows for n in filled]
    middles = [(bins[n].low + bins[n].high) / 2 for n in filled]
    bars = lower.bar(middles, rows, 0.9 / len(bins), color="#BBBBBB")
    lower.bar_label(bars, [f"{count:,}" for count in rows], padding=3, fontsize=6, rotation=90)
    lower.set(xlabel="score", ylabel="rows", yscale="log", ylim=(0.5, 40 * max(rows)))


def _wilson_interval(shares: Floats, genomes: Ints) -> tuple[Floats, Floats]:
    """Return the ends of the 95 % interval of each share.

    It is that of Wilson (1927, doi:10.1080/01621459.1927.10502953) for as many rows as the bin has
    genomes, because rows of a genome resemble each other.
    """
    middle = (shares + Z95**2 / (2 * genomes)) / (1 + Z95**2 / genomes)
    spread = shares * (1 - shares) / genomes + (Z95 / (2 * genomes)) ** 2
    half = Z95 * spread**0.5 / (1 + Z95**2 / genomes)
    low, high = np.minimum(middle - half, shares), np.maximum(middle + half, shares)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)


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


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Reduce a curve to about ``POINTS`` points: of its whole, and more of its beginning."""
    last = len(x) - 1
    if last < POINTS:
        return x, y
    halves = np.linspace(0, last, POINTS // 2), np.geomspace(1, last, POINTS // 2)
    places = np.unique(np.concatenate(halves).astype(np.int64))
    return x[places], y[places]
