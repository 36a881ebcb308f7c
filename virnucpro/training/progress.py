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
    """An epoch has ended: its row of ``Savepoint.history``, and the ``best`` epoch so far."""

    row: Mapping[str, float]
    best: int


TrainingEvent = EpochProgress | EpochEnded
ReportEvent = Callable[[TrainingEvent], None]
Show = Callable[[Notice | TrainingEvent], None]
StopRequested = Callable[[], bool]
