"""A temperature from the scores of frames: recovered, balanced, and of the right classifier."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from virnucpro.classifier.files import inspect_classifier
from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.calibration import (
    FEWEST_FRAMES,
    check_made_by,
    fit_calibration,
    logit_margins,
)
from virnucpro.evaluation.labels import Sample, SampleCounts
from virnucpro.settings import TOY_CLASSIFIER


def _frames(rows: int, share: float, sharpness: float) -> Sample:
    """Frames of margins calibrated at equal shares, made ``sharpness`` times too sure."""
    rng = np.random.default_rng(5)
    virus = rng.random(rows) < share
    margins = 2 * rng.normal(np.where(virus, 1.0, -1.0))  # log odds of normals two apart
    scores = (1 / (1 + np.exp(-sharpness * margins))).astype(np.float32).astype(float)
    numbers = np.arange(rows)
    return Sample(
        scores,
        virus,
        numbers,
        (),
        numbers,
        numbers,
        (),
        np.full(rows, np.nan),
        scores >= 0.5,
        SampleCounts(rows, rows, 0, {}, {}, 0, 0),
    )


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_a_known_temperature_is_recovered_whatever_the_shares(
    share: float, sharpness: float
) -> None:
    found = fit_calibration(_frames(20000, share, sharpness), 1.0)
    assert found.temperature == pytest.approx(sharpness, rel=0.08)
    assert found.error <= found.error_before + 0.005
    assert found.loss <= found.loss_before


def test_the_temperature_of_before_is_taken_back() -> None:
    """The file said 2: its logits were twice what the scores show."""
    sample = _frames(20000, 0.5, 1.5)
    assert fit_calibration(sample, 2.0).temperature == pytest.approx(3.0, rel=0.08)
    assert fit_calibration(sample, 2.0).temperature_before == 2.0


def test_both_labels_are_used_alike() -> None:
    sample = _frames(2000, 0.9, 1.0)
    assert fit_calibration(sample, 1.0).frames == 2 * (~sample.virus).sum()


def test_scores_of_exactly_0_and_1_stay_finite() -> None:
    margins = logit_margins(np.array([0.0, 0.5, 1.0, 1e-30]))
    assert np.isfinite(margins).all()
    assert margins[1] == 0
    assert margins[2] == pytest.approx(-margins[0])
    assert logit_margins(np.array([1 - 3e-9]))[0] == pytest.approx(-np.log(3e-9), rel=1e-6)


def test_too_little_to_calibrate_on() -> None:
    sample = _frames(2 * FEWEST_FRAMES - 10, 0.5, 1.0)
    with pytest.raises(InputError, match="calibration needs 100 of either"):
        fit_calibration(sample, 1.0)


def test_perfect_predictions_say_nothing_of_the_temperature() -> None:
    sample = _frames(1000, 0.5, 1.0)
    perfect = replace(sample, scores=np.where(sample.virus, 0.9, 0.1))
    with pytest.raises(InputError, match=r"no frame .* wrong side"):
        fit_calibration(perfect, 1.0)


def test_scores_that_say_nothing_are_refused() -> None:
    sample = _frames(2000, 0.5, 3.0)
    with pytest.raises(InputError, match="close to guessing"):
        fit_calibration(replace(sample, virus=~sample.virus), 1.0)


def test_predictions_of_another_classifier_are_refused(tmp_path: Path) -> None:
    info, run = inspect_classifier(TOY_CLASSIFIER), tmp_path / "s_run.json"
    said = {"sha256": info.file.sha256, "path": "x.pth"}
    run.write_text(json.dumps({"models": {"classifier": said}}))
    assert check_made_by(info, run)
    run.write_text(json.dumps({"models": {"classifier": said | {"sha256": "0" * 64}}}))
    with pytest.raises(UsageError, match=r"made by x\.pth"):
        check_made_by(info, run)
    run.write_text("{}")
    assert not check_made_by(info, run)
    assert not check_made_by(info, None)
