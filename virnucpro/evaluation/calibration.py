"""Calibrate a classifier on predictions that it made of records of known origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from virnucpro.errors import InputError
from virnucpro.metrics.classification import (
    HIGHEST,
    LOWEST,
    calibration_error,
    fit_temperature,
    log_loss,
)

if TYPE_CHECKING:
    from pandas import DataFrame

NEAREST = 2.0**-53  # the distance from 0 or 1 that float64 can hold: a margin of 36.7
FEWEST_FRAMES = 100  # of either label
Calibration = dict[str, float]


def fit_calibration(rows: DataFrame, before: float) -> Calibration:
    """Fit a temperature to frame scores that were made at the temperature ``before``.

    The same number of frames of either label is used, because a classifier is calibrated for equal
    shares. Of the larger class, frames are taken at even distances in the order of their scores.

    Returns:
        ``frames``, the number of frames of the fit, and of these frames ``temperature``, ``loss``
        (mean negative log likelihood, in nats) and ``error`` (expected calibration error), each
        of them also with ``_before``.

    Raises:
        InputError: there are too few frames of a label, none is on the wrong side, or the scores
            are close to guessing.
    """
    from scipy.special import expit, logit

    labels = (rows.label == "virus").to_numpy()
    sides = [np.sort(rows.score.to_numpy(np.float64)[labels == side]) for side in (True, False)]
    fewer = min(map(len, sides))
    if fewer < FEWEST_FRAMES:
        raise InputError(f"calibration needs {FEWEST_FRAMES} frames of either label, not {fewer}")
    scores = np.concatenate([side[np.arange(fewer) * len(side) // fewer] for side in sides])
    margins = logit(np.clip(scores, NEAREST, 1 - NEAREST)) * before
    virus = np.arange(2 * fewer) < fewer
    if ((margins > 0) == virus).all():
        raise InputError("no frame is on the wrong side: calibrate on more, or harder, data")
    after = fit_temperature(margins, virus)
    if not LOWEST * 1.01 < after < HIGHEST * 0.99:
        raise InputError("these scores are close to guessing, or the labels are wrong")
    found: Calibration = {"frames": 2 * fewer}
    for name, temperature in (("_before", before), ("", after)):
        found[f"temperature{name}"] = temperature
        found[f"loss{name}"] = log_loss(virus, margins / temperature)
        found[f"error{name}"] = calibration_error(virus, expit(margins / temperature))
    return found
