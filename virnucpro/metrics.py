"""How well scores and calls separate viruses from others, with intervals, and their calibration.

The positive class is virus. A metric that the data does not define, such as the AUROC of one class
only, is None and never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Metrics = dict[str, float | None]

BINS = 15  # of equal width, as in Guo et al. 2017 (arXiv:1706.04599)


def call_metrics(virus: Bools, called: Bools) -> Metrics:
    """Compare the labels ``virus`` and the calls ``called``, both ``[n]``: counts and metrics."""
    tn, fp, fn, tp = np.bincount(2 * virus + called, minlength=4).tolist()
    counts = {"rows": len(virus), "virus": tp + fn, "others": fp + tn}
    rates = rates_of_counts(*np.array([[tp], [fp], [tn], [fn]], np.float64))
    values = {name: None if np.isnan(rate[0]) else float(rate[0]) for name, rate in rates.items()}
    return {**counts, "tp": tp, "fp": fp, "tn": tn, "fn": fn, **values}


def rates_of_counts(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> dict[str, Floats]:
    """Return metrics from ``[n]`` counts, NaN where they are not defined.

    ``mcc`` is the correlation coefficient of Matthews (1975): -1 to 1, 0 for guessing. Like
    precision and F1, it is not defined where one class is missing.
    """
    positive, negative = tp + fn, fp + tn
    both_classes = np.where((positive > 0) & (negative > 0), 1.0, np.nan)
    product = np.sqrt((tp + fp) * (tn + fn) * positive * negative)
    return {
        "accuracy": ratio_or_nan(tp + tn, positive + negative),
        "precision": ratio_or_nan(tp, tp + fp) * both_classes,
        "recall": ratio_or_nan(tp, positive),
        "f1": ratio_or_nan(2 * tp, 2 * tp + fp + fn) * both_classes,
        "mcc": ratio_or_nan(tp * tn - fp * fn, product),
    }


def ratio_or_nan(part: Floats, whole: Floats) -> Floats:
    """Divide two arrays. The result is NaN where ``whole`` is 0."""
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)


def auroc(virus: Bools, scores: Floats) -> float | None:
    """Compute the area under the ROC curve of ``[n]`` rows, or None where a class is missing.

    It is the chance that a virus scores above another row. A tie counts as half.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(virus, scores)) if 0 < virus.sum() < len(virus) else None


def score_metrics(virus: Bools, scores: Floats) -> Metrics:
    """Return the metrics of ``[n]`` scores from 0 to 1, over all thresholds.

    ``auprc`` is the average precision, ``brier`` the mean squared error of the score, ``ece`` the
    expected calibration error.
    """
    from sklearn.metrics import average_precision_score

    area = auroc(virus, scores)
    return {
        "auroc": area,
        "auprc": None if area is None else float(average_precision_score(virus, scores)),
        "brier": float(np.mean((scores - virus) ** 2)) if len(virus) else None,
        "ece": calibration_error(virus, scores) if len(virus) else None,
    }


def score_bins(scores: Floats) -> Ints:
    """Return the number of the bin of a reliability diagram that each score lies in."""
    return np.minimum((scores * BINS).astype(np.int64), BINS - 1)


def calibration_error(virus: Bools, scores: Floats) -> float:
    """Return the mean distance between score and share of viruses over the bins, weighted by rows.

    Guo et al. take the score of the class that is called. Here it is the score of virus for both
    classes, so that too many viruses among others and the reverse do not hide each other.
    """
    distances = np.bincount(score_bins(scores), scores - virus, BINS)
    return float(np.abs(distances).sum() / len(scores))


def metric_text(value: float | None) -> str:
    """Format a metric with four digits, or as ``NA`` where it is not defined."""
    return "NA" if value is None else f"{value:.4f}"


# --- 95 % intervals, from resampled genomes. Rows of one genome resemble each other, so genomes are
# drawn and not rows: with replacement, as many of each label as there are (a cluster bootstrap;
# Field and Welsh 2007, JRSS B 69:369-390).

Interval = tuple[float, float] | None

RESAMPLES = 200
LEVELS = 512  # of scores, equally filled; rows of one level count as ties within a resample


def draw_genomes(
    generator: np.random.Generator, genomes_of_labels: Sequence[Ints], genomes: int
) -> Floats:
    """Draw as many genomes of each label as there are, with replacement.

    Args:
        genomes_of_labels: the numbers of the genomes of each label.
        genomes: the number of all genomes.

    Returns:
        ``[genomes]``, how often each one was drawn.
    """
    draws = np.zeros(genomes)
    for members in genomes_of_labels:
        if len(members):
            drawn = generator.integers(0, len(members), len(members))
            draws[members] = np.bincount(drawn, minlength=len(members))
    return draws


def score_levels(scores: Floats) -> Ints:
    """Replace ``[n]`` scores by whole numbers below ``LEVELS`` in the same order."""
    ends = np.unique(np.quantile(scores, np.linspace(0, 1, LEVELS)[1:-1], method="lower"))
    return np.searchsorted(ends, scores).astype(np.int64)


def auroc_of_counts(virus: Floats, others: Floats) -> Floats:
    """Compute ``[slices]`` areas from the counts ``[slices, LEVELS]`` of both labels."""
    below = np.cumsum(others, axis=1) - others / 2
    return ratio_or_nan((virus * below).sum(axis=1), virus.sum(axis=1) * others.sum(axis=1))


def percentile_interval(values: Floats) -> Interval:
    """Return the middle 95 % of the ``[RESAMPLES]`` values that are not NaN.

    The result is None where less than half of the values are defined.
    """
    defined = values[~np.isnan(values)]
    if len(defined) < RESAMPLES / 2:
        return None
    low, high = np.percentile(defined, (2.5, 97.5))
    return float(low), float(high)


# --- temperature scaling (Guo et al. 2017, arXiv:1706.04599): one number that calibrates scores

LOWEST, HIGHEST = 0.05, 20.0  # a temperature outside means that the data is wrong, not the scale


def log_loss(virus: Bools, margins: Floats) -> float:
    """Return the mean negative log likelihood, in nats, of ``[n]`` labels.

    Args:
        virus: the labels.
        margins: the logit of virus less the logit of others, divided by the temperature.
    """
    return float(np.logaddexp(0, np.where(virus, -margins, margins)).mean())


def fit_temperature(margins: Floats, labels: npt.NDArray[Any]) -> float:
    """Return the temperature at which ``margins / T`` make the ``labels`` most likely.

    It lies between ``LOWEST`` and ``HIGHEST``. Where every row is on its own side, no temperature
    is the likeliest, and the result is 1.0.

    Args:
        margins: ``[n]``, the logit of virus less that of others.
        labels: ``[n]``, 0 for others and 1 for virus; at least one.
    """
    from scipy.optimize import minimize_scalar

    virus = labels == 1
    if (np.where(virus, margins, -margins) > 0).all():
        return 1.0
    found = minimize_scalar(
        lambda logarithm: log_loss(virus, margins / np.exp(logarithm)),
        bounds=np.log([LOWEST, HIGHEST]),
        options={"xatol": 1e-9},
    )
    return float(np.exp(found.x))
