"""False discovery rates: the arithmetic by hand, and the stated rate against simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.evidence import no_evidence
from virnucpro.classifier.mixture import SHARES, calibrated_rates
from virnucpro.stages import calls
from virnucpro.stages.calls import Rates, running_mean

SEPARATION = 3.0  # standard deviations between the scores of virus and others


def _sample(seed: int, contigs: int, share: float, chunks: int) -> tuple[np.ndarray, ...]:
    """Truth of contigs, their chunk counts, and chunk log odds calibrated at a share of 1/2.

    Scores are normal with means of half the separation; their log odds are known exactly.
    """
    rng = np.random.default_rng(seed)
    virus = rng.random(contigs) < share
    counts = rng.poisson(chunks - 1, contigs) + 1
    half = SEPARATION / 2
    scores = rng.normal(np.where(np.repeat(virus, counts), half, -half))
    return virus, counts, SEPARATION * scores


def contig_rates(odds: np.ndarray, chunks: np.ndarray, model: ContigModel | None = None) -> Rates:
    """Rates of contigs whose genes were not looked for."""
    return calls.contig_rates(odds, chunks, 500 * chunks, no_evidence(len(chunks)), model)


def test_running_mean_by_hand_with_ties():
    fdr = running_mean(np.array([0.5, 0.1, 0.2, 0.1, 0.5]))
    a, b = 0.1, (0.1 + 0.1 + 0.2) / 3
    c = (0.1 + 0.1 + 0.2 + 0.5 + 0.5) / 5
    assert fdr == pytest.approx([c, a, b, a, c])


def test_one_contig_is_judged_by_every_share_of_virus_alike():
    odds = 2.0  # one of the rounded ones
    shares = 1 / (1 + np.exp(-SHARES[SHARES <= 0]))
    virus = 1 / (1 + np.exp(-odds))
    both = shares * virus, (1 - shares) * (1 - virus)
    expected = both[1].sum() / sum(both).sum()
    assert calibrated_rates(np.array([odds]), np.ones(1)) == pytest.approx(expected)
    fdr, errors, _ = contig_rates(np.array([odds, odds]), np.array([2, 0]))
    assert fdr[0] == errors[0] == pytest.approx(expected)
    assert np.isnan([fdr[1], errors[1]]).all()


@pytest.mark.parametrize(("extreme", "rate"), [(-70.0, 1.0), (70.0, 0.0)])
def test_certain_contigs_end_in_numbers(extreme, rate):
    fdr, *_ = contig_rates(np.full(100, extreme), np.ones(100, np.int64))
    assert fdr == pytest.approx(rate, abs=0.001)


def test_with_a_model_the_rates_are_those_of_its_log_odds():
    virus, _, odds = _sample(5, 3000, 0.3, 1)
    model = ContigModel(0.0, 1.0, 0.0, 0.0, 0.0)
    rows = np.stack([odds, np.zeros(len(odds))], axis=1)
    fdr, *_ = contig_rates(rows, np.ones(len(odds), np.int64), model)
    assert (~virus[fdr <= 0.1]).mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_of_contigs_of_one_chunk_the_stated_rate_is_the_realised_one(share):
    virus, counts, p = _sample(2, 20000, share, 1)
    fdr, *_ = contig_rates(p, counts)
    for stated in (0.02, 0.05, 0.1):
        called = fdr <= stated
        assert called.sum() > 100
        assert (~virus[called]).mean() == pytest.approx(stated, abs=0.02)


def test_scores_that_are_not_sure_enough_do_not_make_everything_virus():
    """At four times the right temperature, a share of 1 would explain the scores best."""
    virus, counts, odds = _sample(6, 5000, 0.8, 1)
    fdr, *_ = contig_rates(odds / 4, counts)
    for stated in (0.05, 0.1, 0.2):
        assert (fdr <= stated).any()
        assert (~virus[fdr <= stated]).mean() <= stated


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_of_longer_contigs_the_stated_rate_is_an_upper_bound(share):
    virus, counts, p = _sample(3, 4000, share, 10)
    fdr, *_ = contig_rates(p, counts)
    for stated in (0.2, 0.3, 0.5):
        called = fdr <= stated
        assert called.any()
        assert (~virus[called]).mean() <= stated


def test_length_does_not_weigh():
    """Where viruses are short and others long, the share is one of contigs all the same."""
    rng = np.random.default_rng(4)
    virus = rng.random(3000) < 0.5
    counts = np.where(virus, 1, 50)
    half = SEPARATION / 2
    scores = rng.normal(np.where(np.repeat(virus, counts), half, -half))
    # Weighed by chunks, next to nothing would be virus, and no rate would be low.
    called = contig_rates(SEPARATION * scores, counts).fdr <= 0.05
    assert called[virus].mean() > 0.5
