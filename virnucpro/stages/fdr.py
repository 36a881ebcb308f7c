"""False discovery rates of contigs, from calibrated probabilities of their chunks.

The classifier was calibrated on as much virus as others. A sample has another share of virus, so
the probabilities are corrected first, as in Saerens, Latinne and Decaestecker 2002 (Neural
Computation 14:21-41). Chunks are corrected, contigs averaged afterwards: a mean over chunks is
less certain than it should be, and the share of virus that is found from such means runs to 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.metrics.classification import Floats, Ints
from virnucpro.stages.calls import Scores, log_odds

TRAINED_SHARE = 0.5  # of virus: training and validation parts are balanced
FEWEST = 100  # scored contigs; the share of virus of fewer is too uncertain to correct with
ITERATIONS = 1000
TOLERANCE = 1e-6  # change of the share from one iteration to the next


def record_probabilities(scores: Sequence[Scores], model: ContigModel | None) -> list[float]:
    """Return what :func:`contig_fdr` needs of a record: probabilities at ``TRAINED_SHARE``.

    ``scores`` are those of its scored chunks. With a ``model`` it is one probability for the
    record; without, one for each chunk. It is empty where no chunk is scored.
    """
    if model is None or not scores:
        return [virus / (virus + others) for others, virus in scores]
    return [0.5 * (1 + math.tanh(model.log_odds([log_odds(pair) for pair in scores]) / 2))]


def contig_fdr(probabilities: Floats, chunks: Ints) -> Floats:
    """Return the false discovery rate of every contig.

    It is the rate if the contig and all contigs with a higher probability were called virus.

    Args:
        probabilities: ``[n]``, calibrated probability of virus of every scored chunk, contig by
            contig.
        chunks: ``[contigs]``, number of scored chunks of every contig; 0 where nothing was scored.

    Returns:
        ``[contigs]``, 0 to 1; NaN where nothing was scored.
    """
    scored = chunks > 0
    fdr = np.full(len(chunks), np.nan)
    counts = chunks[scored]
    if len(counts) == 0:
        return fdr
    if len(counts) >= FEWEST:
        share = virus_share(probabilities, np.repeat(1 / counts, counts))
        # A larger share would lower every rate. Where the classifier is less sure than calibrated,
        # the estimate runs to 1, and all contigs would be called virus at a rate of 0.
        probabilities = at_share(probabilities, min(share, TRAINED_SHARE))
    starts = np.cumsum(counts) - counts
    fdr[scored] = running_mean_of_errors(np.add.reduceat(probabilities, starts) / counts)
    return fdr


def virus_share(probabilities: Floats, weights: Floats) -> float:
    """Return the share of virus, 0 to 1, that explains the scores best (EM algorithm).

    Args:
        probabilities: ``[n]``, calibrated at a share of ``TRAINED_SHARE``.
        weights: ``[n]``, above 0. One over the number of chunks of the contig makes it a share of
            contigs.
    """
    weights = weights / weights.sum()
    share = TRAINED_SHARE
    for _ in range(ITERATIONS):
        before, share = share, float(weights @ at_share(probabilities, share))
        if abs(share - before) < TOLERANCE:
            break
    return share


def at_share(probabilities: Floats, share: float) -> Floats:
    """Return ``[n]`` probabilities of a sample with ``share`` virus.

    ``probabilities`` are calibrated at ``TRAINED_SHARE``.

    A probability of exactly 0 or 1 is certain, whatever the share.
    """
    virus = probabilities * (share / TRAINED_SHARE)
    others = (1 - probabilities) * ((1 - share) / (1 - TRAINED_SHARE))
    total = virus + others
    certain = total == 0
    return np.where(certain, probabilities, virus / np.where(certain, 1.0, total))


def running_mean_of_errors(probabilities: Floats) -> Floats:
    """Return ``[n]``, the mean of ``1 - p`` over all rows with at least the same probability ``p``.

    It never falls from a higher probability to a lower one; equal probabilities have the same.
    """
    order = np.argsort(-probabilities, kind="stable")
    errors = 1 - probabilities[order]
    means = np.cumsum(errors) / np.arange(1, len(errors) + 1)
    last = np.searchsorted(errors, errors, side="right") - 1  # of those with the same probability
    fdr = np.empty_like(means)
    fdr[order] = np.maximum.accumulate(means[last])  # rounding must not make it fall
    return fdr
