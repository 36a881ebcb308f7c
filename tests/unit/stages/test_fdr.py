"""False discovery rates: the arithmetic by hand, and the stated rate against simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from virnucpro.stages.calls import (
    FEWEST,
    at_share,
    contig_rates,
    running_mean,
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
    fdr = running_mean(np.array([0.5, 0.1, 0.2, 0.1, 0.5]))
    a, b = 0.1, (0.1 + 0.1 + 0.2) / 3
    c = (0.1 + 0.1 + 0.2 + 0.5 + 0.5) / 5
    assert fdr == pytest.approx([c, a, b, a, c])


def test_few_contigs_keep_the_trained_share() -> None:
    chunks = np.array([0.9, 0.7, 0.2])
    fdr, errors = contig_rates(chunks, np.array([2, 0, 1]))
    assert fdr[0] == pytest.approx(0.2)  # mean of 0.9 and 0.7
    assert np.isnan(fdr[1])
    assert fdr[2] == pytest.approx((0.2 + 0.8) / 2)
    assert errors[2] == pytest.approx(0.8)


def test_the_share_of_training_changes_nothing_and_certainty_stays() -> None:
    p = np.array([0.0, 0.25, 1.0])
    assert at_share(p, 0.5) == pytest.approx(p)
    assert at_share(p, 0.1) == pytest.approx([0, 0.25 * 0.1 / (0.25 * 0.1 + 0.75 * 0.9), 1])
    assert at_share(p, 0.0) == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("extreme", [0.0, 1.0])
def test_certain_probabilities_end_in_numbers(extreme: float) -> None:
    fdr, _ = contig_rates(np.full(FEWEST, extreme), np.ones(FEWEST, np.int64))
    assert fdr == pytest.approx(1 - extreme)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("chunks", [1, 8])
def test_the_share_of_virus_is_found(share: float, chunks: int) -> None:
    virus, counts, p = _sample(1, 4000, share, chunks)
    assert virus_share(p, np.repeat(1 / counts, counts)) == pytest.approx(virus.mean(), abs=0.02)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_of_contigs_of_one_chunk_the_stated_rate_is_the_realised_one(share: float) -> None:
    virus, counts, p = _sample(2, 20000, share, 1)
    fdr, _ = contig_rates(p, counts)
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
    believed = running_mean(1 - at_share(unsure, share)) <= 0.05
    assert (~virus[believed]).mean() > 0.1
    fdr, _ = contig_rates(unsure, counts)
    for stated in (0.05, 0.1, 0.2):
        assert (fdr <= stated).any()
        assert (~virus[fdr <= stated]).mean() <= stated


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_of_longer_contigs_the_stated_rate_is_an_upper_bound(share: float) -> None:
    virus, counts, p = _sample(3, 4000, share, 10)
    fdr, _ = contig_rates(p, counts)
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
    called = contig_rates(p, counts)[0] <= 0.05
    assert called[virus].mean() > 0.5
