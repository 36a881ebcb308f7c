"""Viral regions in a record: proviruses, and the viral parts of chimeras, from its chunk scores.

The record is read as a chain of two hidden states, host and virus. In the host state, the log odds
of a chunk spread around the level of this record; in the virus state, they spread around a higher
level. Relative to the record it matters little that a classifier calls many chunks of some bacteria
virus, or few chunks of some phages. A chunk without a score says nothing about its state. The most
likely path of states is found with the algorithm of Viterbi. The level and the spread of the host
follow from the chunks in the host state, and those from level and spread; both are repeated until
they agree. Where one unusual host explains all scores of a record as well, it has no region.

A region is the best part of a stretch of the virus state, if it has enough evidence: the logarithm
of how much more likely its scores are under virus than under host, less what it costs to enter and
leave the state. Genes count beside the scores: a hallmark of viruses in a chunk is evidence for the
virus state there, and a host marker against it: no region reaches over a cluster of markers.
Time and memory grow with the number of chunks only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from virnucpro.classifier.contigs import LARGEST, ContigModel
from virnucpro.classifier.evidence import HALLMARK_ODDS, MARKER_ODDS
from virnucpro.metrics import Floats, Ints
from virnucpro.settings import NONVIRUS_BELOW
from virnucpro.stages.calls import (
    HIGHEST_RATES,
    SCORED,
    TIERS,
    VIRUS_ABOVE,
    Chunks,
    log_odds,
    summarise,
)
from virnucpro.stages.genes import Hit
from virnucpro.stages.repeats import in_arrays

ROUNDS = 8  # of background and path; they nearly always agree after three
FLANK = 20  # scored chunks on either side of a region give its flank score

# What is assumed about the scores of hosts and viruses. Levels are natural log odds. Where one of
# these numbers changes, ``OutputStage.version`` rises.
HOST_LEVEL = -2.0  # the usual mean of the chunks of a host
HOST_LEVEL_SPREAD = 1.0  # the standard deviation of that mean between hosts
VIRUS_LEVEL = 1.0  # the usual mean of the chunks of a virus
CHUNK_SPREAD = 1.3  # the usual standard deviation of chunks around their record's level
USUAL_WEIGHT = 15.0  # the usual level and spread of a host count as much as so many of its chunks
# The assumed level of a virus lies this far on the way from the host of the record to
# ``VIRUS_LEVEL``, so that viruses that are hardly recognised are found, too.
REACH = 0.85
LEAST_SHIFT = 1.5  # it is at least so many spreads above the host
WEIGHT = 0.2  # what the evidence of a chunk counts; neighbours say partly the same
ENTRY = 1.8  # the cost of a change from host to virus, and of one back
LEAST_MIDDLE = -1.0  # between host and virus, where a region ends: beside it are islands, remnants
MOST_EVIDENCE = 0.8  # the evidence of one chunk counts up to this, for or against
SHORTEST_RECORD = 10_000  # bases; shorter records show no background
FEWEST_CHUNKS = 4  # scored chunks of a region

# Of ``FALSE_REGIONS`` false regions per million bases of hosts, (1 - score) to the power of
# ``FALSE_TAIL`` have at least that score, about as in the hosts of the validation part
# (examples/lite/regions.py), where unmarked proviruses count as false.
FALSE_REGIONS = 0.4
FALSE_TAIL = 0.2
SURE = 0.8  # a lower score alone gives no high tier
LONG = 40_000  # bases


class Region(NamedTuple):
    """A viral region of a record; ``start`` and ``stop`` are 0-based and half-open, in bases."""

    start: int
    stop: int
    chunks: int  # that lie in the region
    chunks_scored: int
    # -1 to 1, the hyperbolic tangent of half of the evidence; more than
    # ``VIRUS_ABOVE``, as of a record classified as viral.
    score: float
    flank_score: float | None  # of the scored chunks beside the region, by the rule for records
    at_edge: bool  # whether it reaches an end of the record, and may continue outside
    # Whether the chunks on either side score as a host, or the rest of the record has host markers.
    in_host: bool = False
    fdr: float | None = None  # its false discovery rate, when all regions of the sample are known


class Background(NamedTuple):
    """The scores of the host of one record: mean and standard deviation of its log odds."""

    level: float
    spread: float


def find_regions(
    length: int,
    chunks: Chunks,
    contig_model: ContigModel | None = None,
    sequence: str | None = None,
    hits: Sequence[Hit] = (),
) -> list[Region]:
    """Return the viral regions of a record of ``length`` bases, in order; they do not overlap.

    A record of which hardly any chunk looks like a host has none: whether it is a virus is what its
    call says. The chunks are in order and may overlap. ``contig_model`` gives the score of the
    flanks, as in :func:`virnucpro.stages.calls.summarise`. Arrays of repeats in the ``sequence``,
    where it is given, are in no region: they end it, or split it. ``hits`` are the hallmarks and
    host markers among the genes of the record.
    """
    if length < SHORTEST_RECORD:
        return []
    scored = np.flatnonzero(chunks.status == SCORED)
    if len(scored) < 2 * FEWEST_CHUNKS:
        return []

    def outside_arrays(stretch: range) -> list[range]:
        if sequence is None:
            return [stretch]
        own = scored[stretch.start : stretch.stop]
        first, middles = int(chunks.start[own[0]]), (chunks.start[own] + chunks.stop[own]) // 2
        is_array = in_arrays(sequence[first : chunks.stop[own[-1]]], middles - first)
        ends = [-1, *np.flatnonzero(is_array).tolist(), len(own)]
        return [stretch[low + 1 : high] for low, high in pairwise(ends) if high - low > 1]

    of_genes = gene_evidence(chunks.start[scored], hits)
    temperature = contig_model.temperature if contig_model else 1.0
    odds = (log_odds(chunks.chosen(scored)) / temperature).tolist()
    stretches = viral_stretches(odds, of_genes, outside_arrays)
    viral = {i for part, _ in stretches for i in part}
    regions = []
    for part, evidence in stretches:
        # A region that begins or ends with the scored chunks also has the unscored ones beyond.
        low = int(scored[part.start]) if part.start else 0
        high = int(scored[part.stop - 1]) + 1 if part.stop < len(scored) else len(chunks.record)
        start, stop = int(chunks.start[low]), int(chunks.stop[high - 1])
        left, right = (
            [i for i in side if 0 <= i < len(scored) and i not in viral]
            for side in (range(part.start - FLANK, part.start), range(part.stop, part.stop + FLANK))
        )
        # Both sides are like a record, and each of them like another one.
        number = np.repeat([0, 1, 2], [len(left + right), len(left), len(right)])
        beside = chunks.chosen(scored[2 * (left + right)])._replace(record=number)
        summaries, _ = summarise(np.ones(3, int), beside, contig_model)
        flank, *sides = summaries.virus_score.tolist()
        regions.append(
            Region(
                start=start,
                stop=stop,
                chunks=high - low,
                chunks_scored=len(part),
                score=math.tanh(evidence / 2),
                flank_score=flank,
                at_edge=start == 0 or stop == length,
                # A side without chunks has the score NaN.
                in_host=all(side < NONVIRUS_BELOW for side in sides)
                or any(hit.kind == "host marker" and not start <= hit.begin < stop for hit in hits),
            )
        )
    return regions


def region_fdr(scores: Floats, bases: float) -> list[float | None]:
    """Return the false discovery rate of each region among those of a sample, ``[n]``.

    ``bases`` are those of the records that were searched. Of hosts, ``FALSE_REGIONS`` regions per
    million bases have a score above 0, and fewer have a higher one; the rate is how many of these
    there should be, divided by how many there are. NaN bases give no rates.
    """
    if math.isnan(bases):
        return [None] * len(scores)
    order = np.argsort(-scores, kind="stable")
    tails = [(1 - score) ** FALSE_TAIL for score in scores[order].tolist()]
    expected = FALSE_REGIONS * bases / 1e6 * np.array(tails) / np.arange(1, len(scores) + 1)
    rates = np.empty_like(expected)  # that of a region is the least of it and all less certain ones
    rates[order] = np.minimum(1, np.minimum.accumulate(expected[::-1])[::-1])
    known: list[float | None] = rates.tolist()
    return known


def region_tier(score: float, length: int, fdr: float | None, hallmarks: int | None = None) -> str:
    """Return one of ``TIERS``; ``hallmarks`` are the genes that were found, None if not looked.

    A hallmark makes the tier high. Nearly all phages of ``LONG`` bases have one, so the tier of a
    region as long without one is low. The tier of all others follows from their rate, as that of
    records does, and a score of at most ``SURE`` is never high.
    """
    if hallmarks is not None and (hallmarks or length >= LONG):
        return "high" if hallmarks else "low"
    if fdr is None:
        return "high" if score > SURE else "low"
    medium, high = HIGHEST_RATES
    return TIERS[(fdr <= medium) + (fdr <= high and score > SURE)]


def gene_evidence(starts: Ints, hits: Sequence[Hit]) -> Floats:
    """Return ``[chunks]``, the evidence of hallmarks and host markers whose middle is in each.

    ``starts`` ``[chunks]`` are the first bases of the chunks.
    """
    evidence = np.zeros(len(starts))
    for hit in hits:
        place = int(np.searchsorted(starts, (hit.begin + hit.end) // 2, side="right"))
        odds = 1 / MARKER_ODDS if hit.kind == "host marker" else HALLMARK_ODDS
        evidence[max(place - 1, 0)] += math.log(odds)
    return evidence


def viral_stretches(
    log_odds: Sequence[float], of_genes: Floats, split: Callable[[range], list[range]]
) -> list[tuple[range, float]]:
    """Return the stretches of scored chunks that are viral, and the evidence of each.

    ``of_genes`` ``[chunks]`` is the evidence of the genes in each chunk, and ``split`` returns
    those parts of a stretch of the virus state that may be viral.
    """
    values = [min(max(value, -LARGEST), LARGEST) for value in log_odds]
    # A host beside much virus has the lower third of the scores, and a certain one the usual level.
    level = (HOST_LEVEL + sorted(values)[len(values) // 3]) / 2
    background = Background(level, CHUNK_SPREAD)
    for _ in range(ROUNDS):
        evidence = [a + b for a, b in zip(_evidence(values, background), of_genes, strict=True)]
        path = _path(evidence)
        viral = {i for stretch in path for i in stretch}
        outside = [value for i, value in enumerate(values) if i not in viral]
        if len(outside) < FEWEST_CHUNKS:  # too few to be a host beside a virus
            return []
        background = _background(outside)
    # Unless all of the record is as likely to be a host of an unusual level:
    stretches = [values[stretch.start : stretch.stop] for stretch in path]
    viral_genes = math.fsum(of_genes[list(viral)])
    as_virus = _likelihood(outside, stretches, background) + viral_genes
    if as_virus < _likelihood(values, [], _background(values)):
        return []
    regions = []
    weighted = (np.array(values) + of_genes / _slope(background)).tolist()
    for whole in (part for stretch in path for part in split(stretch)):
        part = _best_part(weighted, whole, background.level)
        cost = ENTRY * ((whole.start > 0) + (whole.stop < len(values)))
        found = math.fsum(evidence[part.start : part.stop]) - cost
        if len(part) >= FEWEST_CHUNKS and math.tanh(found / 2) > VIRUS_ABOVE:
            regions.append((part, found))
    return regions


def _background(host: list[float]) -> Background:
    """Return level and spread of the chunks of a host; few of them are drawn to what is usual."""
    count = len(host) + USUAL_WEIGHT
    level = (math.fsum(host) + USUAL_WEIGHT * HOST_LEVEL) / count
    squares = math.fsum((value - level) ** 2 for value in host)
    return Background(level, math.sqrt((squares + USUAL_WEIGHT * CHUNK_SPREAD**2) / count))


def _likelihood(host: list[float], stretches: list[list[float]], background: Background) -> float:
    """Return the log likelihood of viral stretches, each with its own level, in a host."""
    level, spread = background
    distances = [value - level for value in host]
    for viral in stretches:
        own = math.fsum(viral) / len(viral)
        distances += [value - own for value in viral]
    squares = math.fsum((distance / spread) ** 2 for distance in distances)
    scores = WEIGHT * (squares / 2 + len(distances) * math.log(spread))
    unusual = ((level - HOST_LEVEL) / HOST_LEVEL_SPREAD) ** 2 / 2
    return -scores - unusual - 2 * ENTRY * len(stretches)


def _evidence(values: list[float], background: Background) -> list[float]:
    """Return the log likelihood ratio of virus to host of each chunk.

    Both are normal distributions of the same spread.
    """
    middle = background.level + _shift(background) / 2
    limits = -MOST_EVIDENCE, MOST_EVIDENCE
    evidence = np.clip(_slope(background) * (np.array(values) - middle), *limits)
    found: list[float] = evidence.tolist()
    return found


def _shift(background: Background) -> float:
    """Return how far above a host viruses are assumed to be."""
    return max(LEAST_SHIFT * background.spread, REACH * (VIRUS_LEVEL - background.level))


def _slope(background: Background) -> float:
    """Return the evidence of a chunk per unit of its log odds."""
    return WEIGHT * _shift(background) / background.spread**2


def _path(evidence: list[float]) -> list[range]:
    """Return the stretches of the virus state on the most likely path.

    ``lead`` is by how much the best path that ends in the virus state is more likely than the best
    one that ends in the host state; leads beyond the cost of a change are cut to it, because the
    better path changes its state then.
    """
    leads = []
    lead = -ENTRY
    for value in evidence:
        lead = min(max(lead, -ENTRY), ENTRY) + value
        leads.append(lead)
    path = []
    last = None
    for i in range(len(evidence) - 1, -1, -1):
        if last is None and leads[i] > (0 if i + 1 == len(evidence) else ENTRY):
            last = i
        if last is not None and (i == 0 or leads[i - 1] <= -ENTRY):
            path.append(range(i, last + 1))
            last = None
    return path[::-1]


def _best_part(values: list[float], stretch: range, host_level: float) -> range:
    """Return the part of a stretch whose scores lie highest above a middle level, in sum.

    The path assumed a usual level of viruses. Here it is that of the stretch, and the middle lies
    between it and the level of the host, but not below ``LEAST_MIDDLE``.
    """
    own = values[stretch.start : stretch.stop]
    middle = max((host_level + math.fsum(own) / len(own)) / 2, LEAST_MIDDLE)
    sums = np.cumsum([0.0, *(value - middle for value in own)])
    stop = int((sums[1:] - np.minimum.accumulate(sums[:-1])).argmax()) + 1
    return stretch[int(sums[:stop].argmin()) : stop]
