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
    """Return probabilities at ``TRAINED_SHARE`` of a record with these scored chunks.

    With a ``model`` it is one for the record; without, one for each chunk.
    """
    if model is None or not scores:
        return [virus / (virus + others) for others, virus in scores]
    return [0.5 * (1 + math.tanh(model.log_odds([log_odds(pair) for pair in scores]) / 2))]


def contig_fdr(probabilities: Floats, chunks: Ints) -> Floats:
    """Return ``[contigs]``, the false discovery rate of every contig; NaN where nothing was scored.

    It is the rate if the contig and all contigs with a higher probability were called virus.
    ``probabilities`` ``[n]`` are calibrated, of every scored chunk, contig by contig; ``chunks``
    ``[contigs]`` are the scored chunks of every contig.
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

    ``probabilities`` ``[n]`` are calibrated at ``TRAINED_SHARE``; ``weights`` ``[n]`` are above 0:
    one over the number of chunks of the contig makes it a share of contigs.
    """
    weights = weights / weights.sum()
    share = TRAINED_SHARE
    for _ in range(ITERATIONS):
        before, share = share, float(weights @ at_share(probabilities, share))
        if abs(share - before) < TOLERANCE:
            break
    return share


def at_share(probabilities: Floats, share: float) -> Floats:
    """Return ``[n]`` probabilities, calibrated at ``TRAINED_SHARE``, at ``share``; 0 and 1 stay."""
    virus = probabilities * (share / TRAINED_SHARE)
    others = (1 - probabilities) * ((1 - share) / (1 - TRAINED_SHARE))
    total = virus + others
    certain = total == 0
    return np.where(certain, probabilities, virus / np.where(certain, 1.0, total))


def running_mean_of_errors(probabilities: Floats) -> Floats:
    """Return ``[n]``, the mean of ``1 - p`` over all rows with at least the same ``p``."""
    order = np.argsort(-probabilities, kind="stable")
    errors = 1 - probabilities[order]
    means = np.cumsum(errors) / np.arange(1, len(errors) + 1)
    last = np.searchsorted(errors, errors, side="right") - 1  # of those with the same probability
    fdr = np.empty_like(means)
    fdr[order] = np.maximum.accumulate(means[last])  # rounding must not make it fall
    return fdr
