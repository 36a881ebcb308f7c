"""Measure a sample: overall, by length and by group, with intervals and notes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from virnucpro.evaluation.sample import Sample, SampleCounts
from virnucpro.evaluation.slices import (
    FEWEST_GENOMES,
    MOST_SLICES,
    NO_GROUP,
    Slice,
    SliceIntervals,
    SliceKind,
    cells_of,
    slice_intervals,
    slices_of,
)
from virnucpro.metrics.classification import (
    ReliabilityBin,
    ScoreMetrics,
    measure_scores,
    reliability,
)

ONE_CLASS = "one class only: AUROC, AUPRC, precision, F1 and MCC are not defined"
NO_SCORES = "calls without scores: AUROC, AUPRC, Brier score and calibration are not defined"
STATED_RATES = (0.01, 0.05, 0.1, 0.2)  # false discovery rates that are compared with the truth
SEED = 1


@dataclass(frozen=True)
class SliceResult:
    """A slice with its metrics.

    ``correct`` is the share of the rows that are called as they are labelled. For a group, it
    counts the rows of the group alone, where ``metrics`` also count the rows of the other label.
    ``unscored`` are the rows of viruses without a score.
    """

    kind: SliceKind
    label: str
    name: str
    metrics: ScoreMetrics
    correct: float | None
    intervals: SliceIntervals
    notes: tuple[str, ...]
    unscored: int

    @property
    def recall_all(self) -> float | None:
        """The recall where viruses without a score are counted as missed."""
        viruses = self.metrics.virus + self.unscored
        return self.metrics.tp / viruses if viruses else None

    @property
    def title(self) -> str:
        """The name of the slice for people."""
        if self.kind == "length":
            return f"{self.name} bases"
        return f"{self.label} {self.name}".strip()


@dataclass(frozen=True)
class FalseDiscoveries:
    """Contigs with an ``fdr`` of at most ``stated``, and the share of them that are not viruses."""

    stated: float
    contigs: int
    false: int
    realised: float | None


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured. ``slices`` begins with the whole sample.

    ``threshold`` is None where the calls are those of ``predict``.
    """

    sample: Sample
    threshold: float | None
    graded: bool
    slices: tuple[SliceResult, ...]
    reliability: tuple[ReliabilityBin, ...]
    false_discoveries: tuple[FalseDiscoveries, ...]
    notes: tuple[str, ...]

    @property
    def overall(self) -> SliceResult:
        """The whole sample."""
        return self.slices[0]

    def of_kind(self, kind: SliceKind) -> list[SliceResult]:
        """Return the results that are slices by ``kind``."""
        return [result for result in self.slices if result.kind == kind]


def evaluate(sample: Sample, threshold: float | None, *, graded: bool) -> Evaluation:
    """Measure ``sample``, which has at least one row.

    Args:
        threshold: a row is called virus where its score is at least this; None where the call of
            ``predict`` counts.
        graded: False where the scores are calls.
    """
    sample = _sorted_by_score(sample)
    cells = cells_of(sample)
    slices = slices_of(sample, cells)
    called = sample.called if threshold is None else sample.scores >= threshold
    correct_calls = called == sample.virus
    all_intervals = slice_intervals(sample, cells, slices, correct_calls, graded=graded, seed=SEED)
    results = []
    for part, intervals in zip(slices, all_intervals, strict=True):
        rows = part.rows[cells.of_row]
        metrics = measure_scores(
            sample.virus[rows], sample.scores[rows], 0.5, graded=graded, called=called[rows]
        )
        if part.kind == "group":  # a group and the pool of others have an arbitrary share of virus
            metrics = replace(metrics, brier=None, ece=None)
        own = correct_calls[part.own[cells.of_row]]
        if not metrics.both_classes:
            notes: tuple[str, ...] = (ONE_CLASS,)
        elif len(slices) > MOST_SLICES:
            notes = (f"more than {MOST_SLICES} lengths and groups: no intervals",)
        elif intervals.accuracy is None:
            notes = (f"fewer than {FEWEST_GENOMES} genomes of a label: no intervals",)
        else:
            notes = ()
        correct = float(own.mean()) if len(own) else None
        results.append(
            SliceResult(
                part.kind,
                part.label,
                part.name,
                metrics,
                correct,
                intervals,
                notes,
                _unscored(sample.counts, part),
            )
        )
    return Evaluation(
        sample,
        threshold,
        graded,
        tuple(results),
        tuple(reliability(sample.virus, sample.scores)) if graded else (),
        _false_discoveries(sample),
        tuple(_notes(sample, graded=graded)),
    )


def _unscored(counts: SampleCounts, part: Slice) -> int:
    """Return the rows of viruses without a score that belong to a slice.

    A group of others is measured against all viruses.
    """
    if part.kind == "length":
        return counts.missed_lengths.get(part.name, 0)
    if part.kind == "group" and part.label == "virus":
        return counts.missed_groups.get("" if part.name == NO_GROUP else part.name, 0)
    return counts.missed


def _sorted_by_score(sample: Sample) -> Sample:
    """Put the highest score first. Then every slice is sorted, and its curves are quick."""
    order = np.argsort(-sample.scores, kind="stable")
    columns = ("scores", "virus", "groups", "clusters", "lengths", "fdr", "called")
    return replace(sample, **{name: getattr(sample, name)[order] for name in columns})


def _notes(sample: Sample, *, graded: bool) -> list[str]:
    """Return what a reader of the metrics must know, in sentences."""
    notes = [] if graded else [NO_SCORES]
    if sample.counts.trained:
        notes.append(
            f"{sample.counts.trained:,} of the {sample.counts.used:,} rows are of records in the "
            f"training part: a classifier trained on them looks better than it is"
        )
    return notes


def _false_discoveries(sample: Sample) -> tuple[FalseDiscoveries, ...]:
    known = ~np.isnan(sample.fdr)
    if not known.any():
        return ()
    fdr, virus = sample.fdr[known], sample.virus[known]
    rows = []
    for stated in STATED_RATES:
        called = fdr <= stated
        contigs, false = int(called.sum()), int((~virus[called]).sum())
        rows.append(FalseDiscoveries(stated, contigs, false, false / contigs if contigs else None))
    return tuple(rows)
