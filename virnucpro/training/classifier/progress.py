"""The events of a training, which the trainer reports. It never prints."""

from __future__ import annotations

from dataclasses import dataclass


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
