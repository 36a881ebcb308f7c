"""Metrics by hand."""

from __future__ import annotations

import numpy as np
import pytest

from virnucpro.metrics import (
    HIGHEST,
    LOWEST,
    auroc,
    calibration_error,
    call_metrics,
    fit_temperature,
    percentile_interval,
    score_bins,
    score_metrics,
)

VIRUS = np.array([True, True, True, False, False])
SCORES = np.array([0.9, 0.8, 0.3, 0.7, 0.1])


def test_calls():
    counts = {"rows": 5, "virus": 3, "others": 2, "tp": 2, "fp": 1, "tn": 1, "fn": 1}
    shares = {"accuracy": 3 / 5, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3}
    mcc = (2 * 1 - 1 * 1) / 6  # the root of 3 * 3 * 2 * 2
    assert call_metrics(VIRUS, SCORES >= 0.5) == pytest.approx({**counts, **shares, "mcc": mcc})
    none = call_metrics(VIRUS, SCORES > 1)
    assert [none[name] for name in ("precision", "mcc", "recall", "f1")] == [None, None, 0, 0]
    assert call_metrics(VIRUS[:0], VIRUS[:0])["accuracy"] is None


def test_scores():
    assert score_metrics(VIRUS, SCORES) == pytest.approx(
        {
            "auroc": 5 / 6,  # of six pairs only 0.3 and 0.7 stand wrong
            "auprc": (1 + 1 + 3 / 4) / 3,
            "brier": (0.01 + 0.04 + 0.49 + 0.49 + 0.01) / 5,
            "ece": (0.1 + 0.2 + 0.7 + 0.7 + 0.1) / 5,  # each alone in its bin
        }
    )
    tied = score_metrics(np.array([True, False]), np.array([0.5, 0.5]))
    assert (tied["auroc"], tied["auprc"]) == (0.5, 0.5)
    assert set(score_metrics(VIRUS[:0], SCORES[:0]).values()) == {None}


@pytest.mark.parametrize("label", [True, False])
def test_one_class_has_no_area_and_no_precision(label):
    virus = np.full(3, label)
    found = call_metrics(virus, SCORES[:3] >= 0.5) | score_metrics(virus, SCORES[:3])
    assert {found[n] for n in ("auroc", "auprc", "precision", "f1", "mcc")} == {None}
    assert auroc(virus, SCORES[:3]) is None
    assert found["recall"] == (pytest.approx(2 / 3) if label else None)
    assert found["accuracy"] == pytest.approx(2 / 3 if label else 1 / 3)
    assert found["brier"] is not None


def test_over_and_under_confidence_cancel_only_within_a_bin():
    assert score_bins(np.array([0.0, 1 / 15, 0.5, 1.0, 0.999])).tolist() == [0, 1, 7, 14, 14]
    virus = np.array([True, False] * 50)
    assert calibration_error(virus, np.full(100, 0.5)) == pytest.approx(0)
    assert calibration_error(virus, np.full(100, 0.9)) == pytest.approx(0.4)


def test_without_a_maximum():
    assert fit_temperature(np.array([3.0, -2.0]), np.array([1, 0])) == 1.0  # all are right
    assert fit_temperature(np.array([-3.0, 2.0]), np.array([1, 0])) == pytest.approx(HIGHEST)
    nearly = fit_temperature(np.array([*[0.01] * 1000, -0.001]), np.array([1] * 1001))
    assert nearly == pytest.approx(LOWEST)


def test_an_interval_needs_half_of_the_values():
    values = np.where(np.arange(200) < 99, 0.5, np.nan)
    assert percentile_interval(values) is None
    assert percentile_interval(np.append(values, 0.5)) == (0.5, 0.5)
