"""From chunks to the call of a record."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.declared import Chunk, call_record, chunks_of, line_of
from virnucpro.classifier.contigs import ContigModel
from virnucpro.settings import Thresholds
from virnucpro.stages.calls import call_of, evidence_of, summarise
from virnucpro.tables import CONTIGS


def _chunk(start: int, stop: int, others: str, virus: str) -> Chunk:
    return Chunk(f"r_chunk_{start}", start, stop, "scored", 1, others, virus)


def _unscored(status: str) -> Chunk:
    return Chunk("r_chunk_1", 0, 100, status, 0, "NA", "NA")


VIRAL = [_chunk(0, 100, "0.125", "0.925"), _chunk(100, 200, "0.125", "0.925")]


@pytest.mark.parametrize(
    ("scores", "call", "tier"),
    [
        ([("0.1", "0.9")], "virus", "low"),  # one chunk
        ([("0.1", "0.9"), ("0.1", "0.9")], "virus", "high"),
        ([("0.3", "0.7")], "virus", "low"),
        ([("0.5", "0.5")], "undecided", "low"),
        ([("0.5", "0.2")], "undecided", "low"),  # -0.3 exactly
        ([("0.9", "0.1")], "nonvirus", "low"),
        ([("0.9", "0.1"), ("0.9", "0.1")], "nonvirus", "high"),
        ([("0.1", "0.9"), ("0.45", "0.55")], "virus", "high"),
    ],
)
def test_call(scores: list[tuple[str, str]], call: str, tier: str) -> None:
    chunks = [_chunk(n * 100, n * 100 + 100, *pair) for n, pair in enumerate(scores)]
    verdict = call_record(len(chunks) * 100, chunks)
    assert verdict.call == call
    assert verdict.tier == tier


@pytest.mark.parametrize(
    ("length", "fdr", "tier", "evidence"),
    [
        (800, None, "high", "ok"),
        (801, None, "low", "little scored"),
        (200, 0.05, "high", "ok"),
        (800, 0.05, "high", "ok"),
        (801, 0.05, "medium", "little scored"),
        (200, 0.06, "medium", "ok"),
        (200, 0.25, "medium", "ok"),
        (200, 0.26, "low", "ok"),
    ],
)
def test_the_tier_asks_for_bases_and_a_low_rate(
    length: int, fdr: float | None, tier: str, evidence: str
) -> None:
    verdict = call_record(length, VIRAL, fdr=fdr)
    assert (verdict.call, verdict.tier) == ("virus", tier)
    assert evidence_of(verdict.chunks_scored, verdict.coverage) == evidence
    one = call_record(100, VIRAL[:1])
    assert evidence_of(one.chunks_scored, one.coverage) == "one chunk"


@pytest.mark.parametrize(
    ("others", "fdr", "tier"),
    [
        ("0.94", None, "high"),  # -0.88
        ("0.94", 0.9, "medium"),
        ("0.96", 0.9, "medium"),  # -0.92
        ("0.98", 0.9, "high"),
        ("0.79", 0.9, "low"),
        ("0.79", None, "low"),
    ],
)
def test_a_record_that_is_surely_no_virus_scores_lower_where_rates_are_known(
    others: str, fdr: float | None, tier: str
) -> None:
    virus = f"{1 - float(others):.2f}"
    chunks = [_chunk(0, 100, others, virus), _chunk(100, 200, others, virus)]
    verdict = call_record(200, chunks, fdr=fdr)
    assert (verdict.call, verdict.tier) == ("nonvirus", tier)


@pytest.mark.parametrize(
    ("hallmarks", "fdr", "tiers"),
    [
        (0, 0.5, ["low", "low", "low"]),
        (1, 0.5, ["medium", "low", "low"]),  # one, and a score above the threshold
        (2, 0.5, ["medium", "low", "low"]),
        (9, 0.2, ["high", "low", "low"]),
        (2, 0.01, ["high", "low", "low"]),
    ],
)
def test_hallmark_genes_raise_the_tier_of_viruses(
    hallmarks: int, fdr: float, tiers: list[str]
) -> None:
    scores = [("0.1", "0.9"), ("0.5", "0.5"), ("0.9", "0.1")]
    chunks = [[_chunk(0, 100, *pair), _chunk(100, 200, *pair)] for pair in scores]
    lengths = np.full(3, 200)
    found, _ = summarise(lengths, chunks_of(*chunks))
    calls = call_of(lengths, found, np.full(3, fdr), hallmarks=np.full(3, hallmarks))
    assert calls.tier[0] == tiers[0]
    assert calls.call == call_of(lengths, found, np.full(3, fdr)).call


@pytest.mark.parametrize(
    ("fdr", "error", "tier"),
    [(0.05, 0.1, "high"), (0.05, 0.11, "medium"), (0.06, 0.1, "medium"), (0.26, 0.3, "low")],
)
def test_a_record_of_the_tier_high_has_a_low_rate_of_its_own(
    fdr: float, error: float, tier: str
) -> None:
    length = np.array([200])
    found, _ = summarise(length, chunks_of(VIRAL))
    calls = call_of(length, found, np.array([fdr]), errors=np.array([error]))
    assert calls.tier == [tier]


@pytest.mark.parametrize(
    ("virus", "error", "thresholds", "call"),
    [
        ("0.64", 0.1, Thresholds(), "virus"),
        ("0.64", 0.11, Thresholds(), "undecided"),
        ("0.36", 0.1, Thresholds(), "virus"),
        ("0.34", 0.0, Thresholds(), "nonvirus"),
        ("0.64", 0.1, Thresholds(min_score=0.31), "undecided"),
        ("0.64", 0.1, Thresholds(max_fdr=0.01), "undecided"),
        ("0.64", 0.1, Thresholds(min_length=201), "undecided"),
    ],
)
def test_an_undecided_record_that_is_hardly_wrong_is_a_virus_unless_a_score_was_asked_for(
    virus: str, error: float, thresholds: Thresholds, call: str
) -> None:
    others = f"{1 - float(virus):.2f}"
    length = np.array([200])
    chunks = chunks_of([_chunk(0, 100, others, virus), _chunk(100, 200, others, virus)])
    found, _ = summarise(length, chunks)
    calls = call_of(length, found, np.array([0.05]), thresholds, np.array([error]))
    assert calls.call == [call]


@pytest.mark.parametrize(
    ("thresholds", "call"),
    [
        (Thresholds(), "virus"),
        (Thresholds(min_score=0.8), "undecided"),  # the score must be above it
        (Thresholds(min_score=0.79), "virus"),
        (Thresholds(max_fdr=0.05), "virus"),
        (Thresholds(max_fdr=0.04), "undecided"),
        (Thresholds(min_length=200), "virus"),
        (Thresholds(min_length=201), "undecided"),
    ],
)
def test_a_record_that_misses_a_cut_is_undecided(thresholds: Thresholds, call: str) -> None:
    assert call_record(200, VIRAL, fdr=0.05, thresholds=thresholds).call == call


def test_cuts_leave_nonvirus_as_it_is_but_a_low_score_may_be_enough() -> None:
    chunks = [_chunk(0, 100, "0.9", "0.1"), _chunk(100, 200, "0.9", "0.1")]
    assert call_record(200, chunks, thresholds=Thresholds(min_length=500)).call == "nonvirus"
    assert call_record(200, chunks, thresholds=Thresholds(min_score=-1.0))[3:6:2] == (
        "virus",
        "low",
    )


def test_the_score_is_weighted_by_the_root_of_the_margin() -> None:
    verdict = call_record(200, [_chunk(0, 100, "0.0", "1.0"), _chunk(100, 200, "0.375", "0.625")])
    assert verdict.virus_score == pytest.approx((1 * 1 + 0.5 * 0.25) / 1.5)
    assert (verdict.confident_viral, verdict.confident_nonviral, verdict.undecided) == (1, 0, 1)


def test_coverage_counts_overlapping_chunks_once() -> None:
    verdict = call_record(200, [_chunk(0, 100, "0", "1"), _chunk(50, 150, "0", "1")])
    assert verdict.coverage == 0.75


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([], "too_short"),
        (["too_short"], "too_short"),
        (["ambiguous", "no_open_frame"], "no_open_frame"),
        (["ambiguous", "ambiguous"], "ambiguous"),
        (["no_open_frame", "failed"], "failed"),
    ],
)
def test_an_unscored_record_has_a_reason(statuses: list[str], status: str) -> None:
    verdict = call_record(100, [_unscored(s) for s in statuses])
    assert (verdict.call, verdict.status) == ("unscored", status)
    assert verdict.chunks == len(statuses)
    values = line_of(CONTIGS, **verdict._asdict()).split("\t")
    cells = dict(zip(CONTIGS.row._fields, values, strict=True))
    assert (cells["virus_score"], cells["tier"]) == ("NA", "NA")


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
def test_no_frame_contradicts_a_confident_chunk(
    scores: tuple[str, str], counts: tuple[int, int, int]
) -> None:
    verdict = call_record(100, [_chunk(0, 100, *scores)])
    found = (verdict.confident_viral, verdict.confident_nonviral, verdict.undecided)
    assert found == counts


def test_records_that_are_called_together_are_called_as_alone() -> None:
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
    for model in (None, plain, plain._replace(virus_spread=1.0)):
        found, chances = summarise(lengths, chunks_of(*records), model)
        calls = call_of(lengths, found, np.full(len(records), 0.05))
        alone = [
            summarise(n, chunks_of(own), model)[1]
            for n, own in zip(lengths[:, None], records, strict=True)
        ]
        assert chances.tolist() == np.concatenate(alone).tolist()
        for number, own in enumerate(records):
            row = call_record(int(lengths[number]), own, model, 0.05)
            assert tuple(column[number] for column in calls) == tuple(row)
