"""Figures of merit of scores for two classes. What is not defined is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from virnucpro.evaluation.sample import Bools, Floats, Ints

BINS = 15  # of equal width, as Guo et al. 2017 (arXiv:1706.04599)
ONE_CLASS = "one class only: AUROC, AUPRC, precision and F1 are not defined"
NO_SCORES = "calls without scores: AUROC, AUPRC, Brier score and calibration are not defined"


@dataclass(frozen=True)
class Measures:
    """Counts and figures. The class that is looked for is virus.

    ``auprc`` is the average precision; ``brier`` the mean squared error of the score; ``ece`` the
    expected calibration error.
    """

    rows: int
    virus: int
    others: int
    tp: int
    fp: int
    tn: int
    fn: int
    accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    auroc: float | None
    auprc: float | None
    brier: float | None
    ece: float | None


class Curves(NamedTuple):
    """Float64 arrays of one length: from the strictest threshold to the laxest, both included."""

    false_positive_rate: Floats
    recall: Floats
    precision: Floats


@dataclass(frozen=True)
class Bin:
    """Rows whose scores lie in ``[low, high)``; the last bin includes 1."""

    low: float
    high: float
    rows: int
    mean_score: float | None
    share_virus: float | None


def measure(virus: Bools, scores: Floats, threshold: float, *, graded: bool = True) -> Measures:
    """All figures of ``[n]`` rows; a row is called virus where its score is at least ``threshold``.

    ``graded`` is False where the scores are calls: what needs more is None then.
    """
    called = scores >= threshold
    positive, negative = int(virus.sum()), int((~virus).sum())
    tp, fp = int((called & virus).sum()), int((called & ~virus).sum())
    fn, tn = positive - tp, negative - fp
    both = positive > 0 and negative > 0
    found = curves(virus, scores) if both and graded else None
    return Measures(
        rows=len(virus),
        virus=positive,
        others=negative,
        tp=tp,
        fp=fp,
        tn=tn,
        fn=fn,
        accuracy=_share(tp + tn, len(virus)),
        precision=_share(tp, tp + fp) if both else None,
        recall=_share(tp, positive),
        f1=_share(2 * tp, 2 * tp + fp + fn) if both else None,
        auroc=None if found is None else auroc(found),
        auprc=None if found is None else average_precision(found),
        brier=float(np.mean((scores - virus) ** 2)) if graded and len(virus) else None,
        ece=calibration_error(reliability(virus, scores)) if graded and len(virus) else None,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def curves(virus: Bools, scores: Floats) -> Curves:
    """ROC and precision-recall curve of ``[n]`` rows of both classes."""
    from sklearn.metrics import roc_curve

    fpr, recall, _ = roc_curve(virus, scores, drop_intermediate=False)
    positive, negative = virus.sum(), (~virus).sum()
    tp, fp = recall * positive, fpr * negative
    called = tp + fp
    precision = np.divide(tp, called, out=np.ones_like(tp), where=called > 0)
    return Curves(fpr, recall, precision)


def auroc(found: Curves) -> float:
    """Area under the ROC curve: the chance that a virus scores above another; ties count half."""
    from sklearn.metrics import auc

    return float(auc(found.false_positive_rate, found.recall))


def average_precision(found: Curves) -> float:
    """Precision, averaged over the steps of recall. A lone curve through them would be too high."""
    return float(np.sum(np.diff(found.recall) * found.precision[1:]))


def reliability(virus: Bools, scores: Floats) -> list[Bin]:
    """The ``BINS`` of a reliability diagram: how many of the rows that score so are virus."""
    number = bin_of(scores)
    rows = np.bincount(number, minlength=BINS)
    total = np.bincount(number, scores, BINS)
    hits = np.bincount(number, virus.astype(np.float64), BINS)
    return [
        Bin(
            i / BINS,
            (i + 1) / BINS,
            int(rows[i]),
            float(total[i] / rows[i]) if rows[i] else None,
            float(hits[i] / rows[i]) if rows[i] else None,
        )
        for i in range(BINS)
    ]


def bin_of(scores: Floats) -> Ints:
    """``[n]`` numbers of the reliability bins."""
    return np.minimum((scores * BINS).astype(np.int64), BINS - 1)


def calibration_error(bins: list[Bin]) -> float:
    """Mean distance between score and share of virus, over the bins, weighted by their rows.

    Guo et al. take the score of the class that is called; here it is that of virus for both
    classes, so that too many viruses among others and the reverse do not hide each other.
    """
    rows = sum(b.rows for b in bins)
    apart = (
        b.rows * abs(b.mean_score - b.share_virus)
        for b in bins
        if b.mean_score is not None and b.share_virus is not None
    )
    return sum(apart) / rows
