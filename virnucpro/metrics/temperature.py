"""Temperature scaling (Guo et al. 2017, arXiv:1706.04599): one number that calibrates scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.metrics.classification import Bools, Floats

LOWEST, HIGHEST = 0.05, 20.0  # a temperature outside means that the data is wrong, not the scale
_HALVINGS = 60  # of the interval of log temperatures, which is 6 wide: down to the last bit


def log_loss(virus: Bools, margins: Floats) -> float:
    """Return the mean negative log likelihood, in nats, of ``[n]`` labels.

    Args:
        virus: the labels.
        margins: the logit of virus less the logit of others, divided by the temperature.
    """
    return float(np.logaddexp(0, np.where(virus, -margins, margins)).mean())


def fit_temperature(logits: Floats, labels: npt.NDArray[Any]) -> float:
    """Return the temperature at which ``softmax(logits / T)`` makes the ``labels`` most likely.

    The log likelihood is concave in ``1 / T``, so the
    zero of its derivative is bisected, in float64, between ``LOWEST`` and ``HIGHEST``. It has no
    maximum where every row is on its own side. Then the result is 1.0.

    Args:
        logits: ``[n, 2]`` (others, virus), or margins ``[n]``: the second less the first.
        labels: ``[n]``, 0 for others and 1 for virus.

    Raises:
        ValueError: there are no rows, the shapes do not fit, a label is not 0 or 1, or a logit is
            not finite.
    """
    values = np.asarray(logits, np.float64)
    margins = values[:, 1] - values[:, 0] if values.ndim == 2 else values
    classes = np.asarray(labels)
    if margins.ndim != 1 or margins.shape != classes.shape or len(margins) == 0:
        raise ValueError(f"logits {values.shape} and labels {classes.shape} do not belong together")
    if not np.isin(classes, (0, 1)).all() or not np.isfinite(margins).all():
        raise ValueError("labels must be 0 or 1, and logits finite")
    right = np.where(classes == 1, margins, -margins)  # positive: the row is on its own side
    if (right > 0).all():
        return 1.0
    low, high = np.log(LOWEST), np.log(HIGHEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        scale = float(np.exp(-middle))
        # The derivative of the log likelihood by the scale. The logistic function of -x is
        # computed by tanh, which does not overflow on either side.
        if float(np.mean(right * (1 - np.tanh(scale * right / 2)) / 2)) > 0:
            high = middle  # a lower temperature is more likely
        else:
            low = middle
    return float(np.exp((low + high) / 2))
