"""Chunks put together to contigs by fitted coefficients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.declared import Chunk, call_record, chunks_of
from virnucpro.classifier.contigs import ContigModel, fit_contig_model
from virnucpro.classifier.contigs import contig_terms as terms_of
from virnucpro.stages.calls import summarise


def chunk(number: int, virus: str, others: str) -> Chunk:
    start = 500 * number
    return Chunk(f"c_chunk_{number + 1}", start, start + 500, "scored", 1, others, virus)


def contig_terms(values: list[float], count: float) -> tuple[float, ...]:
    """The terms of one contig."""
    return tuple(terms_of(np.array(values), np.array([0]), np.array([count]))[0].tolist())


def test_coefficients_are_found_again():
    random = np.random.default_rng(1)
    counts = random.integers(1, 20, 20_000)
    values = random.normal(0, 2, counts.sum())
    terms = terms_of(values, np.cumsum(counts) - counts, counts)
    known = np.array([0.4, 1.1, 0.6, -0.3, -0.2])
    virus = random.random(len(terms)) < 1 / (1 + np.exp(-terms @ known))
    model = fit_contig_model(terms, virus)
    fitted = [model.constant, model.mean, model.mean_by_count, model.spread, model.by_count]
    assert np.allclose(fitted, known, atol=0.12)


def test_a_contig_is_not_viral_because_it_is_long():
    random = np.random.default_rng(2)
    virus = np.arange(4000) % 2 == 0
    levels = np.where(virus, 0.5, -2.5) + random.normal(0, 1, len(virus))  # a level of 0 is viral
    lengths = random.integers(1, 64, len(virus))
    values = (random.normal(a, 1.5, n).tolist() for a, n in zip(levels, lengths, strict=True))
    model = fit_contig_model(np.array([contig_terms(row, len(row)) for row in values]), virus)
    of = [
        model.log_odds(np.array([contig_terms([level] * n, n)]))[0]
        for level in (0.0, 1.0)
        for n in (1, 40, 400)
    ]
    assert of[2] == of[1] <= of[0]
    assert of[4] > of[3]


def test_labels_that_are_separated_give_finite_coefficients():
    terms = np.array([contig_terms([value], 1) for value in (-3.0, -2.0, 2.0, 3.0)])
    model = fit_contig_model(terms, np.array([False, False, True, True]))
    assert 0 < model.mean < 1000
    assert model.log_odds(np.array([contig_terms([3.0], 1)])) > 2


def test_the_call_of_a_record_follows_the_model():
    chunks = [chunk(0, "0.9", "0.1"), chunk(1, "0.8", "0.2")]
    model = ContigModel(constant=0.1, mean=1.0, mean_by_count=0.5, spread=0.0, by_count=0.0)
    mean = (math.log(9) + math.log(4)) / 2
    log_odds = 0.1 + mean + 0.5 * mean * math.log(2)
    call = call_record(1000, chunks, model)
    # In a sample with one virus for every three others, the odds are a third.
    assert call.virus_score == pytest.approx(2 / (1 + 3 * math.exp(-log_odds)) - 1)
    assert (call.call, call.tier, call.confident_viral) == ("virus", "high", 1)
    against = ContigModel(constant=-9.0, mean=1.0, mean_by_count=0.0, spread=0.0, by_count=0.0)
    assert call_record(1000, chunks, against).call == "nonvirus"


def test_bases_in_two_chunks_count_once():
    model = ContigModel(0.1, 1.0, 0.5, -0.2, -0.1, virus_variance=1.0)
    one = [chunk(0, "0.9", "0.1")]
    two = [*one, one[0]._replace(start=1, stop=501)]  # of a record of 501 bases
    apart = [*one, chunk(1, "0.9", "0.1")]
    scores = [call_record(length, c, model).virus_score for length, c in ((500, one), (501, two))]
    assert scores[0] == pytest.approx(scores[1], abs=0.001)
    assert call_record(1000, apart, model).virus_score > scores[0] + 0.05
    odds = [
        summarise(np.array([1000]), chunks_of(chunks), model)[1][0] for chunks in (one, two, apart)
    ]
    assert odds[0] == pytest.approx(odds[1], abs=0.01)
    assert odds[2][1] == pytest.approx(math.log(2))


def test_scores_of_exactly_one_and_zero():
    model = ContigModel(0.0, 1.0, 0.0, 0.0, 0.0)
    for virus, others, score in (("1.0", "0.0", 1.0), ("0.0", "1.0", -1.0)):
        call = call_record(500, [chunk(0, virus, others)], model)
        assert call.virus_score == pytest.approx(score, abs=1e-4)
