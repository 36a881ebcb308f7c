"""Viral regions in a record: proviruses, and the viral parts of chimeras, from its chunk scores.

The record is read as a chain of two hidden states, host and virus. In the host state, the log odds
of a chunk spread around the level of this record, and in the virus state around a level that lies
:attr:`RegionModel.shift` higher. Relative to the record it matters little that a classifier calls
many chunks of some bacteria virus, or few chunks of some phages. A chunk without a score says
nothing about its state. The most likely path of states is found with the algorithm of Viterbi. The
level of the host follows from the chunks in the host state, and those from the level; both are
repeated until they agree.

A region is a stretch of the virus state with enough evidence: the logarithm of how much more
likely its scores are under virus than under host, less what it costs to enter and leave the state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from virnucpro.classifier.contigs import ContigModel
from virnucpro.stages.calls import VIRUS_ABOVE, Chunk, virus_score

ROUNDS = 8  # of level and path; they nearly always agree after three
FLANK = 20  # scored chunks on either side of a region give its flank score


@dataclass(frozen=True)
class RegionModel:
    """What is assumed about the scores of hosts and viruses. Levels are natural log odds.

    Attributes:
        host_level: the usual mean of the chunks of a host.
        host_level_spread: the standard deviation of that mean from one host to another.
        chunk_spread: the standard deviation of the chunks of one record around their level.
        shift: how far the level of a virus lies above that of its host.
        weight: what the evidence of a chunk counts; neighbours say partly the same.
        entry: the cost of a change from host to virus, and back.
        largest: the evidence of one chunk counts up to this, for or against.
        shortest_record: bases; nothing is said about shorter records, which show no background.
        fewest_chunks: scored chunks of a region.
    """

    host_level: float = -2.0
    host_level_spread: float = 1.0
    chunk_spread: float = 1.3
    shift: float = 2.0
    weight: float = 0.5
    entry: float = 5.0
    largest: float = 1.5
    shortest_record: int = 10_000
    fewest_chunks: int = 4


MODEL = RegionModel()


class Region(NamedTuple):
    """A viral region of a record; ``start`` and ``stop`` are 0-based and half-open, in bases.

    Attributes:
        chunks: the number of chunks that lie in the region.
        chunks_scored: how many of them have a score.
        score: between -1 and 1: twice the probability that the region is viral, less one.
        flank_score: the score of the chunks beside the region, by the rule for records; None
            where none of them is scored.
        at_edge: whether the region reaches the first or the last base of the record, so that it
            may continue outside.
    """

    start: int
    stop: int
    chunks: int
    chunks_scored: int
    score: float
    flank_score: float | None
    at_edge: bool


def find_regions(
    length: int,
    chunks: Sequence[Chunk],
    contig_model: ContigModel | None = None,
    model: RegionModel = MODEL,
) -> list[Region]:
    """Return the viral regions of a record of ``length`` bases, in order; they do not overlap.

    A record that is viral as a whole is its own background and has no region. The chunks are in
    order and may overlap. ``contig_model`` gives the score of the flanks, as in
    :func:`virnucpro.stages.calls.call_record`.
    """
    if length < model.shortest_record:
        return []
    scored = [number for number, chunk in enumerate(chunks) if chunk.status == "scored"]
    if len(scored) < 2 * model.fewest_chunks:
        return []
    paths = _viral_stretches([chunks[number].log_odds for number in scored], model)
    viral = {i for first, last, _ in paths for i in range(first, last + 1)}
    regions = []
    for first, last, evidence in paths:
        score = math.tanh(evidence / 2)
        if last - first + 1 < model.fewest_chunks or score <= VIRUS_ABOVE:
            continue
        # A region that begins or ends with the scored chunks also has the unscored ones beyond.
        low = scored[first] if first else 0
        high = scored[last] + 1 if last + 1 < len(scored) else len(chunks)
        start, stop = chunks[low].start, chunks[high - 1].stop
        beside = [*range(max(0, first - FLANK), first), *range(last + 1, last + 1 + FLANK)]
        flank = [chunks[scored[i]] for i in beside if i < len(scored) and i not in viral]
        regions.append(
            Region(
                start=start,
                stop=stop,
                chunks=high - low,
                chunks_scored=last - first + 1,
                score=score,
                flank_score=virus_score(flank, contig_model) if flank else None,
                at_edge=start == 0 or stop == length,
            )
        )
    return regions


def _viral_stretches(values: list[float], model: RegionModel) -> list[tuple[int, int, float]]:
    """Return (first, last, evidence) of every stretch of the virus state, in order."""
    level = _starting_level(values, model)
    stretches: list[tuple[int, int, float]] = []
    for _ in range(ROUNDS):
        before, stretches = stretches, _decode(_evidence(values, level, model), model.entry)
        if stretches == before:
            break
        level = _host_level(values, stretches, model)
    return stretches


def _starting_level(values: list[float], model: RegionModel) -> float:
    """Return a level below which half of the host lies, even where half of the record is viral.

    The lower quartile of a record that is all host lies 0.67 standard deviations below its level.
    In a record whose other half is viral, the lower quartile is the level of the host.
    """
    quartile = sorted(values)[len(values) // 4] + 0.67 * model.chunk_spread / 2
    return _shrunk(quartile, len(values) / 4, model)


def _host_level(
    values: list[float], stretches: list[tuple[int, int, float]], model: RegionModel
) -> float:
    """Return the level of the chunks outside all stretches."""
    host, end = [], 0
    for first, last, _ in stretches:
        host += values[end:first]
        end = last + 1
    host += values[end:]
    if not host:
        return model.host_level
    return _shrunk(math.fsum(host) / len(host), len(host), model)


def _shrunk(mean: float, count: float, model: RegionModel) -> float:
    """Return the mean of ``count`` chunks, drawn to the usual level as far as it is uncertain."""
    known = count * model.host_level_spread**2
    unknown = model.chunk_spread**2 / model.weight  # neighbours say partly the same
    return (known * mean + unknown * model.host_level) / (known + unknown)


def _evidence(values: list[float], level: float, model: RegionModel) -> list[float]:
    """Return the logarithm of the likelihood ratio of virus to host for every chunk."""
    slope = model.weight * model.shift / model.chunk_spread**2
    middle = level + model.shift / 2
    most = model.largest
    return [min(max(slope * (value - middle), -most), most) for value in values]


def _decode(evidence: list[float], entry: float) -> list[tuple[int, int, float]]:
    """Return the stretches of the virus state on the most likely path.

    ``lead`` is by how much the best path that ends in the virus state is more likely than the best
    one that ends in the host state; leads beyond the cost of a change are cut to it, because the
    better path changes its state then.
    """
    leads = []
    lead = -entry
    for value in evidence:
        lead = min(max(lead, -entry), entry) + value
        leads.append(lead)
    stretches = []
    last = None
    for i in range(len(evidence) - 1, -1, -1):
        if last is None and leads[i] > (0 if i + 1 == len(evidence) else entry):
            last = i
        if last is not None and (i == 0 or leads[i - 1] <= -entry):
            cost = entry if i == 0 or last + 1 == len(evidence) else 2 * entry
            stretches.append((i, last, math.fsum(evidence[i : last + 1]) - cost))
            last = None
    return stretches[::-1]
