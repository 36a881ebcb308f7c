"""The training loop, as each process of a training runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.compute.threads import call_mkl_functions_once
from virnucpro.errors import DeviceError, InputError
from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import log_loss
from virnucpro.store.disk import Disk
from virnucpro.training.classifier.features import (
    OpenFeatures,
    PartFeatures,
    Rows,
    Window,
    epoch_of,
    share_of,
    shares,
)
from virnucpro.training.classifier.group import TrainingGroup
from virnucpro.training.classifier.network import Network, dropout_mask
from virnucpro.training.classifier.progress import EpochEnded, Seen, TrainingEvent
from virnucpro.training.classifier.recipe import Recipe
from virnucpro.training.classifier.savepoint import load, save

ReportProgress = Callable[[TrainingEvent], None]
Stop = Callable[[], bool]
CHECK_BATCHES = 16  # so often the processes agree on whether to stop: asking costs a message
REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Plan:
    """What is trained, on what, and where it saves. Picklable.

    ``mean`` and ``deviation`` ``[width]`` standardise the inputs: 0 and 1 leave them as they are.
    """

    recipe: Recipe
    train: PartFeatures
    validation: PartFeatures
    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    savepoint: Path


def train(
    plan: Plan, group: TrainingGroup, report: ReportProgress, stop: Stop, disk: Disk | None = None
) -> bool:
    """Train from the savepoint on, which must be there, to the end or until ``stop`` says so.

    Returns:
        Whether training is over; where it was stopped, after the batch it was at.

    Raises:
        DeviceError: the device has too little memory.
        InputError: the loss is no longer finite.
        OutputError: the savepoint cannot be written.
    """
    call_mkl_functions_once()
    try:
        return _Trainer(plan, group, report, stop, disk or Disk()).train()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            "out of GPU memory: is another program using the GPU? Else use a smaller --batch-size"
        ) from error


class _Trainer:
    """One process's network, optimizer and place in the data."""

    def __init__(
        self, plan: Plan, group: TrainingGroup, report: ReportProgress, stop: Stop, disk: Disk
    ) -> None:
        self._plan, self._group, self._recipe = plan, group, plan.recipe
        self._report, self._stop, self._disk = report, stop, disk
        point = load(plan.savepoint)
        assert point is not None
        self._point = point
        self._network = Network(plan.train.width, plan.recipe, group.total).to(group.device)
        if point.network:
            self._network.load_state_dict(point.network)
        self._optimizer = _optimizer(self._network, plan.recipe)
        if point.optimizer:
            self._optimizer.load_state_dict(point.optimizer)
        self._model = group.wrapped(self._network)
        self._train, self._validation = OpenFeatures(plan.train), OpenFeatures(plan.validation)
        self._mean = torch.from_numpy(plan.mean).float().to(group.device)
        self._scale = torch.from_numpy(1 / plan.deviation).float().to(group.device)
        self._reported = 0.0

    def train(self) -> bool:
        """Epoch after epoch."""
        point = self._point
        while not point.finished:
            started = time.perf_counter()
            if not self._epoch():
                return False
            loss, auroc = self._validate()
            if not np.isfinite(loss):
                raise InputError(
                    f"the loss of epoch {point.epoch + 1} is not finite: use a smaller "
                    f"--learning-rate, and start over with --force"
                )
            self._end_epoch(loss, auroc, time.perf_counter() - started)
        return True

    def _epoch(self) -> bool:
        """The batches left of an epoch. False where it was asked to stop."""
        point = self._point
        windows = epoch_of(
            self._plan.train, self._recipe.batch_size, self._recipe.seed, point.epoch
        )
        seen = sum(len(b) for b in [b for w in windows for b in w.batches][: point.batch])
        # The sum over the processes was saved; the first of them goes on with it.
        before = point.loss if self._group.rank == 0 else 0.0
        loss = torch.tensor(before, dtype=torch.float64, device=self._group.device)
        self._model.train()
        for number, rows, x, labels in self._batches(windows, point.batch):
            if number % CHECK_BATCHES == 0 and self._group.any(self._stop()):
                self._save(number, loss)
                return False
            loss += self._step(number, len(rows), seen, x, labels)
            seen += len(rows)
            self._show(seen)
        point.batch, point.loss = 0, float(self._total(loss))
        return True

    def _batches(
        self, windows: list[Window], done: int
    ) -> Iterator[tuple[int, Rows, torch.Tensor, torch.Tensor]]:
        """Number, rows of all processes, and this one's features and labels, of what is left."""
        number = 0
        for window in windows:
            left = window.batches[max(0, done - number) :]
            number += len(window.batches) - len(left)
            mine = shares(left, self._group.rank, self._group.world)
            if not mine:
                continue
            features = self._train.take(np.concatenate(mine))
            stops = np.cumsum([len(rows) for rows in mine]).tolist()
            for rows, own, stop in zip(left, mine, stops, strict=True):
                labels = torch.from_numpy(self._plan.train.labels[own])
                yield number, rows, features[stop - len(own) : stop], labels
                number += 1

    def _step(
        self, number: int, count: int, seen: int, x: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """One batch; returns the sum of this process's losses."""
        recipe, group, point = self._recipe, self._group, self._point
        for settings in self._optimizer.param_groups:
            settings["lr"] = recipe.rate(point.epoch + seen / len(self._plan.train))
        mine = share_of(count, group.rank, group.world)
        kept = dropout_mask(count, recipe, point.epoch, number)[mine].to(group.device)
        self._optimizer.zero_grad()
        with torch.autocast(group.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
            logits = self._model(self._standard(x), kept, count)
        loss = F.cross_entropy(logits, labels.to(group.device), reduction="sum")
        (loss * group.world / count).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()

    def _standard(self, x: torch.Tensor) -> torch.Tensor:
        """Features on the device, with mean 0 and variance 1 where the recipe wants that."""
        x = x.to(self._group.device)
        return (x - self._mean) * self._scale if self._recipe.standardise else x

    def _validate(self) -> tuple[float, float]:
        """Mean cross entropy and AUROC on the validation part, the same on every process."""
        labels = self._plan.validation.labels
        mine = share_of(len(labels), self._group.rank, self._group.world)
        logits = torch.zeros(len(labels), 2, device=self._group.device)
        self._network.eval()
        unused = torch.empty(0)
        with torch.no_grad():
            start = mine.start
            for block in self._validation.blocks(mine.start, mine.stop):
                logits[start : start + len(block)] = self._network(self._standard(block), unused, 0)
                start += len(block)
            found = self._group.total(logits).cpu().numpy().astype(np.float64)
        margins = found[:, 1] - found[:, 0]
        if not np.isfinite(margins).all():
            return float("nan"), float("nan")
        area = auroc(labels == 1, margins)
        return log_loss(labels == 1, margins), float("nan") if area is None else area

    def _end_epoch(self, validation_loss: float, auroc: float, seconds: float) -> None:
        """Keep the best, decide whether it was the last, save and report."""
        point, recipe = self._point, self._recipe
        point.epoch += 1
        event = EpochEnded(
            epoch=point.epoch,
            epochs=recipe.epochs,
            loss=point.loss / len(self._plan.train),
            validation_loss=validation_loss,
            auroc=auroc,
            rate=self._optimizer.param_groups[0]["lr"],
            best=0,
            seconds=round(seconds, 3),
        )
        point.history.append(asdict(event))
        best = point.best_epoch
        event = EpochEnded(**{**asdict(event), "best": best})
        point.history[-1] = asdict(event)
        if best == point.epoch:
            point.best = {k: v.cpu().clone() for k, v in self._network.state_dict().items()}
        point.finished = point.epoch >= recipe.epochs or point.epoch - best >= recipe.patience
        point.loss = 0.0
        self._save(0, torch.tensor(0.0, device=self._group.device))
        if self._group.rank == 0:
            self._report(event)

    def _save(self, batch: int, loss: torch.Tensor) -> None:
        point = self._point
        point.batch, point.loss = batch, float(self._total(loss))
        if self._group.rank == 0:
            point.network = {k: v.cpu() for k, v in self._network.state_dict().items()}
            point.optimizer = self._optimizer.state_dict()
            save(self._plan.savepoint, point, self._disk)

    def _total(self, loss: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self._group.total(loss)

    def _show(self, seen: int) -> None:
        now = time.monotonic()
        if self._group.rank == 0 and now - self._reported >= REPORT_SECONDS:
            self._reported = now
            epoch = self._point.epoch + 1
            self._report(Seen(epoch, self._recipe.epochs, seen, len(self._plan.train)))


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Weight decay is for the matrices only: it has no business with scales and biases."""
    learned = [p for p in network.parameters() if p.requires_grad]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(learned, recipe.learning_rate, recipe.momentum)
    matrices = [p for p in learned if p.ndim > 1]
    others = [p for p in learned if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, recipe.learning_rate)
