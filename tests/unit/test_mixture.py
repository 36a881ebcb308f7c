"""Error rates of samples as mixtures of two distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.mixture import (
    COUNTS,
    TAIL,
    TAIL_SHARE,
    TAIL_SPREAD,
    VIRUS_BELOW,
    error_rates,
    with_distributions,
)
from virnucpro.stages.calls import running_mean

MODEL = ContigModel(
    *(0.0, 1.0, 0.0, 0.0, 0.0),
    **{"others": -1.5, "others_by_count": -0.5, "others_variance": 2.25},
    **{"virus": 2.0, "virus_by_count": 1.0, "virus_variance": 4.0, "virus_variance_by_count": 1.0},
)


def sample(
    seed: int, records: int, share: float, shift: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth, log odds and logarithms of the number of chunks; hosts are shifted."""
    rng = np.random.default_rng(seed)
    virus = np.arange(records) < records * share
    logs = np.log(rng.choice(COUNTS, records, p=np.arange(10, 0, -1) / 55))
    tail = rng.random(records) < TAIL_SHARE
    others = rng.normal(MODEL.others + MODEL.others_by_count * logs + shift, 1.5)
    others = np.where(tail, rng.normal(TAIL, TAIL_SPREAD, records), others)
    spread = np.sqrt(MODEL.virus_variance + MODEL.virus_variance_by_count * logs)
    above = rng.normal(0.0, spread)
    viral = MODEL.virus + MODEL.virus_by_count * logs + above * np.where(above < 0, VIRUS_BELOW, 1)
    return virus, np.where(virus, viral, others), logs


def rates(odds: np.ndarray, logs: np.ndarray, gene_odds: float = 1.0) -> np.ndarray:
    return error_rates(MODEL, odds, logs, np.full(len(odds), gene_odds))


@pytest.mark.parametrize("shift", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.14, 0.5, 1.0])
def test_stated_rates_are_realised_whatever_the_share_of_virus(share, shift):
    virus, odds, logs = sample(3, 3000, share, shift)
    called = odds > 1.7
    stated = running_mean(rates(odds, logs))[called].max()
    realised = (~virus[called]).mean()
    assert realised / 2 - 0.02 <= stated <= 2 * realised + 0.02


def test_a_sample_of_viruses_of_one_chunk_is_not_told_that_half_of_its_calls_are_wrong():
    model = ContigModel(
        *(0.0, 1.0, 0.0, 0.0, 0.0),  # the others are near those of lite for chunks of 150 bases
        **{"others": -0.4, "others_by_count": -0.6, "others_variance": 1.06**2},
        **{"virus": 0.8, "virus_by_count": 0.8, "virus_variance": 1.54**2},
    )
    rng = np.random.default_rng(7)
    above = rng.normal(0.0, 1.5, 800)
    odds = 0.5 + above * np.where(above < 0, 0.7, 1)
    fdr = running_mean(error_rates(model, odds, np.zeros(800), np.ones(800)))
    assert fdr[odds > 1.7].max() < 0.3


def test_few_hosts_that_look_like_viruses_are_no_reason_to_be_sure():
    virus, odds, logs = sample(8, 1500, 0.03)
    odd = np.flatnonzero(~virus)[:15]  # of a hundred hosts, one
    logs[odd] = math.log(4)
    odds[odd] = np.linspace(2.0, 6.0, 15)
    found = rates(odds, logs)[odd]
    assert found.mean() > 0.2


def test_one_record_is_judged_by_what_is_assumed():
    one = np.zeros(1)
    first = [float(rates(np.array([odds]), one)[0]) for odds in (-3.0, 0.0, 3.0, 6.0, 20.0)]
    assert first == sorted(first, reverse=True)
    assert first[0] > 0.9
    assert first[-1] < 0.1
    twice = rates(np.array([3.0, 3.0]), np.zeros(2))
    assert twice[0] == twice[1] < first[2]  # two that look viral: the share of virus is larger


def test_no_record_is_more_certain_than_one_of_its_length_with_a_higher_score():
    _, odds, logs = sample(4, 2000, 0.1, 1.5)
    found = rates(odds, logs)
    for count in np.unique(logs):
        order = np.argsort(odds[logs == count])
        assert (np.diff(found[logs == count][order]) <= 0).all()
    assert ((found > 0) & (found < 1)).all()


def test_the_genes_of_a_record_are_evidence_for_it_and_for_its_sample():
    virus, odds, logs = sample(5, 1000, 0.1)
    none = rates(odds, logs)
    for gene_odds, change in ((8.0, np.less), (1 / 20, np.greater)):
        one = none.copy()
        for record in (0, 400, 800):
            own = np.ones(1000)
            own[record] = gene_odds
            one[record] = error_rates(MODEL, odds, logs, own)[record]
            assert change(one[record], none[record])
    # Hosts of an unusual kind that look like viruses are known by their genes, and then all are.
    odds = np.where(virus, odds, odds + 4)
    marked = ~virus & (np.arange(1000) % 4 < 2)
    with_markers = error_rates(MODEL, odds, logs, np.where(marked, 1 / 400, 1.0))
    others = ~virus & ~marked
    assert with_markers[others].mean() > rates(odds, logs)[others].mean() + 0.05


def test_the_distributions_of_known_contigs_are_found_again():
    _, odds, logs = sample(6, 20_000, 0.5)
    virus = np.arange(20_000) < 10_000
    groups = np.where(virus, 0, 1 + np.arange(20_000) % 3)
    odds = odds + np.choose(groups, [0, -0.5, 0.0, 0.5])
    terms = np.stack([np.ones_like(odds), odds, odds * 0, odds * 0, logs], axis=1)
    fitted = with_distributions(ContigModel(*MODEL[:5]), terms, virus, groups)
    assert fitted[:5] == MODEL[:5]
    assert fitted.has_distributions
    counts = np.log(COUNTS)
    for place in (5, 9):
        level, slope, *of_fitted = fitted[place : place + 4]
        assert (level, slope) == pytest.approx(MODEL[place : place + 2], abs=0.2)
        spreads = (np.sqrt(a + b * counts) for a, b in (of_fitted, MODEL[place + 2 : place + 4]))
        assert next(spreads) == pytest.approx(next(spreads), rel=0.1)


def test_a_model_of_an_earlier_version_has_none():
    assert not ContigModel(*MODEL[:5]).has_distributions
    assert not ContigModel(*MODEL[:5], -1.0, -0.5, -0.1, 0.2).has_distributions


def test_contigs_of_any_number_of_chunks():
    logs = np.array([math.log(1.002), math.log(32)])
    assert np.isfinite(rates(np.array([5.0, -12.0]), logs)).all()
