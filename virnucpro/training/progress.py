"""How a long command tells its caller how far it is. The work itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class StepProgress(Protocol):
    """Receives the progress of work that consists of steps of known size.

    ``virnucpro.ui`` shows it on the terminal.
    """

    def begin(self, title: str, total: float) -> None:
        """Begin a step of ``total`` units. The step before it is finished."""
        ...

    def advance(self, amount: float) -> None:
        """Report that ``amount`` more units of the current step are finished."""
        ...


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
