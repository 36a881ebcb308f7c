"""How well models find the RCL: by sequence, with proteins that have none, and by residue."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from virnucpro.events import StepProgress
from virnucpro.metrics.bootstrap import (
    LEVELS,
    RESAMPLES,
    Interval,
    auroc_of_counts,
    draw_genomes,
    percentile_interval,
    ratio_or_nan,
)
from virnucpro.metrics.classification import Floats
from virnucpro.rcl.finders import RclFinder
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.rcl.rule import RclRegion

NEAR = 2  # residues: an RCL whose ends are both that near to the annotated ones counts as exact
BLOCK = 128  # proteins that a model gets at once
SEED = 0  # of the resampling
SEQUENCE_METRICS = ("accuracy", "precision", "recall", "f1", "mean_iou", "exact")
RESIDUE_METRICS = (
    "residue_accuracy",
    "residue_precision",
    "residue_recall",
    "residue_f1",
    "residue_mcc",
    "residue_auroc",
)


@dataclass(frozen=True)
class ProteinOutcome:
    """What a model says about a protein: the status and the region of an ``RclResult``."""

    protein: AnnotatedProtein
    status: str
    region: RclRegion | None

    @property
    def iou(self) -> float:
        """Residues in both regions divided by residues in one of them; 0 without a region."""
        if self.region is None:
            return 0.0
        start, end = self.protein.start, self.protein.end
        shared = max(min(self.region.end, end) - max(self.region.start, start) + 1, 0)
        return shared / (end - start + 1 + self.region.length - shared)

    @property
    def exact(self) -> bool:
        """Whether both ends are within ``NEAR`` residues of the annotated ones."""
        if self.region is None or not self.protein.has_rcl:
            return False
        starts, ends = (self.region.start, self.protein.start), (self.region.end, self.protein.end)
        return max(abs(starts[0] - starts[1]), abs(ends[0] - ends[1])) <= NEAR

    @property
    def missed(self) -> bool:
        """Whether it is not right: not found, not exact, or found where there is none."""
        return not self.exact if self.protein.has_rcl else self.region is not None


@dataclass(frozen=True)
class RclEvaluation:
    """The metrics of a model.

    Attributes:
        label: the model.
        sha256: of its file.
        outcomes: of each protein.
        metrics: by name; None where these proteins do not define a metric.
        intervals: the middle 95 % of the metrics of resampled proteins, by name.
        rate: proteins per second.
    """

    label: str
    sha256: str
    outcomes: Sequence[ProteinOutcome]
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval]
    rate: float

    def count(self, *, has_rcl: bool, found: bool) -> int:
        """Return how many proteins have an RCL, or not, and get one, or not."""
        return sum(
            outcome.protein.has_rcl == has_rcl and (outcome.region is not None) == found
            for outcome in self.outcomes
        )


def evaluate_finder(
    finder: RclFinder, proteins: Sequence[AnnotatedProtein], progress: StepProgress
) -> RclEvaluation:
    """Apply a model to proteins, and measure it.

    A residue is called where its probability is above the threshold; for a profile, where it lies
    in the region. Intervals come from resampled proteins, as many with an RCL, and as many
    without, as there are (a bootstrap that is stratified by class).
    """
    outcomes: list[ProteinOutcome] = []
    counts = np.zeros((len(proteins), 4))  # residues: tp, fp, tn, fn
    levels = np.zeros((2, len(proteins), LEVELS))  # others and RCL, by probability
    progress.begin(f"measuring {finder.label}", len(proteins))
    started = time.perf_counter()
    for start in range(0, len(proteins), BLOCK):
        block = proteins[start : start + BLOCK]
        results = finder.find([protein.sequence for protein in block])
        for number, (protein, result) in enumerate(zip(block, results, strict=True), start):
            outcomes.append(ProteinOutcome(protein, result.status, result.region))
            truth = protein.labels() == 1
            called = result.probabilities > finder.rule.threshold
            if finder.encoding == "hmm":
                called[:] = False
                if result.region is not None:
                    called[result.region.start - 1 : result.region.end] = True
            both = (called & truth, called & ~truth, ~called & ~truth, ~called & truth)
            counts[number] = [cells.sum() for cells in both]
            # Levels are finer near 0 and 1, where the probabilities of most residues lie.
            margin = np.clip(result.probabilities.astype(np.float64), 1e-7, 1 - 1e-7)
            place = (np.log(margin / (1 - margin)) / 33 + 0.5) * LEVELS
            level = np.clip(place.astype(np.int64), 0, LEVELS - 1)
            for kind in (0, 1):
                levels[kind, number] = np.bincount(level[truth == kind], minlength=LEVELS)
        progress.advance(len(block))
    rate = len(proteins) / max(time.perf_counter() - started, 1e-9)
    whole = _metrics(np.ones((1, len(proteins))), outcomes, counts, levels)
    has_rcl = np.array([protein.has_rcl for protein in proteins])
    random = np.random.default_rng(SEED)
    strata = [np.flatnonzero(has_rcl), np.flatnonzero(~has_rcl)]
    draws = np.stack([draw_genomes(random, strata, len(proteins)) for _ in range(RESAMPLES)])
    resampled = _metrics(draws, outcomes, counts, levels)
    metrics = {
        name: None if np.isnan(values[0]) else float(values[0]) for name, values in whole.items()
    }
    intervals = {name: percentile_interval(values) for name, values in resampled.items()}
    return RclEvaluation(finder.label, finder.sha256, outcomes, metrics, intervals, rate)


def _metrics(
    draws: Floats, outcomes: Sequence[ProteinOutcome], counts: Floats, levels: Floats
) -> dict[str, Floats]:
    """Return every metric for each row of ``draws`` ``[n, proteins]``: how often a protein counts.

    A metric that is not defined is NaN.
    """
    truth = np.array([outcome.protein.has_rcl for outcome in outcomes], np.float64)
    found = np.array([outcome.region is not None for outcome in outcomes], np.float64)
    cells = [found * truth, found * (1 - truth), (1 - found) * (1 - truth), (1 - found) * truth]
    tp, fp, tn, fn = (draws @ np.stack(cells, axis=1)).T
    iou = np.array([outcome.iou for outcome in outcomes])
    exact = np.array([float(outcome.exact) for outcome in outcomes])
    both_classes = np.where((tp + fn > 0) & (fp + tn > 0), 1.0, np.nan)
    values = _rates(tp, fp, tn, fn)
    values["precision"] = values["precision"] * both_classes
    values["f1"] = values["f1"] * both_classes
    values["mean_iou"] = ratio_or_nan(draws @ iou, tp + fn)
    values["exact"] = ratio_or_nan(draws @ exact, tp + fn)
    tp, fp, tn, fn = (draws @ counts).T
    product = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    values |= {f"residue_{name}": rate for name, rate in _rates(tp, fp, tn, fn).items()}
    values["residue_mcc"] = ratio_or_nan(tp * tn - fp * fn, product)
    values["residue_auroc"] = auroc_of_counts(draws @ levels[1], draws @ levels[0])
    return values


def _rates(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> dict[str, Floats]:
    return {
        "accuracy": ratio_or_nan(tp + tn, tp + fp + tn + fn),
        "precision": ratio_or_nan(tp, tp + fp),
        "recall": ratio_or_nan(tp, tp + fn),
        "f1": ratio_or_nan(2 * tp, 2 * tp + fp + fn),
    }
