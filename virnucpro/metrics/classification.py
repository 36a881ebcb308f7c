"""How well scores and calls separate viruses from others.

The positive class is virus. A metric that the data does not define, such as the AUROC of one class
only, is None and never 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Metrics = dict[str, float | None]

BINS = 15  # of equal width, as in Guo et al. 2017 (arXiv:1706.04599)


def call_metrics(virus: Bools, called: Bools) -> Metrics:
    """Compare the labels ``virus`` and the calls ``called``, both ``[n]``: counts and metrics."""
    tp, fp, tn, fn = (
        int(np.count_nonzero((called == call) & (virus == label)))
        for call, label in ((True, True), (True, False), (False, False), (False, True))
    )
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
