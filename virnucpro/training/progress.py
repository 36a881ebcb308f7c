"""How a training tells its caller how far it is. The work itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class EpochProgress:
    """A training has seen ``seen`` of the ``total`` ``units`` of an epoch (from 1)."""

    epoch: int
    epochs: int
    seen: int
    total: int
    units: str


@dataclass(frozen=True)
class EpochEnded:
    """An epoch has ended.

    Attributes:
        epoch: its number, from 1.
        epochs: the largest number of epochs.
        loss: mean loss in training, with dropout.
        metrics: what was measured on the validation part, by its name in the history.
        rate: the learning rate at its end.
        best: the best epoch so far.
        seconds: its duration, from where this process began with it.
    """

    epoch: int
    epochs: int
    loss: float
    metrics: Mapping[str, float]
    rate: float
    best: int
    seconds: float


TrainingEvent = EpochProgress | EpochEnded
ReportEvent = Callable[[TrainingEvent], None]
StopRequested = Callable[[], bool]
