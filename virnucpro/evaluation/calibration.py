"""Calibrate a classifier on predictions that it made of records of known origin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virnucpro.classifier import ClassifierInfo
from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.metrics import calibration_error, reliability
from virnucpro.evaluation.sample import Bools, Floats, Ints, Sample
from virnucpro.training.temperature import HIGHEST, LOWEST, fit_temperature

SURE = 2.0**-53  # as near to 0 or 1 as float64 tells from it: a margin of 36.7
FEWEST = 100  # frames of either label


@dataclass(frozen=True)
class Calibration:
    """What calibrating changed.

    Attributes:
        frames: frames it was fitted to, half of them virus.
        temperature: what logits are divided by from now on; before, 1.0 where the file said none.
        loss: mean negative log likelihood, in nats; ``error`` the expected calibration error; both
            on these frames, before and after.
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

    As many frames of either label are used, as a classifier is calibrated for equal shares; of
    the larger, frames at even distances in its order of scores.

    Raises:
        InputError: too few frames of a label, none on the wrong side, or scores that say nothing.
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
        *(_loss(margins / t, virus) for t in (before, after)),
        *(_error(margins / t, virus) for t in (before, after)),
    )


def logit_margins(scores: Floats) -> Floats:
    """``[n]`` differences of two logits, virus less others, from the softmax of virus."""
    clipped = np.clip(scores, SURE, 1 - SURE)
    return np.log(clipped) - np.log(1 - clipped)


def _balanced(sample: Sample) -> Ints:
    sides = [np.flatnonzero(sample.virus == side) for side in (True, False)]
    fewer = min(map(len, sides))
    if fewer < FEWEST:
        raise InputError(
            f"{len(sides[0]):,} frames of virus and {len(sides[1]):,} of others are labelled and "
            f"scored: calibration needs {FEWEST} of either"
        )
    ordered = [side[np.argsort(sample.scores[side], kind="stable")] for side in sides]
    places = [np.arange(fewer) * len(side) // fewer for side in ordered]
    return np.concatenate([side[place] for side, place in zip(ordered, places, strict=True)])


def _loss(margins: Floats, virus: Bools) -> float:
    return float(np.mean(np.logaddexp(0, np.where(virus, -margins, margins))))


def _error(margins: Floats, virus: Bools) -> float:
    scores = np.exp(-np.logaddexp(0, -margins))
    return calibration_error(reliability(virus, scores))


def check_made_by(info: ClassifierInfo, run: Path | None) -> bool:
    """Whether the run says that this classifier made its predictions; False where it says nothing.

    Raises:
        UsageError: another classifier made them.
    """
    if run is None:
        return False
    try:
        said = json.loads(run.read_bytes())["models"]["classifier"]
        made_by, path = str(said["sha256"]), str(said["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if made_by != info.sha256:
        raise UsageError(
            f"these predictions were made by {path} (SHA-256 {made_by[:12]}...), which is not "
            f"{info.path} ({info.sha256[:12]}...): predict again, or name that one"
        )
    return True
