"""Figures by hand."""

from __future__ import annotations

import numpy as np
import pytest

from virnucpro.metrics.classification import (
    BINS,
    auroc,
    calibration_error,
    confusion_counts,
    measure_scores,
    reliability,
)

VIRUS = np.array([True, True, True, False, False])
SCORES = np.array([0.9, 0.8, 0.3, 0.7, 0.1])


def test_counts_and_figures_by_hand() -> None:
    found = measure_scores(VIRUS, SCORES, 0.5)
    assert (found.rows, found.virus, found.others) == (5, 3, 2)
    assert (found.tp, found.fp, found.tn, found.fn) == (2, 1, 1, 1)
    assert found.accuracy == pytest.approx(3 / 5)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    assert found.f1 == pytest.approx(2 / 3)
    assert found.mcc == pytest.approx((2 * 1 - 1 * 1) / 6)  # the root of 3 * 3 * 2 * 2
    assert found.auroc == pytest.approx(5 / 6)  # of six pairs only 0.3 and 0.7 stand wrong
    assert found.auprc == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert found.brier == pytest.approx((0.01 + 0.04 + 0.49 + 0.49 + 0.01) / 5)
    assert found.ece == pytest.approx((0.1 + 0.2 + 0.7 + 0.7 + 0.1) / 5)  # each alone in its bin


def test_the_threshold_itself_is_called_virus() -> None:
    assert measure_scores(VIRUS, SCORES, 0.8).tp == 2
    assert measure_scores(VIRUS, SCORES, 0.81).tp == 1


def test_ties_count_half() -> None:
    found = measure_scores(np.array([True, False]), np.array([0.5, 0.5]), 0.5)
    assert found.auroc == 0.5
    assert found.auprc == 0.5


@pytest.mark.parametrize("label", [True, False])
def test_one_class_has_no_area_and_no_precision(label: bool) -> None:
    found = measure_scores(np.full(3, label), SCORES[:3], 0.5)
    assert (found.auroc, found.auprc, found.precision, found.f1, found.mcc) == (None,) * 5
    assert auroc(np.full(3, label), SCORES[:3]) is None
    assert found.recall == (pytest.approx(2 / 3) if label else None)
    assert found.accuracy == pytest.approx(2 / 3 if label else 1 / 3)
    assert found.brier is not None


def test_nothing_called_virus_has_no_precision() -> None:
    found = measure_scores(VIRUS, SCORES, 1.0)
    assert found.precision is None
    assert found.mcc is None
    assert (found.recall, found.f1) == (0, 0)


def test_counts_of_calls() -> None:
    counts = confusion_counts(VIRUS, np.array([True, False, False, False, True]))
    assert (counts.tp, counts.fp, counts.tn, counts.fn) == (1, 1, 1, 2)


def test_no_rows() -> None:
    found = measure_scores(np.empty(0, bool), np.empty(0), 0.5)
    assert (found.rows, found.accuracy, found.brier, found.ece) == (0, None, None, None)


def test_calls_have_no_figures_of_scores() -> None:
    found = measure_scores(VIRUS, (SCORES >= 0.5).astype(float), 0.5, graded=False)
    assert (found.auroc, found.auprc, found.brier, found.ece) == (None,) * 4
    assert found.f1 == pytest.approx(2 / 3)


def test_bins_cover_everything_once() -> None:
    scores = np.array([0.0, 1 / 15, 0.5, 1.0, 0.999])
    bins = reliability(np.array([False, True, True, True, False]), scores)
    assert len(bins) == BINS
    assert [b.rows for b in bins if b.rows] == [1, 1, 1, 2]
    assert (bins[0].low, bins[-1].high) == (0, 1)
    assert bins[-1].mean_score == pytest.approx(0.9995)
    assert bins[-1].share_virus == 0.5
    assert bins[2].mean_score is None


def test_over_and_under_confidence_in_one_bin_cancel_only_within_it() -> None:
    virus = np.array([True, False] * 50)
    assert calibration_error(reliability(virus, np.full(100, 0.5))) == pytest.approx(0)
    assert calibration_error(reliability(virus, np.full(100, 0.9))) == pytest.approx(0.4)
