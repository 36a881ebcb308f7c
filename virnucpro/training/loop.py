"""The training loop, as each process of a training runs it, its state on the disk, and its start.

What is trained, and on what, is up to the class that derives from :class:`TrainingLoop`. What the
processes compute together, sums and batch norms, is the same on one process and on many, apart from
the order of sums.
"""

from __future__ import annotations

import io
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from virnucpro.contracts import Json
from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import InputError, ModelError
from virnucpro.events import EpochEnded, Notice, Show, StepAdvanced, StepStarted
from virnucpro.store.disk import Disk
from virnucpro.store.documents import SCHEMAS, in_schema
from virnucpro.store.work import WorkIdentity, check_same, checked_again, refuse_existing


def own_place() -> tuple[int, int]:
    """Return the number of this process, from 0, and that of all; alone it is 0 of 1."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def sum_over_processes(x: torch.Tensor) -> torch.Tensor:
    """Return the sum over all processes, the same bits on each; gradients are summed, too."""
    if own_place()[1] == 1:
        return x
    # A torch that was built without process groups has no such module.
    from torch.distributed.nn.functional import all_reduce

    total: torch.Tensor = all_reduce(x)  # type: ignore[no-untyped-call]
    return total


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch norm whose statistics in training are those of all processes, without the padding.

    In evaluation it is the batch norm of torch.
    """

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return ``x`` ``[B, C, L]`` normalised, with zeros where ``mask`` ``[B, 1, L]`` is 0."""
        if not self.training:
            return super().forward(x) * mask
        assert self.running_mean is not None
        assert self.running_var is not None
        # float32 also under mixed precision, whose sums over thousands of residues are too coarse.
        values, residues = x.float(), mask.float()
        sums = sum_over_processes(
            torch.cat([(values * residues).sum((0, 2)), residues.sum().reshape(1)])
        )
        count = sums[-1].clamp(min=1)
        mean = sums[:-1] / count
        centred = values - mean[:, None]
        variance = sum_over_processes((centred.square() * residues).sum((0, 2))) / count
        with torch.no_grad():
            share = self.momentum or 0.0
            self.running_mean.lerp_(mean.detach(), share)
            # As in torch, the running variance is the unbiased estimate.
            unbiased = variance.detach() * count / (count - 1).clamp(min=1)
            self.running_var.lerp_(unbiased, share)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale[:, None] + self.bias[:, None]).to(x.dtype) * mask


# --- the state of a training, and the loop

REPORT_SECONDS = 0.2
AVERAGE = "average"  # in ``extra`` of a savepoint: the state of the running mean of the weights


@dataclass
class Savepoint:
    """The state of a training after ``epoch`` epochs, from which a later start goes on.

    Order, dropout and learning rate follow from seed, epoch, batch and history wherever possible,
    so that no state of a random generator or of a schedule is needed.

    Attributes:
        identity: everything that decides the weights. It must be the same when training continues.
        network, optimizer: their states.
        extra: what else the rest depends on: the running mean of the weights, and what the
            training itself adds.
        best: the state of the network after ``best_epoch`` (from 1); empty before the first one
            ends.
        history: one row per epoch: epoch, epochs, loss, the metrics of the validation part, rate,
            seconds.
        finished: whether the training is over.
    """

    identity: dict[str, Json]
    network: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    finished: bool = False

    def last_network(self) -> dict[str, torch.Tensor]:
        """Return the state of the network after the last epoch, averaged if there is a mean."""
        if AVERAGE not in self.extra:
            return self.network
        state: Mapping[str, torch.Tensor] = self.extra[AVERAGE]
        return {n.removeprefix("module."): v for n, v in state.items() if n != "n_averaged"}


def save_savepoint(path: Path, savepoint: Savepoint, disk: Disk) -> None:
    """Write a savepoint in place of an earlier one."""
    buffer = io.BytesIO()  # torch.save does not report that a disk is full
    torch.save({"schema": SCHEMAS["savepoint"], **vars(savepoint)}, buffer)
    disk.save(path, buffer.getvalue())


def load_savepoint(path: Path) -> Savepoint:
    """Read a savepoint."""
    try:
        document = in_schema("savepoint", read_pickle(path), path)
        del document["schema"]
        return Savepoint(**document)
    except (ModelError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: start over with --force") from error


def begin_training(
    wanted: WorkIdentity,
    savepoint: Path,
    results: Sequence[Path],
    finished: Mapping[str, Json],
    disk: Disk,
    show: Show,
    *,
    force: bool = False,
) -> Savepoint | None:
    """Return the savepoint to go on from, which is on the disk; None for a finished training.

    ``wanted`` has everything that decides the weights, and ``finished`` the same of the results
    that are there, empty if they do not say.
    """
    for path in (*results, savepoint):
        disk.sweep(path.parent, {path.name})
    point, known = None, {} if force else finished
    if force:
        for path in (savepoint, *results):
            disk.remove(path)
    elif savepoint.exists():
        point = load_savepoint(savepoint)
        known = point.identity
    elif not finished:
        refuse_existing(results)
    if known:
        check_same(wanted, WorkIdentity(wanted.label, known), results[0].parent)
        if point is None and all(path.exists() for path in results):
            show(Notice("info", checked_again(wanted.label)))
            return None
        show(Notice("info", f"going on with {wanted.label}"))
    if point is None:
        point = Savepoint(dict(wanted.settings))
        save_savepoint(savepoint, point, disk)
    return point


class TrainingLoop(ABC):
    """The network and the optimizer of one process; each process begins at the savepoint.

    ``model`` is the network with gradients averaged over the processes, for the forward pass;
    ``average`` a running mean of the weights and of the statistics of batch norms, if asked for.
    This is process ``process`` of ``processes``.
    """

    def __init__(
        self,
        savepoint: Path,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        limits: tuple[int, int],
        device: torch.device,
        *,
        averaged: float = 0.0,
        precision: str = "fp32",
    ) -> None:
        """Load the savepoint into ``network``, which has its first weights, and ``optimizer``.

        ``limits`` are the largest number of epochs, and of those without a better one.
        ``averaged`` is the number of steps over which a running mean of the weights is kept; 0 for
        none. ``precision`` of matrix products is ``fp32`` or ``bf16``.
        """
        self._savepoint_file, self._disk = savepoint, Disk()
        self._epochs, self._patience = limits
        self._precision, self.device = precision, device
        self.process, self.processes = own_place()
        self.network, self.optimizer = network.to(device), optimizer
        self.savepoint = loaded = load_savepoint(savepoint)
        if loaded.network:
            network.load_state_dict(loaded.network)
        if loaded.optimizer:
            optimizer.load_state_dict(loaded.optimizer)
        self.average: AveragedModel | None = None
        if averaged:
            mean = get_ema_multi_avg_fn(max(0.0, 1 - 1 / averaged))  # type: ignore[no-untyped-call]
            self.average = AveragedModel(network, multi_avg_fn=mean, use_buffers=True)
            if AVERAGE in loaded.extra:
                self.average.load_state_dict(loaded.extra[AVERAGE])
        self.model = network
        if self.processes > 1:
            # Buffers are the same on every process: they follow from sums over all of them.
            ids = [device] if device.type == "cuda" else None
            self.model = nn.parallel.DistributedDataParallel(
                network, device_ids=ids, broadcast_buffers=False
            )

    @abstractmethod
    def batches(self, epoch: int) -> tuple[list[int], Iterator[Any]]:
        """Return the batches of an epoch (from 0), the same ones at every call.

        The first value has the frames, proteins or steps of each batch, over all processes. The
        other one yields what this process takes of each. It is taken when it is trained on, so
        random numbers may be drawn for it then.
        """

    @abstractmethod
    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs."""

    @abstractmethod
    def step(self, number: int, content: Any) -> torch.Tensor:
        """Train on batch ``number`` (from 0) with :meth:`descend`.

        Returned is the share of this process in the mean loss of the batch.
        """

    def validate(self) -> Mapping[str, float]:
        """Return what the history records of the validation part, the same on every process."""
        return {}

    @abstractmethod
    def merit(self, row: Mapping[str, float]) -> float:
        """Return what is highest in the best row of the history; not finite ends the training."""

    def result(self) -> nn.Module:
        """Return the network that is validated and kept: the mean, or the one in training."""
        return self.network if self.average is None else self.average.module

    def extra_state(self) -> dict[str, Any]:
        """Return what else the rest depends on, for ``extra`` of the savepoint."""
        return {}

    def autocast(self) -> torch.autocast:
        """Compute products in the precision of the training."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._precision == "bf16")

    def descend(self, loss: torch.Tensor, largest_gradient: float | None = None) -> None:
        """Change the weights by the gradient of ``loss``, the summand of this process."""
        self.optimizer.zero_grad()
        # Gradients are averaged over the processes, where their sum is meant.
        (loss * self.processes).backward()  # type: ignore[no-untyped-call]
        if largest_gradient is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), largest_gradient)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.network)

    def train(self, show: Show) -> None:
        """Train epoch after epoch; a training that ends before goes on from the last whole one."""
        while not self.savepoint.finished:
            started = time.perf_counter()
            loss = self._train_epoch(show)
            metrics = self.validate()
            self._end_epoch(loss, metrics, started)
            if self.process == 0 and metrics:
                show(EpochEnded(self.savepoint.history[-1], self.savepoint.best_epoch))

    def _train_epoch(self, show: Show) -> float:
        """Train on the batches of an epoch, and return their mean loss."""
        epoch, seen, shown, shown_at = self.savepoint.epoch, 0, 0, 0.0
        sizes, contents = self.batches(epoch)
        total = sum(sizes)
        if self.process == 0:
            show(StepStarted(f"epoch {epoch + 1} of at most {self._epochs}", total))
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self.model.train()
        for number, content in enumerate(contents):
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = self.rate(epoch + seen / total)
            loss += self.step(number, content)
            seen += sizes[number]
            if self.process == 0 and time.monotonic() - shown_at >= REPORT_SECONDS:
                show(StepAdvanced(seen - shown))
                shown, shown_at = seen, time.monotonic()
        with torch.no_grad():
            return float(sum_over_processes(loss)) / max(len(sizes), 1)

    def _end_epoch(self, loss: float, metrics: Mapping[str, float], started: float) -> None:
        """Keep the best weights, decide whether training is finished, and save."""
        savepoint = self.savepoint
        savepoint.epoch += 1
        rate = float(self.optimizer.param_groups[0]["lr"])
        seconds = round(time.perf_counter() - started, 3)
        first = {"epoch": savepoint.epoch, "epochs": self._epochs, "loss": loss}
        savepoint.history.append({**first, **metrics, "rate": rate, "seconds": seconds})
        merits = [self.merit(row) for row in savepoint.history]
        if not math.isfinite(merits[-1]) or not math.isfinite(loss):
            raise InputError("the loss is not finite: use a smaller learning rate, and --force")
        savepoint.best_epoch = merits.index(max(merits)) + 1
        if savepoint.best_epoch == savepoint.epoch:
            best = _on_cpu(self.result())
            savepoint.best = {name: value.clone() for name, value in best.items()}
        savepoint.finished = (
            savepoint.epoch >= self._epochs
            or savepoint.epoch - savepoint.best_epoch >= self._patience
        )
        if self.process == 0:
            savepoint.network = _on_cpu(self.network)
            savepoint.optimizer = self.optimizer.state_dict()
            savepoint.extra = self.extra_state()
            if self.average is not None:
                savepoint.extra[AVERAGE] = _on_cpu(self.average)
            save_savepoint(self._savepoint_file, savepoint, self._disk)


MakeLoop = Callable[[torch.device], TrainingLoop]
"""Returns the loop of one process on a device. Picklable: it is sent to each process."""


def _on_cpu(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.cpu() for name, value in network.state_dict().items()}


def random_seed(*numbers: int) -> int:
    """Return a seed for torch that follows from whole numbers, such as seed, epoch and batch."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
