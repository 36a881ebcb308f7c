"""The events of a training, and where they are shown. The trainer reports; it never prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class FramesSeen:
    """The training has seen ``frames`` of the ``total`` frames of an epoch (from 1)."""

    epoch: int
    epochs: int
    frames: int
    total: int


@dataclass(frozen=True)
class EpochEnded:
    """An epoch has ended.

    Attributes:
        epoch: its number, from 1.
        epochs: the largest number of epochs.
        loss: mean cross entropy in training, with dropout.
        validation_loss: mean cross entropy on the validation part.
        auroc: area under the ROC curve on the validation part.
        rate: the learning rate at its end.
        best: the epoch with the lowest validation loss so far.
        seconds: its duration, from where this process began with it.
    """

    epoch: int
    epochs: int
    loss: float
    validation_loss: float
    auroc: float
    rate: float
    best: int
    seconds: float


TrainingEvent = FramesSeen | EpochEnded


class TensorBoardLog:
    """Writes the metrics of each epoch as TensorBoard scalars into ``folder``.

    If ``folder`` is None, it writes nothing. ``first_epoch`` is the epoch that comes next: what an
    earlier start wrote from there on is dropped.
    """

    def __init__(self, folder: Path | None, first_epoch: int) -> None:
        self._writer: Any = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(log_dir=str(folder), purge_step=first_epoch)

    def add(self, event: EpochEnded) -> None:
        """Write the metrics of an epoch."""
        if self._writer is None:
            return
        for name, value in (
            ("loss/train", event.loss),
            ("loss/validation", event.validation_loss),
            ("auroc/validation", event.auroc),
            ("learning_rate", event.rate),
        ):
            self._writer.add_scalar(name, value, event.epoch)
        self._writer.flush()

    def __enter__(self) -> TensorBoardLog:
        """Return the log itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
