"""Temperature scaling (Guo et al. 2017, arXiv:1706.04599): one number that calibrates scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LOWEST, HIGHEST = 0.05, 20.0  # a temperature outside says that the data, not the scale, is wrong
_HALVINGS = 60  # of the interval of log temperatures, 6 wide: down to the last bit


def fit_temperature(logits: npt.NDArray[np.float64], labels: npt.NDArray[Any]) -> float:
    """The temperature at which ``softmax(logits / T)`` makes the ``labels`` most likely.

    The log likelihood is concave in ``1 / T``, so the zero of its derivative is bisected, in
    float64. It has no maximum where every row is on its own side; then nothing is known and 1.0
    is returned. ``LOWEST`` and ``HIGHEST`` are the bounds.

    Args:
        logits: ``[n, 2]`` (others, virus), or margins ``[n]``: the second less the first.
        labels: ``[n]``, 0 for others and 1 for virus.

    Raises:
        ValueError: no rows, other shapes, other labels, or values that are not finite.
    """
    values = np.asarray(logits, np.float64)
    margins = values[:, 1] - values[:, 0] if values.ndim == 2 else values
    classes = np.asarray(labels)
    if margins.ndim != 1 or margins.shape != classes.shape or len(margins) == 0:
        raise ValueError(f"logits {values.shape} and labels {classes.shape} do not belong together")
    if not np.isin(classes, (0, 1)).all() or not np.isfinite(margins).all():
        raise ValueError("labels must be 0 or 1, and logits finite")
    right = np.where(classes == 1, margins, -margins)  # positive: on its own side
    if (right > 0).all():
        return 1.0
    low, high = np.log(LOWEST), np.log(HIGHEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _slope(right, float(np.exp(-middle))) > 0:  # a smaller temperature is likelier
            high = middle
        else:
            low = middle
    return float(np.exp((low + high) / 2))


def _slope(right: npt.NDArray[np.float64], scale: float) -> float:
    """Derivative of the log likelihood by ``scale``, the inverse of the temperature."""
    # The logistic function of -x, by tanh: no overflow on either side.
    return float(np.mean(right * (1 - np.tanh(scale * right / 2)) / 2))
