"""From the scores of its chunks to the call of a record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from virnucpro.classifier.contigs import ContigModel
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
REASONS = ("failed", "no_open_frame", "ambiguous", "too_short")

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
        """What the score of a scored record rests on, in the words of ``STEM_virus.tsv``."""
        if self.chunks_scored == 1:
            return "one chunk"
        return "little scored" if self.coverage < LITTLE else "ok"


def call_record(
    length: int,
    chunks: Sequence[Chunk],
    model: ContigModel | None = None,
    fdr: float | None = None,
    cuts: Cuts = DEFAULT_CUTS,
) -> Call:
    """Return the call of a record of ``length`` bases from its chunks; see :func:`virus_score`."""
    scored = [chunk for chunk in chunks if chunk.status == "scored"]
    if not scored:
        statuses = {chunk.status for chunk in chunks}
        status = next((reason for reason in REASONS if reason in statuses), "too_short")
        return Call(len(chunks), 0, 0.0, "unscored", None, None, 0, 0, 0, status)
    covered = end = 0
    for chunk in scored:  # they are in order and may overlap
        covered += max(0, chunk.stop - max(chunk.start, end))
        end = max(end, chunk.stop)
    scores = [chunk.scores for chunk in scored]
    viral = sum(virus > CONFIDENT and others < CONTRADICTED for others, virus in scores)
    nonviral = sum(others > CONFIDENT and virus < CONTRADICTED for others, virus in scores)
    score = virus_score(scores, model)
    met = cuts.met(length, score, fdr)
    call = Call(
        chunks=len(chunks),
        chunks_scored=len(scored),
        coverage=covered / length,
        call="virus" if met else "nonvirus" if score < NONVIRUS_BELOW else "undecided",
        virus_score=score,
        tier="low",
        confident_viral=viral,
        confident_nonviral=nonviral,
        undecided=len(scored) - viral - nonviral,
        status="scored",
        fdr=fdr,
    )
    is_sure = (call.call == "nonvirus" and score < -HIGH_TIER) or (
        call.call == "virus" and score > HIGH_TIER and (fdr is None or fdr <= DOUBTFUL)
    )
    return call._replace(tier="high") if is_sure and call.evidence == "ok" else call


def log_odds(scores: Scores) -> float:
    """Return the natural logarithm of the odds of virus."""
    others, virus = scores
    return math.log(max(virus, SMALLEST)) - math.log(max(others, SMALLEST))


def virus_score(scores: Sequence[Scores], model: ContigModel | None = None) -> float:
    """Return the score, -1 to 1, of a record with these scored chunks, of which there is one.

    Without a ``model``, it is the mean of the chunks' ``max_score_1 - max_score_0``, weighted by
    the square root of its absolute value, so that undecided chunks say little.
    """
    if model is not None:
        return model.score([log_odds(pair) for pair in scores])
    differences = [virus - others for others, virus in scores]
    weights = [math.sqrt(abs(difference)) for difference in differences]
    total = math.fsum(weights)
    weighted = (weight * d for weight, d in zip(weights, differences, strict=True))
    return math.fsum(weighted) / total if total else 0.0
