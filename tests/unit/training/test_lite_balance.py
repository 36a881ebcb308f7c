"""How often groups are drawn, and what windows count, in a lite training."""

from __future__ import annotations

import numpy as np

from virnucpro.training.lite.genomes import MOST_WEIGHT, GcShares, GroupLosses, gc_of


def windows_of(gc, count):
    """Windows of 100 bases with that many G and C."""
    window = np.array([1, 2] * (gc // 2) + [0] * (100 - gc), np.uint8)
    return np.tile(window, (count, 1))


def test_a_group_with_twice_the_loss_is_wanted_twice_as_often():
    losses = GroupLosses(3)
    groups = np.repeat(np.array([0, 1], np.int32), 5000)
    for _ in range(5):
        losses.note(groups, np.repeat(np.array([0.2, 0.4], np.float32), 5000))
    factors = losses.factors()
    assert np.isclose(factors.mean(), 1)
    assert np.isclose(factors[1], 2 * factors[0], rtol=1e-3)
    assert factors[2] > factors[1]  # nothing is known of it yet


def test_a_window_counts_by_how_rare_its_label_is_at_its_gc():
    """Nine of ten viruses have 32 % GC, nine of ten others 62 %."""
    shares = GcShares()
    windows = np.concatenate([windows_of(gc, n) for gc, n in ((32, 900), (62, 1000), (32, 100))])
    labels = np.repeat([1, 0], 1000).astype(np.int64)
    windows[900:1000] = windows_of(62, 100)
    windows[1000:1900] = windows_of(62, 900)
    for _ in range(200):
        weights = shares.weights(gc_of(windows), labels)
    usual_virus, rare_virus = weights[0], weights[950]
    usual_other, rare_other = weights[1000], weights[1950]
    assert np.isclose(usual_virus, 0.5 / 0.9, rtol=1e-3)
    assert np.isclose(usual_other, 0.5 / 0.9, rtol=1e-3)
    assert rare_virus == rare_other == MOST_WEIGHT


def test_letters_that_are_no_bases_are_not_counted():
    shares = GcShares()
    windows = np.concatenate([windows_of(40, 50), windows_of(40, 50)])
    windows[:, 40:80] = 4  # 40 of 60 known bases
    shares.weights(gc_of(windows), np.repeat([0, 1], 50).astype(np.int64))
    assert shares.shares.argmax(axis=1).tolist() == [8, 8]  # 65 to 70 %
