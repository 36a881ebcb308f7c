"""The temperature: a known one is found again, and nothing is made up where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from virnucpro.metrics.temperature import HIGHEST, LOWEST, fit_temperature, log_loss


def drawn(temperature, count=200_000, seed=3):
    """Margins whose labels are drawn at ``temperature``."""
    random = np.random.default_rng(seed)
    margins = random.normal(0, 4, count)
    labels = random.random(count) < 1 / (1 + np.exp(-margins / temperature))
    return margins, labels.astype(np.int64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5, 7.0])
def test_a_known_temperature_is_recovered(temperature):
    margins, labels = drawn(temperature)
    assert fit_temperature(margins, labels) == pytest.approx(temperature, rel=0.03)


def test_logits_and_margins_give_the_likeliest():
    margins, labels = drawn(1.7, 500)
    found = fit_temperature(margins, labels)
    logits = np.stack([np.full(500, 0.25), margins + 0.25], axis=1)
    assert fit_temperature(logits, labels) == pytest.approx(found, rel=1e-7)

    def loss(temperature):
        return log_loss(labels == 1, margins / temperature)

    assert loss(found) < min(loss(found * 1.001), loss(found / 1.001))


def test_without_a_maximum():
    assert fit_temperature(np.array([3.0, -2.0]), np.array([1, 0])) == 1.0  # all are right
    assert fit_temperature(np.array([-3.0, 2.0]), np.array([1, 0])) == pytest.approx(HIGHEST)
    nearly = fit_temperature(np.array([*[0.01] * 1000, -0.001]), np.array([1] * 1001))
    assert nearly == pytest.approx(LOWEST)
