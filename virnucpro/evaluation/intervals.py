"""95 % intervals of AUROC and accuracy, from resampled genomes.

Rows of one genome resemble each other, so genomes are drawn, not rows: with replacement, as many
of each label as there are (a cluster bootstrap; Field and Welsh 2007, JRSS B 69:369-390). All
slices are measured in the same resamples, from counts by cell and level of score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.evaluation.sample import Bools, Floats, Ints, Sample
from virnucpro.evaluation.slices import Cells, Slice

Interval = tuple[float, float] | None

RESAMPLES = 200
AT_A_TIME = 8  # resamples; divides RESAMPLES
LEVELS = 512  # of scores, equally filled; rows of one level count as ties within a resample
MOST_SLICES = 200  # of more, the intervals would take minutes
FEWEST = 2  # genomes of a label


@dataclass(frozen=True)
class Spread:
    """Genomes of a slice, and its intervals; None where a label has fewer than ``FEWEST`` genomes.

    ``genomes`` and ``correct`` are those of the group alone, where the slice is a group.
    """

    genomes: int
    auroc: Interval
    accuracy: Interval
    correct: Interval


def spreads(
    sample: Sample, cells: Cells, slices: list[Slice], right: Bools, *, graded: bool, seed: int
) -> list[Spread]:
    """The spread of every slice.

    Args:
        right: ``[n]``, whether a row is called as it is labelled.
        graded: whether the scores are more than calls.
        seed: of the draws; the same seed gives the same intervals.
    """
    genomes = [_genomes(sample, cells, s) for s in slices]
    if len(slices) > MOST_SLICES:
        return [Spread(own, None, None, None) for own, _, _ in genomes]
    drawn = _resampled(sample, cells, slices, right, seed)
    found = []
    for (own, virus, others), (auroc, accuracy, correct) in zip(genomes, drawn, strict=True):
        both = min(virus, others) >= FEWEST
        found.append(
            Spread(
                own,
                _interval(auroc) if both and graded else None,
                _interval(accuracy) if both else None,
                _interval(correct) if own >= FEWEST else None,
            )
        )
    return found


def _genomes(sample: Sample, cells: Cells, part: Slice) -> tuple[int, int, int]:
    """Genomes of its own cells, of its virus cells and of the others."""
    there = np.zeros(sample.clusters.max() + 1, np.bool_)

    def count(chosen: Bools) -> int:
        there[:] = False
        there[sample.clusters[chosen[cells.of_row]]] = True
        return int(there.sum())

    return count(part.own), count(part.virus), count(part.others)


def _resampled(
    sample: Sample, cells: Cells, slices: list[Slice], right: Bools, seed: int
) -> npt.NDArray[np.float64]:
    """``[slices, 3, RESAMPLES]``: AUROC, accuracy and share correct; NaN where undefined."""
    rng = np.random.default_rng(seed)
    of_virus = np.zeros(sample.clusters.max() + 1, np.bool_)
    of_virus[sample.clusters[sample.virus]] = True
    labels = [np.flatnonzero(of_virus), np.flatnonzero(~of_virus)]
    keys = cells.of_row * LEVELS + _levels(sample.scores)
    rows = _counted(keys, sample.clusters, len(cells.virus) * LEVELS, len(of_virus))
    good = cells.of_row[right]
    hits = _counted(good, sample.clusters[right], len(cells.virus), len(of_virus))
    virus, others, own = (
        np.array([getattr(s, side) for s in slices], np.float64)
        for side in ("virus", "others", "own")
    )
    found = np.empty((len(slices), 3, RESAMPLES))
    for start in range(0, RESAMPLES, AT_A_TIME):
        drawn = np.stack([_draw(rng, labels, len(of_virus)) for _ in range(AT_A_TIME)], axis=1)
        counts = (rows @ drawn).reshape(len(cells.virus), LEVELS, AT_A_TIME)
        for r in range(AT_A_TIME):
            found[:, 0, start + r] = _auroc(virus @ counts[:, :, r], others @ counts[:, :, r])
        right_ones, all_ones = hits @ drawn, counts.sum(axis=1)  # [cells, AT_A_TIME]
        batch = slice(start, start + AT_A_TIME)
        found[:, 1, batch] = _ratio((virus + others) @ right_ones, (virus + others) @ all_ones)
        found[:, 2, batch] = _ratio(own @ right_ones, own @ all_ones)
    return found


def _counted(keys: Ints, clusters: Ints, height: int, width: int) -> Any:
    """Sparse ``[height, width]``: number of rows with each key and genome."""
    from scipy.sparse import coo_matrix

    ones = np.ones(len(keys))
    return coo_matrix((ones, (keys, clusters)), (height, width)).tocsr()


def _draw(rng: np.random.Generator, labels: list[Ints], clusters: int) -> Floats:
    """``[clusters]``: how often each genome was drawn."""
    weights = np.zeros(clusters)
    for members in labels:
        if len(members):
            draws = rng.integers(0, len(members), len(members))
            weights[members] = np.bincount(draws, minlength=len(members))
    return weights


def _auroc(virus: Floats, others: Floats) -> Floats:
    """``[slices]`` from counts ``[slices, LEVELS]`` of both labels."""
    below = np.cumsum(others, axis=1) - others / 2
    return _ratio((virus * below).sum(axis=1), virus.sum(axis=1) * others.sum(axis=1))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """NaN where ``whole`` is 0: the slice was not drawn."""
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)


def _levels(scores: Floats) -> Ints:
    """``[n]``: scores as numbers below ``LEVELS``, in their order."""
    ends = np.unique(np.quantile(scores, np.linspace(0, 1, LEVELS)[1:-1], method="lower"))
    return np.searchsorted(ends, scores).astype(np.int64)


def _interval(values: Floats) -> Interval:
    """The middle 95 % of what is defined; None where that is less than half."""
    defined = values[~np.isnan(values)]
    if len(defined) < RESAMPLES / 2:
        return None
    low, high = np.percentile(defined, (2.5, 97.5))
    return float(low), float(high)
