"""A temperature from the scores of frames: recovered, balanced, and of the right classifier."""

from __future__ import annotations

import numpy as np
import pytest
from pandas import DataFrame

from virnucpro.errors import InputError
from virnucpro.evaluation.run import FEWEST_FRAMES, fit_calibration


def _frames(rows: int, share: float, sharpness: float) -> DataFrame:
    """Frames of margins calibrated at equal shares, made ``sharpness`` times too sure."""
    rng = np.random.default_rng(5)
    virus = rng.random(rows) < share
    margins = 2 * rng.normal(np.where(virus, 1.0, -1.0))  # log odds of normals two apart
    scores = (1 / (1 + np.exp(-sharpness * margins))).astype(np.float32).astype(float)
    return DataFrame({"label": np.where(virus, "virus", "others"), "score": scores})


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_a_known_temperature_is_recovered_whatever_the_shares(share, sharpness):
    frames = _frames(20000, share, sharpness)
    found = fit_calibration(frames, 1.0)
    assert found["temperature"] == pytest.approx(sharpness, rel=0.08)
    assert found["error"] <= found["error_before"] + 0.005
    assert found["loss"] <= found["loss_before"]
    fewer = min(frames.label.value_counts())
    assert found["frames"] == 2 * fewer  # both labels are used alike
    again = fit_calibration(frames, 2.0)  # the logits were twice what the scores show
    assert again["temperature"] == pytest.approx(2 * found["temperature"])


def test_scores_of_exactly_0_and_1_stay_finite():
    frames = _frames(1000, 0.5, 1.0)
    frames.loc[:9, "score"] = [0.0, 1.0] * 5
    assert np.isfinite(fit_calibration(frames, 1.0)["loss"])


def test_frames_that_say_nothing_of_the_temperature_are_refused():
    frames = _frames(1000, 0.5, 3.0)
    turned = frames.label.map({"virus": "others", "others": "virus"})
    for wrong, said in (
        (frames[: 2 * FEWEST_FRAMES - 10], "100 frames of either label"),
        (frames.assign(score=np.where(frames.label == "virus", 0.9, 0.1)), "wrong side"),
        (frames.assign(label=turned), "close to guessing"),
    ):
        with pytest.raises(InputError, match=said):
            fit_calibration(wrong, 1.0)
