"""95 % intervals of metrics, from resampled genomes.

Rows of one genome resemble each other, so genomes are drawn and not rows: with replacement, as
many of each label as there are (a cluster bootstrap; Field and Welsh 2007, JRSS B 69:369-390).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from virnucpro.metrics.classification import Floats, Ints, ratio_or_nan

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
