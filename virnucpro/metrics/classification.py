"""How well scores and calls separate viruses from others.

The positive class is virus. A metric that the data does not define, such as the AUROC of one class
only, is None and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BINS = 15  # of equal width, as in Guo et al. 2017 (arXiv:1706.04599)
METRICS = ("rows", "virus", "others", "tp", "fp", "tn", "fn", "accuracy", "precision", "recall",
           "f1", "mcc", "auroc", "auprc", "brier", "ece")  # fmt: skip


@dataclass(frozen=True)
class ConfusionCounts:
    """True and false positives and negatives, and the metrics that follow from them."""

    tp: int
    fp: int
    tn: int
    fn: int

    @property
    def virus(self) -> int:
        """The number of viruses."""
        return self.tp + self.fn

    @property
    def others(self) -> int:
        """The number of rows that are not viruses."""
        return self.fp + self.tn

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return self.virus + self.others

    @property
    def both_classes(self) -> bool:
        """Whether there is a row of each class."""
        return self.virus > 0 and self.others > 0

    @property
    def accuracy(self) -> float | None:
        """The share of the rows that are called correctly."""
        return _ratio(self.tp + self.tn, self.rows)

    @property
    def precision(self) -> float | None:
        """The share of viruses among the rows that are called virus."""
        return _ratio(self.tp, self.tp + self.fp) if self.both_classes else None

    @property
    def recall(self) -> float | None:
        """The share of the viruses that are called virus."""
        return _ratio(self.tp, self.virus)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall."""
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn) if self.both_classes else None

    @property
    def mcc(self) -> float | None:
        """Matthews correlation coefficient (Matthews 1975): -1 to 1, 0 for guessing.

        It is not defined where one class is missing or all rows get the same call.
        """
        calls = (self.tp + self.fp) * (self.tn + self.fn)
        return _ratio(
            self.tp * self.tn - self.fp * self.fn, math.sqrt(calls * self.virus * self.others)
        )


def confusion_counts(virus: Bools, called: Bools) -> ConfusionCounts:
    """Compare the labels ``virus`` and the calls ``called``, both ``[n]``."""
    tp, fp = int((called & virus).sum()), int((called & ~virus).sum())
    return ConfusionCounts(tp, fp, int((~virus).sum()) - fp, int(virus.sum()) - tp)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def auroc(virus: Bools, scores: Floats) -> float | None:
    """Compute the area under the ROC curve of ``[n]`` rows, or None where a class is missing.

    It is the chance that a virus scores above another row. A tie counts as half.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(virus, scores)) if 0 < virus.sum() < len(virus) else None


@dataclass(frozen=True)
class ReliabilityBin:
    """Rows whose scores lie in ``[low, high)``. The last bin includes 1.

    The mean score and the share of viruses are None in an empty bin.
    """

    low: float
    high: float
    rows: int
    mean_score: float | None
    share_virus: float | None


def reliability(virus: Bools, scores: Floats) -> list[ReliabilityBin]:
    """Sort ``[n]`` rows into the ``BINS`` bins of a reliability diagram."""
    number = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(number, minlength=BINS)
    total_score = np.bincount(number, scores, BINS)
    viruses = np.bincount(number, virus.astype(np.float64), BINS)
    return [
        ReliabilityBin(
            i / BINS,
            (i + 1) / BINS,
            int(rows[i]),
            float(total_score[i] / rows[i]) if rows[i] else None,
            float(viruses[i] / rows[i]) if rows[i] else None,
        )
        for i in range(BINS)
    ]


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the mean distance between score and share of viruses over the bins, weighted by rows.

    Guo et al. take the score of the class that is called. Here it is the score of virus for both
    classes, so that too many viruses among others and the reverse do not hide each other.
    """
    rows = sum(b.rows for b in bins)
    distances = (
        b.rows * abs(b.mean_score - b.share_virus)
        for b in bins
        if b.mean_score is not None and b.share_virus is not None
    )
    return sum(distances) / rows


@dataclass(frozen=True)
class ScoreMetrics(ConfusionCounts):
    """The metrics of scores from 0 to 1, at one threshold and over all thresholds.

    Attributes:
        auroc: area under the ROC curve.
        auprc: average precision.
        brier: mean squared error of the score.
        ece: expected calibration error.
    """

    auroc: float | None
    auprc: float | None
    brier: float | None
    ece: float | None

    def as_dict(self) -> dict[str, int | float | None]:
        """Return every count and metric by its name."""
        return {name: getattr(self, name) for name in METRICS}


def measure_scores(
    virus: Bools,
    scores: Floats,
    threshold: float,
    *,
    graded: bool = True,
    called: Bools | None = None,
) -> ScoreMetrics:
    """Compute all metrics of ``[n]`` rows.

    Args:
        virus: the labels.
        scores: 0 to 1.
        threshold: a row is called virus where its score is at least this.
        graded: False where the scores are calls (0 or 1). What needs more than a call is None then.
        called: the calls, where they do not follow from the threshold.
    """
    from sklearn.metrics import average_precision_score

    counts = confusion_counts(virus, scores >= threshold if called is None else called)
    graded = graded and len(virus) > 0
    both = graded and counts.both_classes
    return ScoreMetrics(
        **asdict(counts),
        auroc=auroc(virus, scores) if both else None,
        auprc=float(average_precision_score(virus, scores)) if both else None,
        brier=float(np.mean((scores - virus) ** 2)) if graded else None,
        ece=calibration_error(reliability(virus, scores)) if graded else None,
    )


def metric_text(value: float | None) -> str:
    """Format a metric with four digits, or as ``NA`` where it is not defined."""
    return "NA" if value is None else f"{value:.4f}"
