"""Calibrate a classifier on predictions that it made of records of known origin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virnucpro.classifier.files import ClassifierInfo
from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.labels import Sample
from virnucpro.metrics.classification import Bools, Floats, Ints, calibration_error, reliability
from virnucpro.metrics.temperature import HIGHEST, LOWEST, fit_temperature, log_loss
from virnucpro.store.documents import parse_json

NEAREST = 2.0**-53  # the distance from 0 or 1 that float64 can hold: a margin of 36.7
FEWEST_FRAMES = 100  # of either label


@dataclass(frozen=True)
class Calibration:
    """What calibrating changed. Everything is measured on the frames of the fit.

    Attributes:
        frames: the number of frames of the fit, half of them virus.
        temperature_before: what logits were divided by; 1.0 where the file had none.
        temperature: what logits are divided by from now on.
        loss_before: mean negative log likelihood, in nats.
        loss: the same at the new temperature.
        error_before: expected calibration error.
        error: the same at the new temperature.
    """

    frames: int
    temperature_before: float
    temperature: float
    loss_before: float
    loss: float
    error_before: float
    error: float


def fit_calibration(sample: Sample, before: float) -> Calibration:
    """Fit a temperature to frame scores that were made at the temperature ``before``.

    The same number of frames of either label is used, because a classifier is calibrated for equal
    shares. Of the larger class, frames are taken at even distances in the order of their scores.

    Raises:
        InputError: there are too few frames of a label, none is on the wrong side, or the scores
            are close to guessing.
    """
    rows = _balanced(sample)
    margins, virus = logit_margins(sample.scores[rows]) * before, sample.virus[rows]
    if ((margins > 0) == virus).all():
        raise InputError(
            "no frame of these predictions is on the wrong side, so no temperature can be fitted: "
            "calibrate on more, or harder, validation data"
        )
    after = fit_temperature(margins, virus.astype(np.int64))
    if not LOWEST * 1.01 < after < HIGHEST * 0.99:
        raise InputError(
            f"the likeliest temperature is beyond {LOWEST:g} to {HIGHEST:g}: these scores are "
            f"close to guessing, or the labels are wrong; see AUROC, and calibrate on other data"
        )
    return Calibration(
        len(rows),
        before,
        after,
        *(log_loss(virus, margins / t) for t in (before, after)),
        *(_error(margins / t, virus) for t in (before, after)),
    )


def logit_margins(scores: Floats) -> Floats:
    """Return ``[n]`` differences of two logits, virus less others, from the softmax of virus."""
    clipped = np.clip(scores, NEAREST, 1 - NEAREST)
    return np.log(clipped) - np.log(1 - clipped)


def _balanced(sample: Sample) -> Ints:
    sides = [np.flatnonzero(sample.virus == side) for side in (True, False)]
    fewer = min(map(len, sides))
    if fewer < FEWEST_FRAMES:
        raise InputError(
            f"{len(sides[0]):,} frames of virus and {len(sides[1]):,} of others are labelled and "
            f"scored: calibration needs {FEWEST_FRAMES} of either"
        )
    ordered = [side[np.argsort(sample.scores[side], kind="stable")] for side in sides]
    return np.concatenate([side[np.arange(fewer) * len(side) // fewer] for side in ordered])


def _error(margins: Floats, virus: Bools) -> float:
    scores = np.exp(-np.logaddexp(0, -margins))
    return calibration_error(reliability(virus, scores))


def check_made_by(info: ClassifierInfo, run: Path | None) -> bool:
    """Return whether the run says that this classifier made its predictions.

    The result is False where the run does not say which classifier that was.

    Raises:
        UsageError: another classifier made the predictions.
    """
    if run is None:
        return False
    try:
        classifier = parse_json(run.read_bytes())["models"]["classifier"]
        digest, path = str(classifier["sha256"]), str(classifier["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if digest != info.file.sha256:
        raise UsageError(
            f"these predictions were made by {path} (SHA-256 {digest[:12]}...), which is not "
            f"{info.file.path} ({info.file.sha256[:12]}...): predict again, or name that classifier"
        )
    return True
