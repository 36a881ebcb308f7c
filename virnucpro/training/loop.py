"""The training loop, as each process of a training runs it: epochs, stops, and savepoints.

What is trained, and on what, is up to the class that derives from :class:`TrainingLoop`.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from virnucpro.compute.threads import call_mkl_functions_once
from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, InputError
from virnucpro.events import Emit, EpochEnded, EpochProgress
from virnucpro.store.disk import Disk
from virnucpro.training.group import TrainingGroup, sum_over_processes
from virnucpro.training.savepoint import AVERAGE, load_savepoint, save_savepoint

CHECK_BATCHES = 16  # batches between two agreements on whether to stop or save: each costs messages
SAVE_SECONDS = 60.0  # a training that is killed repeats about so much
REPORT_SECONDS = 0.2
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


MakeLoop = Callable[[TrainingGroup], "TrainingLoop"]
"""Returns the loop of one process. Picklable: it is sent to each process of a training."""


def train_network(
    make_loop: MakeLoop,
    rank: int,
    world: int,
    device: Device,
    report: Emit,
    stop_requested: Callable[[], bool],
) -> bool:
    """Train from the savepoint, and return whether the training is finished or was stopped."""
    # A process sees only its own GPU.
    group = TrainingGroup(rank, world, torch.device("cpu" if device.kind == "cpu" else "cuda:0"))
    call_mkl_functions_once()
    try:
        return make_loop(group).train(report, stop_requested)
    except torch.OutOfMemoryError as error:
        raise DeviceError("out of GPU memory: use a smaller --batch-size") from error


class EpochPlan(NamedTuple):
    """The batches of an epoch.

    Attributes:
        sizes: frames, proteins or steps of each batch, over all processes.
        loss_divisor: what the sum of the losses of all batches is divided by.
        batches: the contents for this process, after the batches that are finished. A content is
            taken when it is trained on, so random numbers may be drawn for it then.
    """

    sizes: list[int]
    loss_divisor: float
    batches: Iterator[Any]


class TrainingLoop(ABC):
    """The network, the optimizer and the position in the data of one process.

    ``model`` is the network with gradients averaged over the processes, for the forward pass;
    ``average`` a running mean of the weights and of the statistics of batch norms, if asked for.
    """

    def __init__(
        self,
        savepoint: Path,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        limits: tuple[int, int],
        group: TrainingGroup,
        *,
        averaged: float = 0.0,
        precision: str = "fp32",
    ) -> None:
        """Load the savepoint into ``network``, which has its first weights, and ``optimizer``.

        ``limits`` are the largest number of epochs, and of those without a better one.
        ``averaged`` is the number of steps over which a running mean of the weights is kept; 0 for
        none. ``precision`` is ``fp32``, ``bf16`` or ``fp16`` (with a gradient scaler).
        """
        self._savepoint_file, self._disk = savepoint, Disk(savepoint.parent)
        self._epochs, self._patience = limits
        self._precision = precision
        self.group, self.network, self.optimizer = group, network.to(group.device), optimizer
        self.savepoint = loaded = load_savepoint(savepoint)
        if loaded.network:
            network.load_state_dict(loaded.network)
        if loaded.optimizer:
            optimizer.load_state_dict(loaded.optimizer)
        self._scaler = torch.amp.GradScaler(group.device.type, enabled=precision == "fp16")
        if loaded.extra:
            self._scaler.load_state_dict(loaded.extra)
        self.average: AveragedModel | None = None
        if averaged:
            mean = get_ema_multi_avg_fn(max(0.0, 1 - 1 / averaged))  # type: ignore[no-untyped-call]
            self.average = AveragedModel(network, multi_avg_fn=mean, use_buffers=True)
            if AVERAGE in loaded.extra:
                self.average.load_state_dict(loaded.extra[AVERAGE])
        self.model = group.wrapped(network)
        self._saved = time.monotonic()

    @abstractmethod
    def epoch_plan(self, epoch: int, finished_batches: int) -> EpochPlan:
        """Return the batches of an epoch (from 0). They must be the same at every call."""

    @abstractmethod
    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs."""

    @abstractmethod
    def step(self, number: int, content: Any) -> torch.Tensor:
        """Train on batch ``number`` (from 0) with :meth:`descend`; return this process' loss."""

    def validate(self) -> Mapping[str, float]:
        """Return what the history records of the validation part, the same on every process."""
        return {}

    def rank(self, metrics: Mapping[str, float]) -> float:
        """Return the number that is highest in the best epoch; one not finite ends the training."""
        return 0.0

    def result(self) -> nn.Module:
        """Return the network that is validated and kept: the mean, or the one in training."""
        return self.network if self.average is None else self.average.module

    def extra_state(self) -> dict[str, Any]:
        """Return what else the rest depends on, for ``extra`` of the savepoint."""
        return {}

    def autocast(self) -> torch.autocast:
        """Compute products in the precision of the training."""
        dtype = DTYPES.get(self._precision)
        return torch.autocast(self.group.device.type, dtype, enabled=dtype is not None)

    def descend(self, loss: torch.Tensor, largest_gradient: float | None = None) -> None:
        """Change the weights by the gradient of ``loss``, the summand of this process."""
        self.optimizer.zero_grad()
        # Gradients are averaged over the processes, where their sum is meant.
        self._scaler.scale(loss * self.group.world).backward()  # type: ignore[no-untyped-call]
        if largest_gradient is not None:
            self._scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), largest_gradient)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        if self.average is not None:
            self.average.update_parameters(self.network)

    def train(self, report: Emit, stop_requested: Callable[[], bool]) -> bool:
        """Train epoch after epoch, and return whether the training is finished."""
        while not self.savepoint.finished:
            started = time.perf_counter()
            plan = self.epoch_plan(self.savepoint.epoch, self.savepoint.batch)
            if not self._train_epoch(plan, report, stop_requested):
                return False
            self._end_epoch(self.savepoint.loss / plan.loss_divisor, started)
            if self.group.rank == 0:
                report(EpochEnded(self.savepoint.history[-1], self.savepoint.best_epoch))
        return True

    def _train_epoch(
        self, plan: EpochPlan, report: Emit, stop_requested: Callable[[], bool]
    ) -> bool:
        """Train on the remaining batches of an epoch. Return False if a stop was requested."""
        savepoint, total, reported = self.savepoint, sum(plan.sizes), 0.0
        seen = sum(plan.sizes[: savepoint.batch])
        # The savepoint holds the sum over the processes; the first of them continues with it.
        earlier_loss = savepoint.loss if self.group.rank == 0 else 0.0
        loss = torch.tensor(earlier_loss, dtype=torch.float64, device=self.group.device)
        self.model.train()
        for number in range(savepoint.batch, len(plan.sizes)):
            if self.group.world == 1 or number % CHECK_BATCHES == 0:
                stop = self.group.any(stop_requested())
                if stop or self.group.any(time.monotonic() - self._saved >= SAVE_SECONDS):
                    self._save(number, loss)
                if stop:
                    return False
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = self.rate(savepoint.epoch + seen / total)
            loss += self.step(number, next(plan.batches))
            seen += plan.sizes[number]
            if self.group.rank == 0 and time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                report(EpochProgress(savepoint.epoch + 1, self._epochs, seen, total))
        savepoint.batch, savepoint.loss = 0, self._total_loss(loss)
        return True

    def _end_epoch(self, loss: float, started: float) -> None:
        """Validate, keep the best weights, decide whether training is finished, and save."""
        savepoint, metrics = self.savepoint, self.validate()
        savepoint.epoch += 1
        if not math.isfinite(self.rank(metrics)) or not math.isfinite(loss):
            raise InputError("the loss is not finite: use a smaller learning rate, and --force")
        rate = float(self.optimizer.param_groups[0]["lr"])
        seconds = round(time.perf_counter() - started, 3)
        first = {"epoch": savepoint.epoch, "epochs": self._epochs, "loss": loss}
        savepoint.history.append({**first, **metrics, "rate": rate, "seconds": seconds})
        ranks = [self.rank(row) for row in savepoint.history]
        savepoint.best_epoch = ranks.index(max(ranks)) + 1
        if savepoint.best_epoch == savepoint.epoch:
            best = _on_cpu(self.result())
            savepoint.best = {name: value.clone() for name, value in best.items()}
        savepoint.finished = (
            savepoint.epoch >= self._epochs
            or savepoint.epoch - savepoint.best_epoch >= self._patience
        )
        self._save(0, torch.tensor(0.0, device=self.group.device))

    def _save(self, batch: int, loss: torch.Tensor) -> None:
        savepoint = self.savepoint
        savepoint.batch, savepoint.loss = batch, self._total_loss(loss)
        self._saved = time.monotonic()
        if self.group.rank == 0:
            savepoint.network = _on_cpu(self.network)
            savepoint.optimizer = self.optimizer.state_dict()
            savepoint.extra = {**self._scaler.state_dict(), **self.extra_state()}
            if self.average is not None:
                savepoint.extra[AVERAGE] = _on_cpu(self.average)
            save_savepoint(self._savepoint_file, savepoint, self._disk)

    def _total_loss(self, loss: torch.Tensor) -> float:
        with torch.no_grad():
            return float(sum_over_processes(loss))


def _on_cpu(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.cpu() for name, value in network.state_dict().items()}


def random_seed(*numbers: int) -> int:
    """Return a seed for torch that follows from whole numbers, such as seed, epoch and batch."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
