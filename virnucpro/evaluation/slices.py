"""The parts of a sample that are measured: all of it, each length, each group against the rest.

The 95 % intervals of their metrics come from resampled genomes. All slices are measured in the same
resamples, from counts by cell and level of score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from virnucpro.evaluation.sample import Sample
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
from virnucpro.metrics.classification import Bools, Floats, Ints

SliceKind = Literal["overall", "length", "group"]
NO_GROUP = "(no group)"
BATCH = 8  # resamples that are measured at a time; divides RESAMPLES
MOST_SLICES = 200  # with more, the intervals would take minutes
FEWEST_GENOMES = 2  # of a label


@dataclass(frozen=True)
class Slice:
    """Rows that are measured together, as a choice of cells.

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

    @property
    def rows(self) -> Bools:
        """All cells of the slice, ``[cells]``."""
        return self.virus | self.others


@dataclass(frozen=True)
class Cells:
    """The cells of a sample. Rows with the same label, group and length form a cell.

    Attributes:
        of_row: ``[n]``, the number of the cell of each row.
        virus: ``[cells]``.
        group: ``[cells]``, numbers of ``Sample.group_names``.
        length: ``[cells]``, numbers of ``Sample.length_names``.
    """

    of_row: Ints
    virus: Bools
    group: Ints
    length: Ints


def cells_of(sample: Sample) -> Cells:
    """Number the cells of a sample."""
    width = len(sample.length_names)
    codes, of_row = np.unique(sample.groups * width + sample.lengths, return_inverse=True)
    group, length = codes // width, codes % width
    virus = np.array([label == "virus" for label, _ in sample.group_names], np.bool_)
    return Cells(of_row.astype(np.int64), virus[group], group, length)


def slices_of(sample: Sample, cells: Cells) -> list[Slice]:
    """Return the whole sample, then the lengths, then the groups, where these are known.

    A group has one label. Its rows are measured against all rows of the other label.
    """
    all_cells = np.ones(len(cells.virus), np.bool_)
    slices = [Slice("overall", "", "all", cells.virus, ~cells.virus, all_cells)]
    for number, name in enumerate(sample.length_names):
        if name:
            own = cells.length == number
            slices.append(Slice("length", "", name, cells.virus & own, ~cells.virus & own, own))
    if any(name for _, name in sample.group_names):
        for label, name, number in sorted((*pair, n) for n, pair in enumerate(sample.group_names)):
            own = cells.group == number
            virus, others = (own, ~cells.virus) if label == "virus" else (cells.virus, own)
            slices.append(Slice("group", label, name or NO_GROUP, virus, others, own))
    return slices


# --- intervals -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SliceIntervals:
    """The number of genomes of a slice, and the intervals of its metrics.

    An interval is None where a label has fewer than ``FEWEST_GENOMES`` genomes. ``genomes`` and
    ``correct`` are those of the group alone where the slice is a group.
    """

    genomes: int
    auroc: Interval
    accuracy: Interval
    correct: Interval


def slice_intervals(
    sample: Sample,
    cells: Cells,
    slices: Sequence[Slice],
    correct_calls: Bools,
    *,
    graded: bool,
    seed: int,
) -> list[SliceIntervals]:
    """Compute the intervals of every slice.

    Args:
        correct_calls: ``[n]``, whether a row is called as it is labelled.
        graded: whether the scores are more than calls.
        seed: of the draws. The same seed gives the same intervals.
    """

    def genomes_in(chosen_cells: Bools) -> int:
        return len(np.unique(sample.clusters[chosen_cells[cells.of_row]]))

    genomes = [[genomes_in(c) for c in (s.own, s.virus, s.others)] for s in slices]
    if len(slices) > MOST_SLICES:
        return [SliceIntervals(own, None, None, None) for own, _, _ in genomes]
    resampled = _resampled_metrics(sample, cells, slices, correct_calls, seed)
    intervals = []
    for (own, virus, others), values in zip(genomes, resampled, strict=True):
        auroc, accuracy, correct = map(percentile_interval, values)
        enough = min(virus, others) >= FEWEST_GENOMES
        intervals.append(
            SliceIntervals(
                own,
                auroc if enough and graded else None,
                accuracy if enough else None,
                correct if own >= FEWEST_GENOMES else None,
            )
        )
    return intervals


def _resampled_metrics(
    sample: Sample, cells: Cells, slices: Sequence[Slice], correct_calls: Bools, seed: int
) -> Floats:
    """Return ``[slices, 3, RESAMPLES]``: AUROC, accuracy, share correct; NaN where undefined."""
    generator = np.random.default_rng(seed)
    of_virus = np.zeros(sample.clusters.max() + 1, np.bool_)
    of_virus[sample.clusters[sample.virus]] = True
    genomes_of_labels = [np.flatnonzero(of_virus), np.flatnonzero(~of_virus)]
    keys = cells.of_row * LEVELS + score_levels(sample.scores)
    row_counts = _count_by_genome(keys, sample.clusters, len(cells.virus) * LEVELS, len(of_virus))
    correct_counts = _count_by_genome(
        cells.of_row[correct_calls],
        sample.clusters[correct_calls],
        len(cells.virus),
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
        counts = (row_counts @ drawn).reshape(len(cells.virus), LEVELS, BATCH)
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
