"""Temperature scaling (Guo et al. 2017, arXiv:1706.04599): one number that calibrates scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.metrics.classification import Bools, Floats

LOWEST, HIGHEST = 0.05, 20.0  # a temperature outside means that the data is wrong, not the scale


def log_loss(virus: Bools, margins: Floats) -> float:
    """Return the mean negative log likelihood, in nats, of ``[n]`` labels.

    Args:
        virus: the labels.
        margins: the logit of virus less the logit of others, divided by the temperature.
    """
    return float(np.logaddexp(0, np.where(virus, -margins, margins)).mean())


def fit_temperature(logits: Floats, labels: npt.NDArray[Any]) -> float:
    """Return the temperature at which ``softmax(logits / T)`` makes the ``labels`` most likely.

    The log likelihood is concave in ``1 / T``; its maximum between ``LOWEST`` and ``HIGHEST`` is
    where its derivative is 0. It has none where every row is on its own side. Then the result is
    1.0.

    Args:
        logits: ``[n, 2]`` (others, virus), or margins ``[n]``: the second less the first.
        labels: ``[n]``, 0 for others and 1 for virus; at least one.
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    values = np.asarray(logits, np.float64)
    margins = values[:, 1] - values[:, 0] if values.ndim == 2 else values
    right = np.where(labels == 1, margins, -margins)  # positive: the row is on its own side
    if (right > 0).all():
        return 1.0

    def slope(log_temperature: float) -> float:
        """The derivative of the log likelihood by the scale ``1 / T``."""
        return float(np.mean(right * expit(-right * np.exp(-log_temperature))))

    low, high = np.log(LOWEST), np.log(HIGHEST)
    if slope(low) > 0 or slope(high) < 0:  # the maximum lies outside
        return LOWEST if slope(low) > 0 else HIGHEST
    return float(np.exp(brentq(slope, low, high, xtol=1e-14)))
