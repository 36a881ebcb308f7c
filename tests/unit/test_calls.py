"""From chunks to the call of a record."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.declared import Chunk, call_record, chunks_of, genes_of, rates_of
from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.evidence import MARKER_ODDS, VIRUS_MARKER_ODDS, evidence_odds
from virnucpro.settings import Thresholds
from virnucpro.stages.calls import basis_of, call_of, summarise, supports_viruses


def _chunk(start: int, stop: int, others: str, virus: str) -> Chunk:
    return Chunk(f"r_chunk_{start}", start, stop, "scored", 1, others, virus)


def _unscored(status: str) -> Chunk:
    return Chunk("r_chunk_1", 0, 100, status, 0, "NA", "NA")


VIRAL = ("0.125", "0.925")  # others and virus of a chunk; the score is 0.8
NONVIRAL = ("0.9", "0.1")
CALLS = [
    # Without a rate, two chunks and a high score are a high tier.
    ([("0.1", "0.9")], {}, "virus", "low"),
    ([("0.1", "0.9")] * 2, {}, "virus", "high"),
    ([("0.3", "0.7")], {}, "virus", "low"),
    ([("0.5", "0.5")], {}, "undecided", "low"),
    ([("0.5", "0.2")], {}, "undecided", "low"),  # -0.3 exactly
    ([NONVIRAL], {}, "nonvirus", "low"),
    ([NONVIRAL] * 2, {}, "nonvirus", "high"),
    ([("0.1", "0.9"), ("0.45", "0.55")], {}, "virus", "high"),
    # A quarter of the bases must be scored, and the rate be low.
    ([VIRAL] * 2, {"length": 800}, "virus", "high"),
    ([VIRAL] * 2, {"length": 801}, "virus", "low"),
    ([VIRAL] * 2, {"fdr": 0.05}, "virus", "high"),
    ([VIRAL] * 2, {"length": 800, "fdr": 0.05}, "virus", "high"),
    ([VIRAL] * 2, {"length": 801, "fdr": 0.05}, "virus", "medium"),
    ([VIRAL] * 2, {"fdr": 0.06}, "virus", "medium"),
    ([VIRAL] * 2, {"fdr": 0.25}, "virus", "medium"),
    ([VIRAL] * 2, {"fdr": 0.26}, "virus", "low"),
    # What is surely no virus scores lower where rates are known.
    ([("0.94", "0.06")] * 2, {}, "nonvirus", "high"),
    ([("0.94", "0.06")] * 2, {"fdr": 0.9}, "nonvirus", "medium"),
    ([("0.96", "0.04")] * 2, {"fdr": 0.9}, "nonvirus", "medium"),
    ([("0.98", "0.02")] * 2, {"fdr": 0.9}, "nonvirus", "high"),
    ([("0.79", "0.21")] * 2, {"fdr": 0.9}, "nonvirus", "low"),
    ([("0.79", "0.21")] * 2, {}, "nonvirus", "low"),
    # A record of the tier high has a low rate of its own, too.
    ([VIRAL] * 2, {"fdr": 0.05, "error": 0.1}, "virus", "high"),
    ([VIRAL] * 2, {"fdr": 0.05, "error": 0.11}, "virus", "medium"),
    ([VIRAL] * 2, {"fdr": 0.06, "error": 0.1}, "virus", "medium"),
    ([VIRAL] * 2, {"fdr": 0.26, "error": 0.3}, "virus", "low"),
    # A record that is nearly certainly wrong is no virus, unless a score was asked for.
    ([VIRAL] * 2, {"fdr": 0.5, "error": 0.9}, "virus", "low"),
    ([VIRAL] * 2, {"fdr": 0.5, "error": 0.91}, "undecided", "low"),
    ([VIRAL] * 2, {"fdr": 0.5, "error": 0.91, "min_score": 0.31}, "virus", "low"),
    # An undecided record that is hardly wrong is a virus, unless a score was asked for.
    ([("0.36", "0.64")] * 2, {"fdr": 0.05, "error": 0.1}, "virus", "medium"),
    ([("0.36", "0.64")] * 2, {"fdr": 0.05, "error": 0.11}, "undecided", "low"),
    ([("0.64", "0.36")] * 2, {"fdr": 0.05, "error": 0.1}, "virus", "medium"),
    ([("0.66", "0.34")] * 2, {"fdr": 0.05, "error": 0.0}, "nonvirus", "low"),
    ([("0.36", "0.64")] * 2, {"fdr": 0.05, "error": 0.1, "min_score": 0.31}, "undecided", "low"),
    ([("0.36", "0.64")] * 2, {"fdr": 0.05, "error": 0.1, "max_fdr": 0.01}, "undecided", "low"),
    ([("0.36", "0.64")] * 2, {"fdr": 0.05, "error": 0.1, "min_length": 201}, "undecided", "low"),
    # A record that misses a threshold is undecided; the score must be above it.
    ([VIRAL] * 2, {"fdr": 0.05, "min_score": 0.8}, "undecided", "low"),
    ([VIRAL] * 2, {"fdr": 0.05, "min_score": 0.79}, "virus", "high"),
    ([VIRAL] * 2, {"fdr": 0.05, "max_fdr": 0.05}, "virus", "high"),
    ([VIRAL] * 2, {"fdr": 0.05, "max_fdr": 0.04}, "undecided", "low"),
    ([VIRAL] * 2, {"fdr": 0.05, "min_length": 200}, "virus", "high"),
    ([VIRAL] * 2, {"fdr": 0.05, "min_length": 201}, "undecided", "low"),
    ([NONVIRAL] * 2, {"min_length": 500}, "nonvirus", "high"),
    ([NONVIRAL] * 2, {"min_score": -1.0}, "virus", "low"),
]


@pytest.mark.parametrize(("scores", "options", "call", "tier"), CALLS)
def test_the_call_and_the_tier(scores, options, call, tier):
    chunks = [_chunk(n * 100, n * 100 + 100, *pair) for n, pair in enumerate(scores)]
    given = dict(options)
    length = np.array([given.pop("length", 100 * len(scores))])
    fdr, error = ([given.pop(name, None)] for name in ("fdr", "error"))
    found, _ = summarise(length, chunks_of(chunks))
    calls = call_of(length, found, rates_of(fdr, error), genes_of([0]), Thresholds(**given))
    assert (calls.call, calls.tier) == ([call], [tier])


def test_what_the_score_rests_on():
    cases = {(1, 1.0): "one chunk", (2, 0.25): "ok", (2, 0.2499): "little scored"}
    assert {case: basis_of(*case) for case in cases} == cases


MIDDLING = ("0.45", "0.55")
GENES = [
    # (scores, hallmarks, markers, rates, supported), call, tier. Two hallmarks, or one and a score
    # above the threshold, raise the tier.
    ((VIRAL, 0, 0, 0.5, 0.5, True), "virus", "low"),
    ((VIRAL, 1, 0, 0.5, 0.5, True), "virus", "medium"),
    ((VIRAL, 9, 0, 0.2, 0.2, True), "virus", "high"),
    ((VIRAL, 2, 0, 0.01, 0.01, True), "virus", "high"),
    # A middling score is a virus by its rate only with a hallmark, or in a sample of such.
    ((MIDDLING, 0, 0, 0.01, 0.01, True), "virus", "medium"),
    ((MIDDLING, 0, 0, 0.01, 0.01, False), "undecided", "low"),
    ((MIDDLING, 1, 0, 0.01, 0.01, False), "virus", "high"),
    ((MIDDLING, 1, 0, 0.2, 0.2, True), "undecided", "low"),
    # Two hallmarks and no marker outweigh a score of hosts.
    ((NONVIRAL, 1, 0, 0.01, 0.01, True), "nonvirus", "medium"),
    ((NONVIRAL, 2, 0, 0.5, 0.5, True), "undecided", "low"),
    ((NONVIRAL, 2, 0, 0.05, 0.05, False), "virus", "high"),
    ((NONVIRAL, 2, 1, 0.5, 0.5, True), "nonvirus", "medium"),
    # A host marker alone: never the tier high, and no virus where that is likely wrong.
    ((VIRAL, 0, 1, 0.01, 0.01, True), "virus", "medium"),
    ((VIRAL, 0, 1, 0.01, 0.6, True), "undecided", "low"),
    ((VIRAL, 1, 1, 0.01, 0.6, True), "virus", "medium"),
    ((VIRAL, 0, 1, None, None, True), "virus", "medium"),
    # Two markers are a host, unless a third as many hallmarks are there.
    ((VIRAL, 0, 2, 0.01, 0.01, True), "nonvirus", "low"),
    ((VIRAL, 1, 3, 0.01, 0.01, True), "virus", "medium"),
    ((VIRAL, 1, 4, 0.01, 0.01, True), "nonvirus", "low"),
    ((VIRAL, 0, 2, None, None, False), "nonvirus", "low"),
]


@pytest.mark.parametrize(("given", "call", "tier"), GENES)
def test_hallmarks_and_host_markers_decide_with_the_score(given, call, tier):
    pair, hallmarks, markers, fdr, error, supported = given
    chunks = chunks_of([_chunk(0, 100, *pair), _chunk(100, 200, *pair)])
    lengths = np.array([200])
    found, _ = summarise(lengths, chunks)
    rates = rates_of([fdr], [error], supported=supported)
    calls = call_of(lengths, found, rates, genes_of([hallmarks], [markers]))
    assert (calls.call, calls.tier) == ([call], [tier])


def test_virus_markers_count_in_the_odds_up_to_two_and_are_no_hallmarks():
    """So they say less than hallmarks, and raise no tier of a record with the same rate."""
    lengths, viral = np.full(5, 20_000), [0, 1, 2, 3, 2]
    odds = evidence_odds(lengths, genes_of([0] * 5, None, viral)).tolist()
    one, two = odds[1] / odds[0], odds[2] / odds[0]
    assert (one, two, odds[3]) == (VIRUS_MARKER_ODDS, VIRUS_MARKER_ODDS**2, odds[2])
    (hallmark,) = evidence_odds(lengths[:1], genes_of([1])).tolist()
    assert odds[0] < odds[1] < hallmark
    (opposed,) = evidence_odds(lengths[:1], genes_of([0], [1], [1])).tolist()
    assert opposed == pytest.approx(odds[1] / MARKER_ODDS)
    chunks = chunks_of([_chunk(0, 100, *MIDDLING), _chunk(100, 200, *MIDDLING)])
    found, _ = summarise(np.array([200]), chunks)
    rates = rates_of([0.01], [0.01], supported=False)
    calls = call_of(np.array([200]), found, rates, genes_of([0], None, [5]))
    assert (calls.call, calls.tier) == (["undecided"], ["low"])


@pytest.mark.parametrize(
    ("hallmarks", "markers", "supported"),
    [(0, 0, False), (2, 0, False), (3, 0, True), (6, 4, True), (4, 4, False), (0, 6, False)],
)
def test_the_long_records_of_a_sample_support_viruses_or_not(hallmarks, markers, supported):
    """Of 20 likely viruses of 20,000 bases, six have a hallmark where all are viruses."""
    evidence = genes_of(
        [int(n < hallmarks) for n in range(40)], [int(19 - markers < n < 20) for n in range(40)]
    )
    likely = np.arange(40) < 20
    assert supports_viruses(np.full(40, 20_000), likely, evidence) is supported
    assert not supports_viruses(np.full(40, 2_000), likely, evidence)


def test_the_score_is_weighted_by_the_root_of_the_margin():
    verdict = call_record(200, [_chunk(0, 100, "0.0", "1.0"), _chunk(100, 200, "0.375", "0.625")])
    assert verdict.virus_score == pytest.approx((1 * 1 + 0.5 * 0.25) / 1.5)
    assert (verdict.confident_viral, verdict.confident_nonviral, verdict.undecided) == (1, 0, 1)


def test_coverage_counts_overlapping_chunks_once():
    verdict = call_record(200, [_chunk(0, 100, "0", "1"), _chunk(50, 150, "0", "1")])
    assert verdict.coverage == 0.75


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([], "too_short"),
        (["ambiguous", "no_open_frame"], "no_open_frame"),
        (["ambiguous", "ambiguous"], "ambiguous"),
        (["no_open_frame", "failed"], "failed"),
    ],
)
def test_an_unscored_record_has_a_reason(statuses, status):
    verdict = call_record(100, [_unscored(s) for s in statuses])
    found = verdict.call, verdict.status, verdict.chunks, verdict.tier, verdict.virus_score
    assert found == ("unscored", status, len(statuses), None, None)


@pytest.mark.parametrize(
    ("scores", "counts"),
    [
        (("0.29", "0.81"), (1, 0, 0)),
        (("0.3", "0.81"), (0, 0, 1)),  # each is the highest of all frames: they may be more than 1
        (("0.29", "0.8"), (0, 0, 1)),
        (("0.81", "0.29"), (0, 1, 0)),
        (("0.81", "0.3"), (0, 0, 1)),
        (("0.8", "0.29"), (0, 0, 1)),
    ],
)
def test_no_frame_contradicts_a_confident_chunk(scores, counts):
    verdict = call_record(100, [_chunk(0, 100, *scores)])
    found = (verdict.confident_viral, verdict.confident_nonviral, verdict.undecided)
    assert found == counts


def test_records_that_are_called_together_are_called_as_alone():
    """Records without a scored chunk, or without a chunk, stand first, between and last."""
    draw = random.Random(4)
    kinds = [[], [_unscored("failed")], [_unscored("ambiguous")] * 2]
    scored = [
        [
            _chunk(90 * n, 90 * n + 100, *(f"{draw.random():.4f}" for _ in range(2)))
            for n in range(draw.randint(1, 5))
        ]
        for _ in range(40)
    ]
    records = [*kinds, *scored[:20], *kinds, [*scored[0], *kinds[1]], *scored[20:], *kinds]
    lengths = np.array([draw.randint(500, 2500) for _ in records])
    plain = ContigModel(0.1, 1.0, 0.5, -0.2, -0.1)
    for model in (None, plain, plain._replace(virus_variance=1.0)):
        found, chances = summarise(lengths, chunks_of(*records), model)
        number = len(records)
        calls = call_of(lengths, found, rates_of([0.05] * number), genes_of([0] * number))
        alone = [
            summarise(n, chunks_of(own), model)[1]
            for n, own in zip(lengths[:, None], records, strict=True)
        ]
        assert chances.tolist() == np.concatenate(alone).tolist()
        for number, own in enumerate(records):
            row = call_record(int(lengths[number]), own, model, 0.05)
            assert tuple(column[number] for column in calls) == tuple(row)
