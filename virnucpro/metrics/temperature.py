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

    It lies between ``LOWEST`` and ``HIGHEST``. Where every row is on its own side, no temperature
    is the likeliest, and the result is 1.0.

    Args:
        logits: ``[n, 2]`` (others, virus), or margins ``[n]``: the second less the first.
        labels: ``[n]``, 0 for others and 1 for virus; at least one.
    """
    from scipy.optimize import minimize_scalar

    values, virus = np.asarray(logits, np.float64), labels == 1
    margins = values[:, 1] - values[:, 0] if values.ndim == 2 else values
    if (np.where(virus, margins, -margins) > 0).all():
        return 1.0
    found = minimize_scalar(
        lambda logarithm: log_loss(virus, margins / np.exp(logarithm)),
        bounds=np.log([LOWEST, HIGHEST]),
        options={"xatol": 1e-9},
    )
    return float(np.exp(found.x))
