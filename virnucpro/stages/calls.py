"""From the scores of its chunks to the call of a record, and its false discovery rate.

The classifier was calibrated on as much virus as others. A sample has another share of virus, so
the probabilities are corrected first, as in Saerens, Latinne and Decaestecker 2002 (Neural
Computation 14:21-41). Chunks are corrected, contigs averaged afterwards: a mean over chunks is
less certain than it should be, and the share of virus that is found from such means runs to 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

import numpy as np

from virnucpro.classifier.contigs import PRIOR, ContigModel, Terms, contig_terms
from virnucpro.metrics.classification import Floats, Ints
from virnucpro.settings import DEFAULT_CUTS, DOUBTFUL, Cuts

# Thresholds of the files' contract (docs/files.md).
VIRUS_ABOVE = DEFAULT_CUTS.min_score  # where nothing else was asked for
NONVIRUS_BELOW = -0.3
HIGH_TIER = 0.6
LITTLE = 0.25  # of the bases of a record; less says little about the rest of it
CONFIDENT = 0.8
CONTRADICTED = 0.3
SMALLEST = 1e-30  # of a score, where its logarithm is taken
# Where chunks have several reasons, the record has the first of these.
REASONS = ("failed", "no_open_frame", "repetitive", "ambiguous", "too_short")

TRAINED_SHARE = 0.5  # of virus: training and validation parts are balanced
FEWEST = 100  # scored contigs; the share of virus of fewer is too uncertain to correct with
ITERATIONS = 1000
BACKGROUND = 0.75  # the share of the records of a sample that show how its hosts score
USUAL = 0.5  # of others look as viral as that record, in a sample of half virus
LEAST_USUAL = 0.05
OTHERS_PER_USUAL = 3  # a third of others, of nearly all kinds, look no more viral than USUAL
TOLERANCE = 1e-6  # change of the share from one iteration to the next


Scores = tuple[float, float]
"""Of a chunk: for others and virus, 0 to 1."""


class Chunk(NamedTuple):
    """A chunk with its status and scores; ``start`` and ``stop`` are 0-based and half-open.

    The scores are kept as the text of the consensus file, ``NA`` where there is none.
    """

    id: str
    start: int
    stop: int
    status: str
    frames: int
    others: str
    virus: str

    @property
    def scores(self) -> Scores:
        """The scores for others and virus; only of a chunk that was scored."""
        return float(self.others), float(self.virus)


class Call(NamedTuple):
    """The columns of the contigs table that follow from the chunks of a record.

    The fields are named as the columns, which :data:`virnucpro.tables.CONTIGS` explains.
    """

    chunks: int
    chunks_scored: int
    coverage: float
    call: str
    virus_score: float | None
    tier: str | None
    confident_viral: int
    confident_nonviral: int
    undecided: int
    status: str
    fdr: float | None = None

    @property
    def evidence(self) -> str:
        """What the score of a scored record rests on."""
        return evidence_of(self.chunks_scored, self.coverage)


class Summary(NamedTuple):
    """What follows from the chunks of a record alone; the fields are those of :class:`Call`.

    ``virus_score`` is NaN where nothing was scored.
    """

    chunks: int
    chunks_scored: int
    coverage: float
    virus_score: float
    confident_viral: int
    confident_nonviral: int
    status: str


def summarise(
    length: int, chunks: Sequence[Chunk], model: ContigModel | None = None
) -> tuple[Summary, list[float]]:
    """Return what the chunks of a record of ``length`` bases say, and its probabilities.

    With a ``model`` the probabilities are one number for the record: the share of others that look
    as viral where the model has their tail, else a probability at ``TRAINED_SHARE``. Without, there
    is one for each scored chunk.
    """
    scored = [chunk for chunk in chunks if chunk.status == "scored"]
    if not scored:
        statuses = {chunk.status for chunk in chunks}
        status = next((reason for reason in REASONS if reason in statuses), "too_short")
        return Summary(len(chunks), 0, 0.0, math.nan, 0, 0, status), []
    scores = [chunk.scores for chunk in scored]
    viral = nonviral = 0
    for others, virus in scores:
        viral += virus > CONFIDENT and others < CONTRADICTED
        nonviral += others > CONFIDENT and virus < CONTRADICTED
    terms, bases = _terms(scored, scores)
    if model is None:
        score = weighted_mean(scores)
        probabilities = [virus / (virus + others) for others, virus in scores]
    else:
        odds = model.log_odds(terms)
        score = math.tanh((odds + PRIOR) / 2)
        chance = model.chance(terms) if model.tail_slope else 0.5 * (1 + math.tanh(odds / 2))
        probabilities = [chance]
    counts = len(chunks), len(scored), bases / length
    return Summary(*counts, score, viral, nonviral, "scored"), probabilities


def call_of(
    length: int, found: Summary, fdr: float | None = None, cuts: Cuts = DEFAULT_CUTS
) -> Call:
    """Return the call of a record of ``length`` bases."""
    chunks, scored, coverage, score, viral, nonviral, status = found
    if status != "scored":
        return Call(chunks, 0, 0.0, "unscored", None, None, 0, 0, 0, status)
    met = cuts.met(length, score, fdr)
    call = "virus" if met else "nonvirus" if score < NONVIRUS_BELOW else "undecided"
    is_sure = (call == "nonvirus" and score < -HIGH_TIER) or (
        call == "virus" and score > HIGH_TIER and (fdr is None or fdr <= DOUBTFUL)
    )
    tier = "high" if is_sure and evidence_of(scored, coverage) == "ok" else "low"
    counts = viral, nonviral, scored - viral - nonviral
    return Call(chunks, scored, coverage, call, score, tier, *counts, status, fdr)


def evidence_of(chunks_scored: int, coverage: float) -> str:
    """Return what the score of a record rests on, in the words of ``STEM_virus.tsv``."""
    if chunks_scored == 1:
        return "one chunk"
    return "little scored" if coverage < LITTLE else "ok"


def log_odds(scores: Scores) -> float:
    """Return the natural logarithm of the odds of virus."""
    others, virus = scores
    return math.log(max(virus, SMALLEST)) - math.log(max(others, SMALLEST))


def _terms(scored: Sequence[Chunk], scores: Sequence[Scores]) -> tuple[Terms, int]:
    """Return the terms of a contig, and how many bases are in its chunks, which are in order."""
    bases = longest = end = 0
    for chunk in scored:  # they may overlap
        bases += chunk.stop - max(chunk.start, end)
        longest, end = max(longest, chunk.stop - chunk.start), chunk.stop
    return contig_terms([log_odds(each) for each in scores], bases / longest), bases


def weighted_mean(scores: Sequence[Scores]) -> float:
    """Return the score, -1 to 1, of chunks with these scores by the rule of the original program.

    It is the mean of ``max_score_1 - max_score_0``, weighted by the square root of its absolute
    value, so that undecided chunks say little.
    """
    differences = [virus - others for others, virus in scores]
    weights = [math.sqrt(abs(each)) for each in differences]
    total = math.fsum(weights)
    return math.fsum(map(mul, weights, differences)) / total if total else 0.0


def virus_score(scored: Sequence[Chunk], model: ContigModel | None = None) -> float:
    """Return the score, -1 to 1, of a part of a record with these scored chunks, of at least one.

    With a ``model``, it is twice the probability of virus, less one, in a sample with the share of
    virus that is assumed. Without, it is the :func:`weighted_mean`.
    """
    scores = [chunk.scores for chunk in scored]
    if model is None:
        return weighted_mean(scores)
    return math.tanh((model.log_odds(_terms(scored, scores)[0]) + PRIOR) / 2)


def rates_by_chance(chances: Floats) -> Floats:
    """Return the false discovery rate of every record (Benjamini and Hochberg 1995).

    ``chances`` ``[n]`` are the shares of others that look as viral as each record. Where three
    quarters of the records look more viral than half of the others should, the hosts are of a kind
    that looks more viral, and the chances are raised accordingly. Where nearly all do, either most
    records are viruses, or the hosts are like none that are known: then all rates are NaN. The
    number of others is estimated from the records that look as others do (after Storey 2002).
    """
    others = len(chances)
    if others >= FEWEST:
        usual = min(USUAL, float(np.quantile(chances, BACKGROUND)))
        if usual < LEAST_USUAL:
            return np.full(len(chances), np.nan)
        # Counted before they are raised, where many may tie with ``usual`` and be rounded below it.
        others = min(others, OTHERS_PER_USUAL * int((chances >= usual).sum()))
        chances = chances ** (math.log(USUAL) / math.log(usual))
    order = np.argsort(chances, kind="stable")
    rates = others * chances[order] / np.arange(1, len(chances) + 1)
    fdr = np.empty(len(chances))
    fdr[order] = np.minimum.accumulate(np.minimum(rates, 1.0)[::-1])[::-1]
    return fdr


def contig_fdr(probabilities: Floats, chunks: Ints, model: ContigModel | None = None) -> Floats:
    """Return ``[contigs]``, the false discovery rate of every contig; NaN where nothing was scored.

    It is the rate if the contig and all that look at least as viral were classified as viral.
    ``probabilities`` ``[n]`` are those of :func:`summarise` with this ``model``, contig
    by contig; ``chunks`` ``[contigs]`` says how many each contig has.
    """
    scored = chunks > 0
    fdr = np.full(len(chunks), np.nan)
    counts = chunks[scored]
    if len(counts) == 0:
        return fdr
    if model is not None and model.tail_slope:
        fdr[scored] = rates_by_chance(probabilities)
        return fdr
    if len(counts) >= FEWEST:
        share = virus_share(probabilities, np.repeat(1 / counts, counts))
        # A larger share would lower every rate. Where the classifier is less sure than calibrated,
        # the estimate runs to 1, and all contigs would be viral at a rate of 0.
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
