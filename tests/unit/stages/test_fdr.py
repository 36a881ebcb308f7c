"""False discovery rates: the arithmetic by hand, and the stated rate against simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from virnucpro.stages.calls import (
    FEWEST,
    at_share,
    contig_fdr,
    rates_by_chance,
    running_mean_of_errors,
    virus_share,
)

SEPARATION = 3.0  # standard deviations between the scores of virus and others


def _sample(seed: int, contigs: int, share: float, chunks: int) -> tuple[np.ndarray, ...]:
    """Truth of contigs, their chunk counts, and chunk probabilities calibrated at a share of 1/2.

    Scores are normal with means of half the separation; their log odds are known exactly.
    """
    rng = np.random.default_rng(seed)
    virus = rng.random(contigs) < share
    counts = rng.poisson(chunks - 1, contigs) + 1
    half = SEPARATION / 2
    scores = rng.normal(np.where(np.repeat(virus, counts), half, -half))
    return virus, counts, 1 / (1 + np.exp(-SEPARATION * scores))


def test_running_mean_by_hand_with_ties() -> None:
    fdr = running_mean_of_errors(np.array([0.5, 0.9, 0.8, 0.9, 0.5]))
    a, b = 0.1, (0.1 + 0.1 + 0.2) / 3
    c = (0.1 + 0.1 + 0.2 + 0.5 + 0.5) / 5
    assert fdr == pytest.approx([c, a, b, a, c])


def test_few_contigs_keep_the_trained_share() -> None:
    chunks = np.array([0.9, 0.7, 0.2])
    fdr = contig_fdr(chunks, np.array([2, 0, 1]))
    assert fdr[0] == pytest.approx(0.2)  # mean of 0.9 and 0.7
    assert np.isnan(fdr[1])
    assert fdr[2] == pytest.approx((0.2 + 0.8) / 2)


def test_the_share_of_training_changes_nothing_and_certainty_stays() -> None:
    p = np.array([0.0, 0.25, 1.0])
    assert at_share(p, 0.5) == pytest.approx(p)
    assert at_share(p, 0.1) == pytest.approx([0, 0.25 * 0.1 / (0.25 * 0.1 + 0.75 * 0.9), 1])
    assert at_share(p, 0.0) == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("extreme", [0.0, 1.0])
def test_certain_probabilities_end_in_numbers(extreme: float) -> None:
    fdr = contig_fdr(np.full(FEWEST, extreme), np.ones(FEWEST, np.int64))
    assert fdr == pytest.approx(1 - extreme)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("chunks", [1, 8])
def test_the_share_of_virus_is_found(share: float, chunks: int) -> None:
    virus, counts, p = _sample(1, 4000, share, chunks)
    assert virus_share(p, np.repeat(1 / counts, counts)) == pytest.approx(virus.mean(), abs=0.02)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_of_contigs_of_one_chunk_the_stated_rate_is_the_realised_one(share: float) -> None:
    virus, counts, p = _sample(2, 20000, share, 1)
    fdr = contig_fdr(p, counts)
    for stated in (0.02, 0.05, 0.1):
        called = fdr <= stated
        assert called.sum() > 100
        assert (~virus[called]).mean() == pytest.approx(stated, abs=0.02)


def test_scores_that_are_not_sure_enough_do_not_make_everything_virus() -> None:
    """At four times the right temperature the estimated share of virus is far too high."""
    virus, counts, p = _sample(6, 5000, 0.8, 1)
    odds = (p / (1 - p)) ** (1 / 4)
    unsure = odds / (1 + odds)
    share = virus_share(unsure, np.ones(5000))
    assert share > 0.9
    believed = running_mean_of_errors(at_share(unsure, share)) <= 0.05
    assert (~virus[believed]).mean() > 0.1
    fdr = contig_fdr(unsure, counts)
    for stated in (0.05, 0.1, 0.2):
        assert (fdr <= stated).any()
        assert (~virus[fdr <= stated]).mean() <= stated


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_of_longer_contigs_the_stated_rate_is_an_upper_bound(share: float) -> None:
    virus, counts, p = _sample(3, 4000, share, 10)
    fdr = contig_fdr(p, counts)
    for stated in (0.2, 0.3, 0.5):
        called = fdr <= stated
        assert called.any()
        assert (~virus[called]).mean() <= stated


def test_length_does_not_weigh() -> None:
    """Where viruses are short and others long, the share is one of contigs all the same."""
    rng = np.random.default_rng(4)
    virus = rng.random(3000) < 0.5
    counts = np.where(virus, 1, 50)
    half = SEPARATION / 2
    scores = rng.normal(np.where(np.repeat(virus, counts), half, -half))
    p = 1 / (1 + np.exp(-SEPARATION * scores))
    assert virus_share(p, np.repeat(1 / counts, counts)) == pytest.approx(virus.mean(), abs=0.03)
    # Weighed by chunks, next to nothing would be virus, and no rate would be low.
    assert virus_share(p, np.ones(len(p))) < 0.05
    called = contig_fdr(p, counts) <= 0.05
    assert called[virus].mean() > 0.5


# Hosts whose chances are as expected, and others whose chances are smaller.
@pytest.mark.parametrize(("share", "shift"), [(0.01, 1.0), (0.1, 1.0), (0.5, 1.0), (0.5, 0.4)])
def test_rates_by_chance_hold_without_a_share_of_virus(share: float, shift: float) -> None:
    rng = np.random.default_rng(5)
    virus = np.arange(20_000) < 20_000 * share
    chances = np.where(virus, 1e-5 * rng.random(len(virus)), rng.random(len(virus)) ** (1 / shift))
    fdr = rates_by_chance(chances)
    assert (fdr[virus] <= 0.2).mean() > 0.9
    for stated in (0.05, 0.1, 0.2):
        called = fdr <= stated
        assert not called.any() or (~virus[called]).mean() <= 1.5 * stated


def test_rates_by_chance_by_hand() -> None:
    rates = rates_by_chance(np.array([0.2, 0.01, 0.2, 0.9])).tolist()
    assert rates == [0.8 / 3, 0.04, 0.8 / 3, 0.9]
    # At most three times the 35 usual ones are others.
    assert rates_by_chance(np.repeat([0.01, 0.9], [85, 35]))[0] == pytest.approx(1.05 / 85)


def test_no_rate_is_0_where_many_records_tie() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values = rng.random(rng.integers(1, 6)) ** rng.integers(1, 5)
        chances = rng.choice(values, rng.integers(FEWEST, 4 * FEWEST))
        assert not (rates_by_chance(chances) <= 0).any()


def test_where_nearly_all_looks_viral_no_rate_is_known() -> None:
    assert np.isnan(rates_by_chance(np.full(FEWEST, 0.01))).all()
