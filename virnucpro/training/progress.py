"""How a training tells its caller how far it is. The work itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from virnucpro.events import Notice


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
    """Epoch ``epoch`` (from 1) has ended.

    ``loss`` is the mean in training, with dropout; ``metrics`` are those of the validation part;
    ``rate`` is the learning rate at its end, and ``best`` the best epoch so far.
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
Show = Callable[[Notice | TrainingEvent], None]
StopRequested = Callable[[], bool]
