"""Measure a sample: all of it, each length, each group against the rest, with 95 % intervals.

Intervals come from resampled genomes. All slices are measured in the same resamples, from counts
by cell and level of score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from virnucpro.evaluation.labels import Sample, SampleCounts
from virnucpro.metrics.bootstrap import (
    LEVELS,
    RESAMPLES,
    Interval,
    auroc_of_counts,
    draw_genomes,
    percentile_interval,
    ratio_or_nan,
    score_levels,
)
from virnucpro.metrics.classification import (
    Bools,
    Floats,
    Ints,
    ReliabilityBin,
    ScoreMetrics,
    measure_scores,
    reliability,
)

ONE_CLASS = "one class only: AUROC, AUPRC, precision, F1 and MCC are not defined"
NO_SCORES = "calls without scores: AUROC, AUPRC, Brier score and calibration are not defined"
STATED_RATES = (0.01, 0.05, 0.1, 0.2)  # false discovery rates that are compared with the truth
SEED = 1
SliceKind = Literal["overall", "length", "group"]
NO_GROUP = "(no group)"
BATCH = 8  # resamples that are measured at a time; divides RESAMPLES
MOST_SLICES = 200  # with more, the intervals would take minutes
FEWEST_GENOMES = 2  # of a label


@dataclass(frozen=True)
class Slice:
    """Rows that are measured together, as a choice of cells.

    Rows with the same label, group and length form a cell.

    Attributes:
        kind: what the sample is sliced by.
        label: ``virus`` or ``others`` for a group, else empty.
        name: the length or the group.
        virus: ``[cells]``, the cells of the slice that are virus.
        others: ``[cells]``, the cells of the slice that are not.
        own: ``[cells]``, for a group the cells of the group alone, else all cells of the slice.
    """

    kind: SliceKind
    label: str
    name: str
    virus: Bools
    others: Bools
    own: Bools


@dataclass(frozen=True)
class SliceResult:
    """A slice with its metrics.

    Attributes:
        part: the slice.
        metrics: for a group, they also count the rows of the other label.
        correct: the share of the rows that are called as they are labelled; for a group, of the
            rows of the group alone.
        genomes: for a group, of the group alone.
        intervals: of ``auroc``, ``accuracy`` and ``correct``; None where a label has fewer than
            ``FEWEST_GENOMES`` genomes.
        notes: what a reader must know, in sentences.
        unscored: the rows of viruses without a score.
    """

    part: Slice
    metrics: ScoreMetrics
    correct: float | None
    genomes: int
    intervals: dict[str, Interval]
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
        if self.part.kind == "length":
            return f"{self.part.name} bases"
        return f"{self.part.label} {self.part.name}".strip()


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured.

    Attributes:
        sample: the rows, the highest score first.
        cells: ``[n]``, the number of the cell of each row.
        threshold: None where the calls are those of ``predict``.
        graded: whether scores are more than calls.
        slices: the whole sample, then the lengths, then the groups.
        reliability: the bins of the reliability diagram.
        false_discoveries: for contigs with a stated rate of at most ``stated``: ``contigs``, the
            number that is ``false``, and the ``realised`` rate.
        notes: what a reader of the metrics must know, in sentences.
    """

    sample: Sample
    cells: Ints
    threshold: float | None
    graded: bool
    slices: tuple[SliceResult, ...]
    reliability: tuple[ReliabilityBin, ...]
    false_discoveries: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def overall(self) -> SliceResult:
        """The whole sample."""
        return self.slices[0]

    def of_kind(self, kind: SliceKind) -> list[SliceResult]:
        """Return the results that are slices by ``kind``."""
        return [result for result in self.slices if result.part.kind == kind]


def evaluate(sample: Sample, threshold: float | None, *, graded: bool) -> Evaluation:
    """Measure ``sample``, which has at least one row.

    Args:
        sample: the rows.
        threshold: a row is called virus where its score is at least this; None where the call of
            ``predict`` counts.
        graded: False where the scores are calls.
    """
    # With the highest score first, every slice is sorted, and its curves are quick.
    order = np.argsort(-sample.scores, kind="stable")
    columns = ("scores", "virus", "groups", "clusters", "lengths", "fdr", "called")
    sample = replace(sample, **{name: getattr(sample, name)[order] for name in columns})
    cells, slices = slices_of(sample)
    called = sample.called if threshold is None else sample.scores >= threshold
    correct = called == sample.virus
    resampled = None
    if len(slices) <= MOST_SLICES:
        resampled = _resampled_metrics(sample, cells, slices, correct, SEED)
    results = []
    for number, part in enumerate(slices):
        rows = (part.virus | part.others)[cells]
        metrics = measure_scores(
            sample.virus[rows], sample.scores[rows], 0.5, graded=graded, called=called[rows]
        )
        if part.kind == "group":  # a group and the pool of others have an arbitrary share of virus
            metrics = replace(metrics, brier=None, ece=None)
        genomes, virus, others = (
            len(np.unique(sample.clusters[chosen[cells]]))
            for chosen in (part.own, part.virus, part.others)
        )
        enough = resampled is not None and min(virus, others) >= FEWEST_GENOMES
        defined = {
            "auroc": enough and graded,
            "accuracy": enough,
            "correct": resampled is not None and genomes >= FEWEST_GENOMES,
        }
        intervals = {
            name: percentile_interval(resampled[number, place])
            if resampled is not None and defined[name]
            else None
            for place, name in enumerate(defined)
        }
        notes: tuple[str, ...] = ()
        if not metrics.both_classes:
            notes = (ONE_CLASS,)
        elif resampled is None:
            notes = (f"more than {MOST_SLICES} lengths and groups: no intervals",)
        elif intervals["accuracy"] is None:
            notes = (f"fewer than {FEWEST_GENOMES} genomes of a label: no intervals",)
        own = correct[part.own[cells]]
        share = float(own.mean()) if len(own) else None
        unscored = _unscored(sample.counts, part)
        results.append(SliceResult(part, metrics, share, genomes, intervals, notes, unscored))
    sample_notes = [] if graded else [NO_SCORES]
    if sample.counts.trained:
        sample_notes.append(
            f"{sample.counts.trained:,} of the {sample.counts.used:,} rows are of records in the "
            f"training part: a classifier trained on them looks better than it is"
        )
    return Evaluation(
        sample,
        cells,
        threshold,
        graded,
        tuple(results),
        tuple(reliability(sample.virus, sample.scores)) if graded else (),
        _false_discoveries(sample),
        tuple(sample_notes),
    )


def slices_of(sample: Sample) -> tuple[Ints, list[Slice]]:
    """Return the cell of each row, and the slices: all rows, then the lengths, then the groups.

    Lengths and groups are there where they are known. A group has one label. Its rows are measured
    against all rows of the other label.
    """
    width = len(sample.length_names)
    codes, cells = np.unique(sample.groups * width + sample.lengths, return_inverse=True)
    of_group, of_length = codes // width, codes % width
    viral = np.array([label == "virus" for label, _ in sample.group_names], np.bool_)[of_group]
    slices = [Slice("overall", "", "all", viral, ~viral, np.ones(len(viral), np.bool_))]
    for number, name in enumerate(sample.length_names):
        if name:
            own = of_length == number
            slices.append(Slice("length", "", name, viral & own, ~viral & own, own))
    if any(name for _, name in sample.group_names):
        for label, name, number in sorted((*pair, n) for n, pair in enumerate(sample.group_names)):
            own = of_group == number
            virus, others = (own, ~viral) if label == "virus" else (viral, own)
            slices.append(Slice("group", label, name or NO_GROUP, virus, others, own))
    return cells.astype(np.int64), slices


def _unscored(counts: SampleCounts, part: Slice) -> int:
    """Return the rows of viruses without a score that belong to a slice.

    A group of others is measured against all viruses.
    """
    if part.kind == "length":
        return counts.missed_lengths.get(part.name, 0)
    if part.kind == "group" and part.label == "virus":
        return counts.missed_groups.get("" if part.name == NO_GROUP else part.name, 0)
    return counts.missed


def _false_discoveries(sample: Sample) -> tuple[dict[str, Any], ...]:
    known = ~np.isnan(sample.fdr)
    fdr, virus = sample.fdr[known], sample.virus[known]
    rows = []
    for stated in STATED_RATES if known.any() else ():
        called = fdr <= stated
        contigs, false = int(called.sum()), int((~virus[called]).sum())
        realised = false / contigs if contigs else None
        rows.append({"stated": stated, "contigs": contigs, "false": false, "realised": realised})
    return tuple(rows)


def _resampled_metrics(
    sample: Sample, cells: Ints, slices: Sequence[Slice], correct_calls: Bools, seed: int
) -> Floats:
    """Return ``[slices, 3, RESAMPLES]``: AUROC, accuracy, share correct; NaN where undefined."""
    generator = np.random.default_rng(seed)
    of_virus = np.zeros(sample.clusters.max() + 1, np.bool_)
    of_virus[sample.clusters[sample.virus]] = True
    genomes_of_labels = [np.flatnonzero(of_virus), np.flatnonzero(~of_virus)]
    height = len(slices[0].own)
    keys = cells * LEVELS + score_levels(sample.scores)
    row_counts = _count_by_genome(keys, sample.clusters, height * LEVELS, len(of_virus))
    correct_counts = _count_by_genome(
        cells[correct_calls],
        sample.clusters[correct_calls],
        height,
        len(of_virus),
    )
    virus, others, own = (
        np.array([getattr(s, name) for s in slices], np.float64)
        for name in ("virus", "others", "own")
    )
    metrics = np.empty((len(slices), 3, RESAMPLES))
    for start in range(0, RESAMPLES, BATCH):
        draws = [draw_genomes(generator, genomes_of_labels, len(of_virus)) for _ in range(BATCH)]
        drawn = np.stack(draws, axis=1)
        counts = (row_counts @ drawn).reshape(height, LEVELS, BATCH)
        for r in range(BATCH):
            levels = counts[:, :, r]
            metrics[:, 0, start + r] = auroc_of_counts(virus @ levels, others @ levels)
        correct_rows, all_rows = correct_counts @ drawn, counts.sum(axis=1)  # [cells, BATCH]
        batch, both = slice(start, start + BATCH), virus + others
        metrics[:, 1, batch] = ratio_or_nan(both @ correct_rows, both @ all_rows)
        metrics[:, 2, batch] = ratio_or_nan(own @ correct_rows, own @ all_rows)
    return metrics


def _count_by_genome(keys: Ints, clusters: Ints, height: int, width: int) -> Any:
    """Return a sparse ``[height, width]``: the number of rows with each key and genome."""
    from scipy.sparse import coo_matrix

    ones = np.ones(len(keys))
    return coo_matrix((ones, (keys, clusters)), (height, width)).tocsr()
