"""From the scores of its chunks to the call of a record, and its false discovery rate.

The rates follow from all records of a sample (:mod:`virnucpro.classifier.mixture`). Where no model
puts the chunks of a record together, each chunk gets a rate, and records are averaged afterwards: a
mean over chunks is less certain than it should be, and the share of virus that such means explain
best is 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from virnucpro.classifier.contigs import PRIOR, ContigModel, contig_terms, each, sums
from virnucpro.classifier.mixture import calibrated_rates, error_rates
from virnucpro.metrics.classification import Bools, Floats, Ints
from virnucpro.settings import DEFAULT_THRESHOLDS, NONVIRUS_BELOW, UNLIKELY, Thresholds

# Of the files' contract (docs/files.md).
VIRUS_ABOVE = DEFAULT_THRESHOLDS.min_score  # where nothing else was asked for
TIERS = ("low", "medium", "high")
HIGHEST_RATES = (0.25, 0.05)  # false discovery rates of a virus with the tier medium and high
HIGH_SCORE = 0.6  # of a virus with the tier high where no rate is known
# Scores of a record called nonvirus with the tier medium and high. Of viruses of validation that
# are cut into contigs (examples/lite/mixtures.py), one of 100 with two chunks or more scores below
# the last.
LOW_SCORES = (-0.6, -0.94)
LITTLE = 0.25  # of the bases of a record; less says little about the rest of it
CONFIDENT = 0.8
CONTRADICTED = 0.3
SMALLEST = 1e-30  # of a score, where its logarithm is taken
# Of chunks. A record has the first of those of its chunks, and the last one where it has none.
STATUSES = ("scored", "failed", "no_open_frame", "repetitive", "ambiguous", "too_short")
SCORED, FAILED, *_, NO_CHUNK = range(len(STATUSES))


class Chunks(NamedTuple):
    """The chunks of records, one record after the other: arrays ``[chunks]``."""

    record: Ints  # the number of its record, from 0
    start: Ints  # in bases, 0-based
    stop: Ints  # exclusive
    status: Ints  # its place in ``STATUSES``
    others: Floats  # the scores for others and virus, 0 to 1; NaN where it was not scored
    virus: Floats

    def chosen(self, which: slice | Bools | Ints) -> Chunks:
        """Return some of the chunks."""
        return Chunks._make(column[which] for column in self)


class Summaries(NamedTuple):
    """What follows from the chunks of records alone: arrays ``[records]``.

    The fields are those of :class:`Calls`. ``virus_score`` is NaN where nothing was scored, and
    ``status`` a place in ``STATUSES``.
    """

    chunks: Ints
    chunks_scored: Ints
    coverage: Floats
    virus_score: Floats
    confident_viral: Ints
    confident_nonviral: Ints
    status: Ints


class Calls(NamedTuple):
    """The columns of the contigs table that follow from the chunks of records.

    The fields are named as the columns, which :data:`virnucpro.tables.CONTIGS` explains.
    """

    chunks: Sequence[int]
    chunks_scored: Sequence[int]
    coverage: Sequence[float]
    call: Sequence[str]
    virus_score: Sequence[float | None]
    tier: Sequence[str | None]
    confident_viral: Sequence[int]
    confident_nonviral: Sequence[int]
    undecided: Sequence[int]
    status: Sequence[str]
    fdr: Sequence[float | None]


def summarise(
    lengths: Ints, chunks: Chunks, model: ContigModel | None = None
) -> tuple[Summaries, Floats]:
    """Return what the chunks of records of ``lengths`` bases say, and log odds.

    With a ``model`` there is a row for each record that is scored, ``[records, 2]``: its log odds,
    and the logarithm of its number of chunks. Without, there is a number for each scored chunk.
    """
    status = np.full(len(lengths), NO_CHUNK)
    np.minimum.at(status, chunks.record, chunks.status)
    scored = chunks.chosen(chunks.status == SCORED)
    others, virus = scored.others, scored.virus
    records, starts = np.unique(scored.record, return_index=True)
    bases = _bases(scored, starts)
    if model is None:
        scores = weighted_mean(scored, starts)
        odds = log_odds(scored)
    else:
        longest = np.maximum.reduceat(scored.stop - scored.start, starts)
        terms = contig_terms(log_odds(scored), starts, bases / longest)
        odds = np.stack([model.log_odds(terms), terms[:, -1]], axis=1)
        scores = each(math.tanh, (odds[:, 0] + PRIOR) / 2)
    coverage, virus_score = np.zeros(len(lengths)), np.full(len(lengths), np.nan)
    coverage[records] = bases / lengths[records]
    virus_score[records] = scores

    def count(which: Chunks) -> Ints:
        return np.bincount(which.record, minlength=len(lengths))

    viral = count(scored.chosen((virus > CONFIDENT) & (others < CONTRADICTED)))
    nonviral = count(scored.chosen((others > CONFIDENT) & (virus < CONTRADICTED)))
    counts = count(chunks), count(scored)
    return Summaries(*counts, coverage, virus_score, viral, nonviral, status), odds


def met(
    thresholds: Thresholds,
    lengths: Ints,
    scores: Floats,
    fdr: Floats,
    errors: Floats | None = None,
) -> Bools:
    """Return which records are classified as viral; a rate that is unknown is NaN.

    With the default of the least score, that is also an undecided record whose own error rate, of
    ``errors``, is at most ``UNLIKELY``.
    """
    is_viral = scores > thresholds.min_score
    if errors is not None and thresholds.takes_undecided:
        is_viral |= (scores >= NONVIRUS_BELOW) & (errors <= UNLIKELY)
    is_low = np.isnan(fdr) | (fdr <= thresholds.max_fdr)
    return is_viral & is_low & (lengths >= thresholds.min_length)


def call_of(
    lengths: Ints,
    found: Summaries,
    fdr: Floats,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    errors: Floats | None = None,
    hallmarks: Ints | None = None,
) -> Calls:
    """Return the calls of records of ``lengths`` bases.

    ``fdr`` and ``errors`` are those of :func:`contig_rates`; NaN where they are not known.
    ``hallmarks`` are the numbers of hallmark functions that were found in the records; 0 says
    nothing. Two of them, or one and a score above the threshold, raise the tier.
    """
    scores, scored = found.virus_score, found.chunks_scored
    is_scored = found.status == SCORED
    is_virus = met(thresholds, lengths, scores, fdr, errors)
    is_nonvirus = ~is_virus & (scores < NONVIRUS_BELOW)
    has_rate = ~np.isnan(fdr)
    medium, high = HIGHEST_RATES
    is_high = fdr <= high
    if errors is not None:
        is_high &= errors <= UNLIKELY  # the rate of many good ones says little of the last one
    of_virus = np.where(has_rate, 1 * (fdr <= medium) + is_high, 2 * (scores > HIGH_SCORE))
    medium, high = LOW_SCORES
    is_clear = scores < medium
    of_nonvirus = np.where(has_rate, 1 * is_clear + (scores < high), 2 * is_clear)
    tiers = is_virus * of_virus + is_nonvirus * of_nonvirus
    is_enough = (scored > 1) & (found.coverage >= LITTLE)  # as in evidence_of
    tiers = np.minimum(tiers, np.where(is_enough, 2, has_rate))
    if hallmarks is not None:
        tiers += is_virus & (hallmarks + (scores > thresholds.min_score) >= 2) & (tiers < 2)
    cases = [~is_scored, is_virus, is_nonvirus]
    return Calls(
        chunks=found.chunks.tolist(),
        chunks_scored=scored.tolist(),
        coverage=found.coverage.tolist(),
        call=np.select(cases, ["unscored", "virus", "nonvirus"], "undecided").tolist(),
        virus_score=_known(scores),
        tier=np.array([None, *TIERS])[is_scored * (1 + tiers)].tolist(),
        confident_viral=found.confident_viral.tolist(),
        confident_nonviral=found.confident_nonviral.tolist(),
        undecided=(scored - found.confident_viral - found.confident_nonviral).tolist(),
        status=[STATUSES[place] for place in found.status.tolist()],
        fdr=_known(fdr),
    )


def _known(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def evidence_of(chunks_scored: int, coverage: float) -> str:
    """Return what the score of a record rests on, in the words of ``STEM_virus.tsv``."""
    if chunks_scored == 1:
        return "one chunk"
    return "little scored" if coverage < LITTLE else "ok"


def log_odds(scored: Chunks) -> Floats:
    """Return the natural logarithm of the odds of virus of each scored chunk."""
    others, virus = np.maximum((scored.others, scored.virus), SMALLEST)
    return each(math.log, virus) - each(math.log, others)


def _bases(scored: Chunks, starts: Ints) -> Ints:
    """Return how many bases are in the chunks of each record, which begin at ``starts``."""
    before = np.roll(scored.stop, 1)  # chunks are in order, and may overlap
    before[starts] = 0
    bases: Ints = np.add.reduceat(scored.stop - np.maximum(scored.start, before), starts)
    return bases


def weighted_mean(scored: Chunks, starts: Ints) -> Floats:
    """Return the score, -1 to 1, of each record by the rule of the original program.

    It is the mean of ``max_score_1 - max_score_0``, weighted by the square root of its absolute
    value, so that undecided chunks say little.
    """
    differences = scored.virus - scored.others
    weights = np.sqrt(np.abs(differences))
    total, weighted = sums(weights, starts), sums(weights * differences, starts)
    return np.divide(weighted, total, out=np.zeros_like(total), where=total > 0)


def contig_rates(
    odds: Floats,
    chunks: Ints,
    model: ContigModel | None = None,
    hallmarks: Ints | None = None,
) -> tuple[Floats, Floats]:
    """Return the false discovery rate and the own error rate of every contig: ``[contigs]``.

    The former is the share of errors if the contig and all that are at least as certain were
    classified as viral, the latter is how likely the contig itself is no virus. Both are NaN where
    nothing was scored. ``odds`` are those of :func:`summarise` with this ``model``, contig by
    contig; ``chunks`` ``[contigs]`` are the scored chunks of each contig, and ``hallmarks`` the
    hallmark functions that were found.
    """
    scored = chunks > 0
    fdr, errors = np.full((2, len(chunks)), np.nan)
    if not scored.any():
        return fdr, errors
    if model is not None and model.has_distributions:
        known = np.zeros_like(chunks) if hallmarks is None else hallmarks
        own, log_counts = odds.T
        errors[scored] = error_rates(model, own, log_counts, known[scored])
    elif model is not None:
        errors[scored] = calibrated_rates(odds[:, 0], np.ones(len(odds)))
    else:
        counts = chunks[scored]
        starts = np.cumsum(counts) - counts
        rates = calibrated_rates(odds, np.repeat(1 / counts, counts))
        errors[scored] = np.add.reduceat(rates, starts) / counts
    fdr[scored] = running_mean(errors[scored])
    return fdr, errors


def running_mean(errors: Floats) -> Floats:
    """Return ``[n]``, the mean of all ``errors`` ``[n]`` that are at most as large."""
    order = np.argsort(errors, kind="stable")
    ranked = errors[order]
    means = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    last = np.searchsorted(ranked, ranked, side="right") - 1  # of those with the same rate
    fdr = np.empty_like(means)
    fdr[order] = np.maximum.accumulate(means[last])  # rounding must not make it fall
    return fdr
