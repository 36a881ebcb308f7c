"""The probability that a contig is viral, from the scores of its chunks.

Chunks of one contig are not independent: the mean of their log odds says more, the more of them
there are, but far less than their sum would. How much more is fitted on contigs of known genomes,
and stored with the classifier, for each chunk length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

# The share of virus in a sample that the score of a contig assumes. Models are fitted on as much
# virus as others, but few samples hold that much. With 1/3, one of 18 bacteria is called viral.
ASSUMED_SHARE = 1 / 4
# Beyond so many chunks, more of them say nothing new: the mean of a genome differs from that of its
# kind by more than chance. A model fitted on contigs of up to 16 chunks, and extrapolated, called
# nine tenths of some bacteria virus, because any mean looked viral in a contig of 400 chunks.
MOST_CHUNKS = 32
LARGEST = 12.0  # log odds of a chunk count up to this; beyond, a float32 score is 0 or 1
PENALTY = 1e-3  # on the squares of the coefficients, so that few contigs give finite ones
PRIOR = math.log(ASSUMED_SHARE / (1 - ASSUMED_SHARE))

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


# Those that are fitted are below 100; sums and products of these are finite.
Coefficient = Annotated[float, Meta(ge=-1e30, le=1e30)]
Temperature = Annotated[float, Meta(ge=1e-3, le=1e3)]


class ContigModel(NamedTuple):
    """A logistic regression. All logarithms are natural.

    Attributes:
        constant: the log odds of a contig whose other terms are 0.
        mean: per unit of the mean log odds of the chunks.
        mean_by_count: the same, per unit of the logarithm of the number of chunks, of which at most
            ``MOST_CHUNKS`` count.
        spread: per unit of the standard deviation of the log odds of the chunks.
        by_count: per unit of that logarithm.
        others, others_by_count: the mean log odds of others, and per unit of that logarithm.
        others_variance, others_variance_by_count: the square of their spread around it.
        virus, virus_by_count, virus_variance, virus_variance_by_count: of viruses. They are 0
            where the distributions were not fitted.
        temperature: what the log odds of chunks are divided by, where their scores were calibrated
            after they were made (:mod:`virnucpro.classifier.calibration`).
    """

    constant: Coefficient
    mean: Coefficient
    mean_by_count: Coefficient
    spread: Coefficient
    by_count: Coefficient
    others: Coefficient = 0.0
    others_by_count: Coefficient = 0.0
    others_variance: Coefficient = 0.0
    others_variance_by_count: Coefficient = 0.0
    virus: Coefficient = 0.0
    virus_by_count: Coefficient = 0.0
    virus_variance: Coefficient = 0.0
    virus_variance_by_count: Coefficient = 0.0
    temperature: Temperature = 1.0

    @property
    def has_distributions(self) -> bool:
        """Whether it says how the log odds of others and of viruses are distributed."""
        return self.virus_variance > 0

    def log_odds(self, terms: Floats) -> Floats:
        """Return ``[n]``, the log odds of contigs in a sample with as much virus as others."""
        return np.array(list(map(math.fsum, (terms * self[:5]).tolist())), np.float64)


def each(function: Callable[[float], float], values: Floats) -> Floats:
    """Return ``function`` of each value.

    The last bits of NumPy's own logarithms depend on the processor.
    """
    return np.array(list(map(function, values.tolist())), np.float64)


def sums(values: Floats, starts: Ints) -> Floats:
    """Return the exactly rounded sum of each contig, whose values begin at ``starts``."""
    own = values.tolist()
    parts = pairwise([*starts.tolist(), len(own)])
    return np.array([math.fsum(own[start:stop]) for start, stop in parts], np.float64)


def contig_terms(chunk_log_odds: Floats, starts: Ints, counts: Floats) -> Floats:
    """Return what the first coefficients of a :class:`ContigModel` are multiplied with.

    Args:
        chunk_log_odds: ``[chunks]`` of all scored chunks, contig by contig.
        starts: ``[n]``, where the chunks of each contig begin; each has one.
        counts: ``[n]``, how many chunks the scored bases of each contig fill: fewer than there are
            where they overlap.

    Returns:
        ``[n, 5]``, in the order of the coefficients.
    """
    values = np.clip(chunk_log_odds, -LARGEST, LARGEST)
    sizes = np.diff(starts, append=len(values))
    logarithms = each(math.log, np.minimum(counts, MOST_CHUNKS))
    means = sums(values, starts) / sizes
    spreads = np.sqrt(sums((values - np.repeat(means, sizes)) ** 2, starts) / sizes)
    terms = np.ones_like(means), means, means * logarithms, spreads, logarithms
    return np.stack(terms, axis=1)


def fit_contig_model(terms: Floats, virus: npt.NDArray[np.bool_]) -> ContigModel:
    """Return the coefficients that make the labels most likely.

    The last one is at most 0: no contig is viral because it is long.

    Args:
        terms: ``[n, 5]``, those of :func:`contig_terms`.
        virus: bool ``[n]``; as many of either label as the contigs that it will be used on are
            assumed to have, which is one half.
    """
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(
        C=1 / (PENALTY * len(terms)), fit_intercept=False, tol=1e-10, solver="newton-cholesky"
    )
    coefficients = regression.fit(terms, virus).coef_[0]
    if coefficients[-1] > 0:
        coefficients = np.append(regression.fit(terms[:, :-1], virus).coef_[0], 0.0)
    return ContigModel(*map(float, coefficients))
