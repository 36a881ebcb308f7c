"""What happens during a training, for whoever shows it. The trainer reports; it never prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """So many of the ``total`` frames of an epoch (from 1) have been seen."""

    epoch: int
    epochs: int
    frames: int
    total: int


@dataclass(frozen=True)
class EpochEnded:
    """An epoch (from 1, of at most ``epochs``) and how the network is after it.

    Attributes:
        loss: mean cross entropy in training, with dropout.
        validation_loss: mean cross entropy on the validation part.
        auroc: area under the ROC curve on the validation part.
        rate: learning rate at its end.
        best: epoch with the lowest validation loss so far.
        seconds: what it took, from where this process began with it.
    """

    epoch: int
    epochs: int
    loss: float
    validation_loss: float
    auroc: float
    rate: float
    best: int
    seconds: float


TrainingEvent = Seen | EpochEnded
