"""How likely each record of a sample is no virus, by its score and by those of all others.

The log odds that a contig model gives are right for known genomes, and for as many viruses as
others. The hosts of a sample may be of kinds that look more viral, its viruses of kinds that are
recognised better or worse, and its share of virus is unknown. So a sample is taken as a mixture of
two distributions of log odds, others and virus, for each number of chunks. Its share of virus and
how far both distributions are shifted are not estimated: all values count, each by how well it
explains the records. Few records leave them open, and many settle them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from virnucpro.classifier.contigs import ContigModel, Floats, Ints, each

# Log odds are rounded to steps of 0.1, and numbers of chunks to one of these, in logarithms.
LOWEST, HIGHEST, STEP = -3.0, 8.0, 0.1
LEVELS = round((HIGHEST - LOWEST) / STEP) + 1
COUNTS = 1, 2, 3, 4, 6, 8, 12, 16, 24, 32
RARE = 1e-12  # no log odds are less likely than this
NEGLIGIBLE = 1e-6  # what is less likely of a sample is left out
# What may be true of a sample: the log odds of its share of virus, 0.1 to 99.9 %, all alike likely;
# and shifts of others and of virus, with normal distributions of these standard deviations. The
# unit is the spread of records of one chunk, and for others its square: medians of groups of known
# hosts have a standard deviation of 0.38 squares for chunks of 500 bases, and of 0.52 for 150
# (examples/lite/mixtures.py groups prints it). Hosts of other kinds may differ more.
SHARES = np.arange(-14, 15) / 2
OTHERS_SHIFTS, OTHERS_SPREAD = np.arange(-3, 10) * (2 / 9), 1 / 3
# So likely is a sample whose others are of one unusual host, such as a single genome: any shift
# above 0 is alike likely then. Of 48 genomes of hosts, an earlier version took one for a virome.
UNUSUAL = 0.02
VIRUS_SHIFTS, VIRUS_SPREAD = np.arange(-2, 3) / 3, 1 / 3
# The spread of viruses below their mean is so many times that above it: in their groups, 0.76 to
# 0.78 times (`groups` prints it). Were both alike, a sample of viruses would look like a mixture.
VIRUS_BELOW = 0.8
# So many of the others have log odds with this mean and standard deviation, whatever their number
# of chunks: proviruses, and hosts of kinds that look more viral than the rest of their sample. Mean
# and deviation are best on the hosts that the distributions of lite are fitted on; with this share,
# the rates of samples of validation are right (`examples/lite/mixtures.py figures`).
TAIL_SHARE, TAIL, TAIL_SPREAD = 0.015, 2.6, 2.0
UPPER = 0.8413  # of a normal variable is below one standard deviation above the mean
MOST_OF_GROUP = 100  # contigs of a group and length; more do not make it count more


def error_rates(
    model: ContigModel, log_odds: Floats, log_counts: Floats, gene_odds: Floats
) -> Floats:
    """Return ``[n]``, how likely each record of a sample is no virus, 0 to 1.

    Args:
        model: one with the distributions of both labels.
        log_odds: ``[n]``, those of the model.
        log_counts: ``[n]``, the logarithm of the number of chunks, as in
            :func:`virnucpro.classifier.contigs.contig_terms`.
        gene_odds: ``[n]``, how many times as likely the genes of each record are of a virus, as
            :func:`virnucpro.classifier.evidence.evidence_odds` says; there are few different ones.
    """
    counts = each(math.log, np.array(COUNTS, np.float64))
    typical = model.others + model.others_by_count * counts
    # All below the mean of others is one level: how little viral hosts look says nothing.
    lowest = _levels(typical)
    rows = np.searchsorted((counts[1:] + counts[:-1]) / 2, log_counts)
    columns = np.maximum(_levels(log_odds), lowest[rows])
    known, codes = np.unique(gene_odds, return_inverse=True)
    found = np.zeros((len(known), len(COUNTS), LEVELS))
    np.add.at(found, (codes, rows, columns), 1)
    means, spreads = np.full_like(counts, TAIL), np.full_like(counts, TAIL_SPREAD)
    tail = TAIL_SHARE * _chances(means, spreads, lowest)
    spreads = _spread(counts, model.others_variance, model.others_variance_by_count)
    shifts = OTHERS_SHIFTS * model.others_variance
    usual = np.array([_chances(typical + shift, spreads, lowest) for shift in shifts])
    others = (1 - TAIL_SHARE) * usual + tail
    means = model.virus + model.virus_by_count * counts
    spreads = _spread(counts, model.virus_variance, model.virus_variance_by_count)
    shifts = VIRUS_SHIFTS * math.sqrt(model.virus_variance)
    virus = np.array([_chances(means + shift, spreads, lowest, VIRUS_BELOW) for shift in shifts])
    share = 1 / (1 + each(math.exp, -SHARES))
    weights = _weights(found, others, virus, share, known)
    rates = np.zeros_like(found)
    for i, j, k in zip(*np.nonzero(weights > NEGLIGIBLE), strict=True):
        right = share[k] * virus[j] * known[:, None, None]
        wrong = (1 - share[k]) * others[i]
        rates += weights[i, j, k] * (wrong / (right + wrong))
    # No record is less likely a virus than another one with as many chunks and a lower score. Far
    # above the mean of viruses, the distributions say nothing.
    each_row, places = np.arange(len(COUNTS))[:, None], np.arange(LEVELS)
    rates = rates[:, each_row, np.maximum(places, lowest[:, None])]
    rates = np.minimum.accumulate(rates, axis=-1)
    own: Floats = rates[codes, rows, columns]
    return own


def _weights(
    found: Floats, others: Floats, virus: Floats, share: Floats, gene_odds: Floats
) -> Floats:
    """Return how likely all shifts and shares are for a sample: ``[others, virus, share]``.

    ``found`` ``[gene_odds, counts, levels]`` are its records; ``others`` and ``virus`` ``[shifts,
    counts, levels]`` say how likely each number of chunks has each level.
    """
    codes, rows, columns = np.nonzero(found)
    of_virus, of_others = virus[:, rows, columns] * gene_odds[codes], others[:, rows, columns]
    chances = share[:, None] * of_virus[None, :, None]
    chances = chances + (1 - share)[:, None] * of_others[:, None, None]
    logarithms = each(math.log, chances.ravel()).reshape(chances.shape)
    numbers = found[codes, rows, columns]
    fit = np.cumsum(numbers * logarithms, axis=-1)[..., -1]  # in order on every processor
    usual = each(math.exp, -((OTHERS_SHIFTS / OTHERS_SPREAD) ** 2) / 2)
    prior = (1 - UNUSUAL) * usual / usual.sum() + UNUSUAL * (OTHERS_SHIFTS > 0) / 9
    fit += each(math.log, prior)[:, None, None]
    fit -= ((VIRUS_SHIFTS / VIRUS_SPREAD) ** 2 / 2)[:, None]
    return _likely(fit)


def calibrated_rates(log_odds: Floats, weights: Floats) -> Floats:
    """Return ``[n]``, how likely each chunk or record of a sample is no virus, 0 to 1.

    For classifiers without distributions, whose ``log_odds`` ``[n]`` are calibrated on as much
    virus as others. Their share of virus is at most one half here: where a classifier is less sure
    than it should be, the share that explains its scores best is 1. ``weights`` ``[n]`` are above
    0: one over the number of chunks of its record makes it a share of records.
    """
    found = np.bincount(_levels(log_odds), weights, LEVELS)
    levels = LOWEST + STEP * np.arange(LEVELS, dtype=np.float64)
    odds = each(math.exp, levels)
    share = 1 / (1 + each(math.exp, -SHARES[SHARES <= 0]))[:, None]
    right, wrong = share * odds / (1 + odds), (1 - share) / (1 + odds)
    logarithms = each(math.log, (right + wrong).ravel()).reshape(right.shape)
    fit = np.cumsum(found * logarithms, axis=-1)[:, -1]
    rates = np.zeros(LEVELS)
    for weight, rate in zip(_likely(fit), wrong / (right + wrong), strict=True):
        rates += weight * rate
    return np.interp(log_odds, levels, rates)


def _likely(fit: Floats) -> Floats:
    """Return how likely each case is, of those with these logarithms: they sum to 1."""
    weights = each(math.exp, (fit - fit.max()).ravel()).reshape(fit.shape)
    return weights / math.fsum(weights.ravel().tolist())


def _levels(log_odds: Floats) -> Ints:
    return np.clip(np.rint((log_odds - LOWEST) / STEP), 0, LEVELS - 1).astype(np.int64)


def _chances(means: Floats, spreads: Floats, lowest: Ints, below: float = 1.0) -> Floats:
    """Return how likely normal variables ``[n]`` are rounded to each level: ``[n, levels]``.

    The last level, and the ``lowest`` of each, have the tails. Below the mean, the spread is
    ``below`` times as large.
    """
    distances = LOWEST + STEP * (np.arange(1, LEVELS) - 0.5) - means[:, None]
    spreads = np.maximum(spreads, STEP)[:, None] * np.where(distances < 0, below, 1.0)
    places = distances / (math.sqrt(2) * spreads)
    places[np.arange(1, LEVELS) <= lowest[:, None]] = -math.inf
    lower = each(math.erf, places.ravel()).reshape(places.shape)
    ends = np.ones((len(means), 1))
    return np.maximum(np.diff(np.hstack([-ends, lower, ends])) / 2, RARE)


def with_distributions(
    model: ContigModel, terms: Floats, virus: npt.NDArray[np.bool_], groups: Ints
) -> ContigModel:
    """Return the model with how the log odds of others and of viruses are distributed.

    Means and squares of spreads are lines over the logarithm of the number of chunks. Of every
    group, the mean is the median, and the spread is that of the upper half: hosts may look as
    little viral as they like. Groups differ as the shifts of samples do, but for viruses this is
    part of the spread: a sample has viruses of many groups.

    Args:
        model: its first five coefficients are kept.
        terms: ``[n, 5]``, those of :func:`virnucpro.classifier.contigs.contig_terms`.
        virus: bool ``[n]``.
        groups: ``[n]``, numbers of the groups.
    """
    from scipy.optimize import curve_fit

    odds, log_counts = model.log_odds(terms), terms[:, -1]
    lines: list[float] = []
    for label in (False, True):
        rows = []
        pairs = np.stack([groups, log_counts], axis=1)
        for pair in np.unique(pairs[virus == label], axis=0):
            own = odds[(virus == label) & (pairs == pair).all(axis=1)]
            middle, upper = np.quantile(own, [0.5, UPPER])
            rows.append((pair[1], middle, upper - middle, min(len(own), MOST_OF_GROUP)))
        counts, means, spreads, weights = np.array(rows).T
        level, slope = _line(counts, means, weights)
        if label:
            spreads = np.hypot(spreads, means - level - slope * counts)
        variance, _ = curve_fit(
            _spread, counts, spreads, (1.0, 1.0), 1 / np.sqrt(weights), bounds=(0.0, np.inf)
        )
        lines += [level, slope, *variance.tolist()]
    return ContigModel(*model[:5], *lines)


def _spread(log_counts: Floats, variance: float, by_count: float) -> Floats:
    return np.sqrt(variance + by_count * log_counts)


def _line(places: Floats, values: Floats, weights: Floats) -> list[float]:
    """Return level and slope of the line through the values, by least squares."""
    scale = np.sqrt(weights)
    terms = np.stack([scale, places * scale], axis=1)
    solution: list[float] = np.linalg.lstsq(terms, values * scale)[0].tolist()
    return solution
