"""The training loop, as each process of a training runs it: epochs, stops, and savepoints.

What is trained, and on what, is up to the class that derives from :class:`TrainingLoop`.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from virnucpro.compute.threads import call_mkl_functions_once
from virnucpro.errors import DeviceError, InputError
from virnucpro.store.disk import Disk
from virnucpro.training.group import TrainingGroup
from virnucpro.training.progress import EpochEnded, EpochProgress, ReportEvent, StopRequested
from virnucpro.training.savepoint import load_savepoint, save_savepoint

CHECK_BATCHES = 16  # batches between two agreements on whether to stop or save: each costs messages
SAVE_SECONDS = 60.0  # a training that is killed repeats about so much
REPORT_SECONDS = 0.2
BatchContent = TypeVar("BatchContent")


class Trainable(Protocol):
    """What is sent to each process of a training. Picklable."""

    def loop(
        self, group: TrainingGroup, report: ReportEvent, stop_requested: StopRequested
    ) -> TrainingLoop[Any]:
        """Return the loop of one process."""
        ...


def train_network(
    plan: Trainable, group: TrainingGroup, report: ReportEvent, stop_requested: StopRequested
) -> bool:
    """Train from the savepoint, which must exist, to the end or until a stop is requested.

    Returns:
        Whether the training is finished. If it was stopped, the savepoint holds the state after
        the last batch.

    Raises:
        DeviceError: the device has too little memory.
        InputError: the loss is no longer finite.
        OutputError: the savepoint cannot be written.
    """
    call_mkl_functions_once()
    try:
        return plan.loop(group, report, stop_requested).train()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            "out of GPU memory: is another program using the GPU? Else use a smaller --batch-size"
        ) from error


@dataclass(frozen=True)
class EpochPlan(Generic[BatchContent]):
    """The batches of an epoch.

    Attributes:
        sizes: units of each batch, over all processes.
        units: what is counted, for messages.
        loss_divisor: what the sum of the losses of all batches is divided by.
        batches: the contents for this process, after the batches that are finished.
    """

    sizes: list[int]
    units: str
    loss_divisor: float
    batches: Iterator[BatchContent]


class TrainingLoop(ABC, Generic[BatchContent]):
    """The network, the optimizer and the position in the data of one process."""

    def __init__(
        self,
        savepoint: Path,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        limits: tuple[int, int],
        group: TrainingGroup,
        report: ReportEvent,
        stop_requested: StopRequested,
    ) -> None:
        """Load the savepoint into ``network`` and ``optimizer``.

        ``limits`` are the largest number of epochs, and of those without a better one.
        """
        self._savepoint_file, self._disk = savepoint, Disk()
        self._epochs, self._patience = limits
        self._report, self._stop_requested = report, stop_requested
        self.group, self.network, self.optimizer = group, network.to(group.device), optimizer
        loaded = load_savepoint(savepoint)
        assert loaded is not None
        self.savepoint = loaded
        if loaded.network:
            network.load_state_dict(loaded.network)
        if loaded.optimizer:
            optimizer.load_state_dict(loaded.optimizer)
        self.model = group.wrapped(network)
        self._last_report, self._saved = 0.0, time.monotonic()

    @abstractmethod
    def epoch_plan(self, epoch: int, finished_batches: int) -> EpochPlan[BatchContent]:
        """Return the batches of an epoch (from 0). They must be the same at every call."""

    @abstractmethod
    def step(self, number: int, seen: int, content: BatchContent) -> torch.Tensor:
        """Train on batch ``number`` (from 0), before which the epoch had ``seen`` units.

        Return the loss of this process, so that the sum over all processes is that of the batch.
        """

    @abstractmethod
    def validate(self) -> Mapping[str, float]:
        """Return what the history records of the validation part, the same on every process."""

    @abstractmethod
    def rank(self, metrics: Mapping[str, float]) -> float:
        """Return the number by which epochs are compared: the highest is the best.

        A number that is not finite ends the training.
        """

    def result(self) -> nn.Module:
        """Return the network that is kept: that in training, or one that follows from it."""
        return self.network

    def extra_state(self) -> dict[str, Any]:
        """Return what else the rest depends on, for the savepoint. Most trainings have nothing."""
        return {}

    def train(self) -> bool:
        """Train epoch after epoch, and return whether the training is finished."""
        savepoint = self.savepoint
        while not savepoint.finished:
            started = time.perf_counter()
            plan = self.epoch_plan(savepoint.epoch, savepoint.batch)
            if not self._train_epoch(plan):
                return False
            metrics = self.validate()
            if not math.isfinite(self.rank(metrics)) or not math.isfinite(savepoint.loss):
                raise InputError(
                    f"the loss of epoch {savepoint.epoch + 1} is not finite: use a smaller "
                    f"learning rate, and start over with --force"
                )
            loss = savepoint.loss / plan.loss_divisor
            self._end_epoch(loss, metrics, time.perf_counter() - started)
        return True

    def _train_epoch(self, plan: EpochPlan[BatchContent]) -> bool:
        """Train on the remaining batches of an epoch. Return False if a stop was requested."""
        savepoint, total = self.savepoint, sum(plan.sizes)
        seen = sum(plan.sizes[: savepoint.batch])
        # The savepoint holds the sum over the processes; the first of them continues with it.
        earlier_loss = savepoint.loss if self.group.rank == 0 else 0.0
        loss = torch.tensor(earlier_loss, dtype=torch.float64, device=self.group.device)
        self.model.train()
        for number, content in enumerate(plan.batches, savepoint.batch):
            if number % CHECK_BATCHES == 0:
                stop = self.group.any(self._stop_requested())
                if stop or self.group.any(time.monotonic() - self._saved >= SAVE_SECONDS):
                    self._save(number, loss)
                if stop:
                    return False
            loss += self.step(number, seen, content)
            seen += plan.sizes[number]
            now = time.monotonic()
            if self.group.rank == 0 and now - self._last_report >= REPORT_SECONDS:
                self._last_report = now
                progress = (savepoint.epoch + 1, self._epochs, seen, total, plan.units)
                self._report(EpochProgress(*progress))
        savepoint.batch, savepoint.loss = 0, self._total_loss(loss)
        return True

    def _end_epoch(self, loss: float, metrics: Mapping[str, float], seconds: float) -> None:
        """Keep the best weights, decide whether training is finished, save and report."""
        savepoint = self.savepoint
        savepoint.epoch += 1
        rate = float(self.optimizer.param_groups[0]["lr"])
        savepoint.history.append(
            {
                "epoch": savepoint.epoch,
                "epochs": self._epochs,
                "loss": loss,
                **metrics,
                "rate": rate,
                "seconds": round(seconds, 3),
            }
        )
        ranks = [self.rank(row) for row in savepoint.history]
        savepoint.best_epoch = ranks.index(max(ranks)) + 1
        if savepoint.best_epoch == savepoint.epoch:
            state = self.result().state_dict()
            savepoint.best = {name: value.cpu().clone() for name, value in state.items()}
        savepoint.finished = (
            savepoint.epoch >= self._epochs
            or savepoint.epoch - savepoint.best_epoch >= self._patience
        )
        self._save(0, torch.tensor(0.0, device=self.group.device))
        if self.group.rank == 0:
            ended = (savepoint.epoch, self._epochs, loss, metrics, rate, savepoint.best_epoch)
            self._report(EpochEnded(*ended, round(seconds, 3)))

    def _save(self, batch: int, loss: torch.Tensor) -> None:
        savepoint = self.savepoint
        savepoint.batch, savepoint.loss = batch, self._total_loss(loss)
        self._saved = time.monotonic()
        if self.group.rank == 0:
            state = self.network.state_dict()
            savepoint.network = {name: value.cpu() for name, value in state.items()}
            savepoint.optimizer = self.optimizer.state_dict()
            savepoint.extra = self.extra_state()
            save_savepoint(self._savepoint_file, savepoint, self._disk)

    def _total_loss(self, loss: torch.Tensor) -> float:
        with torch.no_grad():
            return float(self.group.total(loss))
