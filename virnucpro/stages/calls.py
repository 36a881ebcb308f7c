"""From the scores of its chunks to the call of a record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from virnucpro.tables import CHUNKS, CONTIGS, MISSING

# Thresholds of the files' contract (docs/files.md).
VIRUS_ABOVE = 0.3
HIGH_TIER = 0.6
CONFIDENT = 0.8
CONTRADICTED = 0.3
REASONS = ("failed", "no_open_frame", "ambiguous", "too_short")


_chunk_row = CHUNKS.row_format(
    "record", "chunk", "start", "end", "status", "frames", "max_score_0", "max_score_1"
)


_contig_row = CONTIGS.row_format(
    "record", "length", "chunks", "chunks_scored", "coverage", "call", "virus_score", "tier",
    "confident_viral", "confident_nonviral", "undecided", "status", "fdr",
)  # fmt: skip
_SCORE, _FDR = CONTIGS.column("virus_score"), CONTIGS.column("fdr")


class Chunk(NamedTuple):
    """A chunk and what became of it; ``start`` and ``stop`` are 0-based and half-open.

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
    def probability(self) -> float:
        """Of virus, 0 to 1; only where it was scored."""
        others, virus = float(self.others), float(self.virus)
        return virus / (virus + others)

    def row(self, record: str) -> str:
        """Its line of the chunks table: 1-based, inclusive coordinates."""
        start = self.start + 1
        return _chunk_row(
            record, self.id, start, self.stop, self.status, self.frames, self.others, self.virus
        )


class Call(NamedTuple):
    """What is said of a record."""

    call: str
    status: str
    score: float
    scored: int
    coverage: float
    viral: int
    nonviral: int
    undecided: int

    @property
    def tier(self) -> str:
        """Whether the score is far from 0."""
        return "high" if abs(self.score) > HIGH_TIER else "low"

    def row(self, record: str, length: int, chunks: int, fdr: float | None) -> str:
        """Its line of the contigs table."""
        return _contig_row(
            record,
            length,
            chunks,
            self.scored,
            self.coverage,
            self.call,
            _SCORE.text(self.score if self.scored else None),
            self.tier if self.scored else MISSING,
            self.viral,
            self.nonviral,
            self.undecided,
            self.status,
            _FDR.text(fdr),
        )


def call_record(length: int, chunks: Sequence[Chunk]) -> Call:
    """Sum up the chunks of a record of ``length`` bases.

    The virus score is the mean of the chunks' ``max_score_1 - max_score_0``, weighted by the
    square root of its absolute value, so that undecided chunks say little: -1 to 1.
    """
    scored = [chunk for chunk in chunks if chunk.status == "scored"]
    if not scored:
        present = {chunk.status for chunk in chunks}
        status = next((reason for reason in REASONS if reason in present), "too_short")
        return Call("unscored", status, 0.0, 0, 0.0, 0, 0, 0)
    weights, weighted = [], []
    viral = nonviral = 0
    for chunk in scored:
        others, virus = float(chunk.others), float(chunk.virus)
        weights.append(math.sqrt(abs(virus - others)))
        weighted.append(weights[-1] * (virus - others))
        if virus > CONFIDENT and others < CONTRADICTED:
            viral += 1
        elif others > CONFIDENT and virus < CONTRADICTED:
            nonviral += 1
    total = math.fsum(weights)
    score = math.fsum(weighted) / total if total else 0.0
    call = "virus" if score > VIRUS_ABOVE else "nonvirus" if score < -VIRUS_ABOVE else "undecided"
    return Call(
        call,
        "scored",
        score,
        len(scored),
        _covered(scored) / length,
        viral,
        nonviral,
        len(scored) - viral - nonviral,
    )


def _covered(chunks: Sequence[Chunk]) -> int:
    """Bases in at least one of ``chunks``, which are in order and may overlap."""
    covered = end = 0
    for chunk in chunks:
        if chunk.stop > end:
            covered += chunk.stop - (chunk.start if chunk.start > end else end)
            end = chunk.stop
    return covered
