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
from virnucpro.classifier.evidence import GeneEvidence, evidence_odds, share_with_hallmark
from virnucpro.classifier.mixture import calibrated_rates, error_rates
from virnucpro.metrics import Bools, Floats, Ints
from virnucpro.settings import (
    DEFAULT_THRESHOLDS,
    MOST_WRONG,
    NONVIRUS_BELOW,
    UNLIKELY,
    Thresholds,
)

# Of the files' contract (docs/files.md).
VIRUS_ABOVE = DEFAULT_THRESHOLDS.min_score  # where nothing else was asked for
TIERS = ("low", "medium", "high")
LOW, MEDIUM, HIGH = range(3)  # their places
HIGHEST_RATES = (0.25, 0.05)  # false discovery rates of a virus with the tier medium and high
HIGH_SCORE = 0.6  # of a virus with the tier high where no rate is known
# Scores of a record called nonvirus with the tier medium and high. Of viruses of validation that
# are cut into contigs (examples/lite/mixtures.py), one of 100 with two chunks or more scores below
# the last.
LOW_SCORES = (-0.6, -0.94)
MARKED = 0.25  # the highest error rate of a virus that has more host markers than hallmarks
LONG = 5_000  # bases of records whose genes say something of their sample
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
    error_rate: Sequence[float | None]


class Rates(NamedTuple):
    """How likely records are wrong if they are classified as viral: arrays ``[records]``.

    ``fdr`` is the share of errors if a record and all that are at least as certain were classified
    as viral, and ``errors`` how likely the record itself is no virus. Both are NaN where nothing
    was scored, and without calibration. ``supported`` says of the whole sample whether its genes
    agree, as in :func:`supports_viruses`.
    """

    fdr: Floats
    errors: Floats
    supported: bool

    def chosen(self, which: slice) -> Rates:
        """Return the rates of some records that follow each other."""
        return Rates(self.fdr[which], self.errors[which], self.supported)


def unknown_rates(records: int) -> Rates:
    """Return the rates of records where none are known."""
    fdr, errors = np.full((2, records), np.nan)
    return Rates(fdr, errors, supported=False)


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
        own = log_odds(scored) / model.temperature
        terms = contig_terms(own, starts, bases / longest)
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


def is_host(evidence: GeneEvidence) -> Bools:
    """Return which records have more host markers than a virus may carry."""
    markers: Bools = evidence.markers >= np.maximum(2, 1 + 3 * evidence.hallmarks)
    return markers


def supports_viruses(lengths: Ints, is_likely: Bools, evidence: GeneEvidence) -> bool:
    """Return whether the genes of the long records of a sample say what its scores say.

    ``is_likely`` are the records that are likely viral by their scores and all others. Among the
    long ones of these, hallmarks have to be at least half as frequent as among viruses, and records
    with host markers fewer than those with hallmarks.
    """
    which = is_likely & evidence.searched & (lengths >= LONG)
    expected = float(share_with_hallmark(lengths[which]).sum())
    found = evidence.chosen(which)
    hallmarked, marked = ((counts > 0).sum() for counts in (found.hallmarks, found.markers))
    return bool(expected >= 1 and hallmarked >= expected / 2 and marked < hallmarked)


def met(
    thresholds: Thresholds,
    lengths: Ints,
    scores: Floats,
    rates: Rates,
    evidence: GeneEvidence,
) -> Bools:
    """Return which records are classified as viral.

    With the default of the least score, their error rate must not be above ``MOST_WRONG``, and an
    undecided record is viral, too, if its rate is at most ``UNLIKELY`` and genes support it: it has
    a hallmark, or its genes were looked for and the long records of the sample support it. A record
    with more host markers than hallmarks needs a rate of at most ``MARKED``.
    """
    is_viral = scores > thresholds.min_score
    if thresholds.takes_undecided:
        is_supported = (evidence.hallmarks > 0) | (evidence.searched & rates.supported)
        is_possible = (scores >= NONVIRUS_BELOW) | (evidence.hallmarks >= 2)
        is_viral &= ~(rates.errors > MOST_WRONG)
        is_viral |= is_possible & is_supported & (rates.errors <= UNLIKELY)
    is_marked = evidence.markers > evidence.hallmarks
    is_viral &= ~is_host(evidence) & ~(is_marked & (rates.errors > MARKED))
    is_low = np.isnan(rates.fdr) | (rates.fdr <= thresholds.max_fdr)
    return is_viral & is_low & (lengths >= thresholds.min_length)


def call_of(
    lengths: Ints,
    found: Summaries,
    rates: Rates,
    evidence: GeneEvidence,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Calls:
    """Return the calls of records of ``lengths`` bases.

    A host marker, or no hallmark and a middling score, makes the tier of a virus medium at most.
    Hallmarks of two functions, or of one and a score above the threshold, raise it by one step.
    """
    scores, scored, fdr = found.virus_score, found.chunks_scored, rates.fdr
    is_scored = found.status == SCORED
    is_virus = is_scored & met(thresholds, lengths, scores, rates, evidence)
    hallmarks, markers = evidence.hallmarks, evidence.markers
    is_opposed = (hallmarks >= 2) & (markers == 0)  # by its genes
    is_nonvirus = ~is_virus & ((scores < NONVIRUS_BELOW) & ~is_opposed | is_host(evidence))
    has_rate = ~np.isnan(fdr)
    # The rate of many good ones says little of the last one; NaN where it is not known.
    is_likely = ~(rates.errors > UNLIKELY)
    (medium_rate, high_rate), (medium_score, high_score) = HIGHEST_RATES, LOW_SCORES
    is_high = np.where(
        is_virus,
        np.where(has_rate, (fdr <= high_rate) & is_likely, scores > HIGH_SCORE),
        is_nonvirus & (scores < np.where(has_rate, high_score, medium_score)),
    )
    is_medium = np.where(is_virus, fdr <= medium_rate, is_nonvirus & (scores < medium_score))
    tiers = np.select([is_high, is_medium], [HIGH, MEDIUM], LOW)
    is_enough = (scored > 1) & (found.coverage >= LITTLE)  # as in basis_of
    tiers = np.minimum(tiers, np.select([is_enough, has_rate], [HIGH, MEDIUM], LOW))
    more = hallmarks - markers
    is_supported = (more >= 2) | ((more == 1) & (scores > thresholds.min_score))
    tiers = np.where(is_virus & is_supported, np.minimum(tiers + 1, HIGH), tiers)
    is_own = ((scores > HIGH_SCORE) | (hallmarks > 0)) & (markers <= hallmarks)
    tiers = np.where(is_virus & ~is_own, np.minimum(tiers, MEDIUM), tiers)
    cases = [~is_scored, is_virus, is_nonvirus]
    return Calls(
        chunks=found.chunks.tolist(),
        chunks_scored=scored.tolist(),
        coverage=found.coverage.tolist(),
        call=np.select(cases, ["unscored", "virus", "nonvirus"], "undecided").tolist(),
        virus_score=_known(scores),
        tier=[TIERS[tier] if known else None for tier, known in zip(tiers, is_scored, strict=True)],
        confident_viral=found.confident_viral.tolist(),
        confident_nonviral=found.confident_nonviral.tolist(),
        undecided=(scored - found.confident_viral - found.confident_nonviral).tolist(),
        status=[STATUSES[place] for place in found.status.tolist()],
        fdr=_known(fdr),
        error_rate=_known(rates.errors),
    )


def _known(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def basis_of(chunks_scored: int, coverage: float) -> str:
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
    lengths: Ints,
    evidence: GeneEvidence,
    model: ContigModel | None = None,
) -> Rates:
    """Return the rates of all records of a sample, of ``lengths`` bases.

    ``odds`` are those of :func:`summarise` with this ``model``, record by record, and ``chunks``
    ``[records]`` the scored chunks of each record.
    """
    scored = chunks > 0
    if not scored.any():
        return unknown_rates(len(chunks))
    fdr, errors = np.full((2, len(chunks)), np.nan)
    of_genes = evidence_odds(lengths, evidence)[scored]
    if model is not None and model.has_distributions:
        own, log_counts = odds.T
        errors[scored] = error_rates(model, own, log_counts, of_genes)
    else:
        if model is not None:
            rates = calibrated_rates(odds[:, 0], np.ones(len(odds)))
        else:
            counts = chunks[scored]
            starts = np.cumsum(counts) - counts
            own = calibrated_rates(odds, np.repeat(1 / counts, counts))
            rates = np.add.reduceat(own, starts) / counts
        errors[scored] = rates / (rates + (1 - rates) * of_genes)
    fdr[scored] = running_mean(errors[scored])
    is_likely = errors <= UNLIKELY
    return Rates(fdr, errors, supports_viruses(lengths, is_likely, evidence))


def running_mean(errors: Floats) -> Floats:
    """Return ``[n]``, the mean of all ``errors`` ``[n]`` that are at most as large."""
    order = np.argsort(errors, kind="stable")
    ranked = errors[order]
    means = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    last = np.searchsorted(ranked, ranked, side="right") - 1  # of those with the same rate
    fdr = np.empty_like(means)
    fdr[order] = np.maximum.accumulate(means[last])  # rounding must not make it fall
    return fdr
