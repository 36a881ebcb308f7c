"""The training loop, as each process of a training runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from virnucpro.compute.threads import call_mkl_functions_once
from virnucpro.errors import DeviceError, InputError
from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import log_loss
from virnucpro.store.disk import Disk
from virnucpro.training.classifier.features import (
    FeatureReader,
    PartFeatures,
    RowNumbers,
    epoch_windows,
    process_slice,
)
from virnucpro.training.classifier.network import (
    ClassifierNetwork,
    TrainingGroup,
    dropout_mask,
    weight_decay_groups,
)
from virnucpro.training.classifier.progress import EpochEnded, FramesSeen, TrainingEvent
from virnucpro.training.classifier.savepoint import load_savepoint, save_savepoint
from virnucpro.training.classifier.settings import TrainingSettings

ReportEvent = Callable[[TrainingEvent], None]
StopRequested = Callable[[], bool]
STOP_CHECK_BATCHES = 16  # batches between two agreements on whether to stop: each costs a message
REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained, on which features, and where the savepoint is. Picklable.

    ``mean`` and ``deviation`` ``[width]`` standardise the inputs; 0 and 1 leave them as they are.
    """

    settings: TrainingSettings
    train: PartFeatures
    validation: PartFeatures
    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    savepoint: Path


def train_network(
    plan: TrainingPlan,
    group: TrainingGroup,
    report: ReportEvent,
    stop_requested: StopRequested,
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
        return NetworkTrainer(plan, group, report, stop_requested).train()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            "out of GPU memory: is another program using the GPU? Else use a smaller --batch-size"
        ) from error


class NetworkTrainer:
    """The network, the optimizer and the position in the data of one process."""

    def __init__(
        self,
        plan: TrainingPlan,
        group: TrainingGroup,
        report: ReportEvent,
        stop_requested: StopRequested,
    ) -> None:
        """Load the savepoint, and open the features."""
        self._plan, self._group, self._settings = plan, group, plan.settings
        self._report, self._stop_requested, self._disk = report, stop_requested, Disk()
        savepoint = load_savepoint(plan.savepoint)
        assert savepoint is not None
        self._savepoint = savepoint
        network = ClassifierNetwork(plan.train.width, plan.settings, group)
        self._network = network.to(group.device)
        if savepoint.network:
            self._network.load_state_dict(savepoint.network)
        self._optimizer = _make_optimizer(self._network, plan.settings)
        if savepoint.optimizer:
            self._optimizer.load_state_dict(savepoint.optimizer)
        self._model = group.wrapped(self._network)
        self._train = FeatureReader(plan.train)
        self._validation = FeatureReader(plan.validation)
        self._mean = torch.from_numpy(plan.mean).float().to(group.device)
        self._scale = torch.from_numpy(1 / plan.deviation).float().to(group.device)
        self._last_report = 0.0

    def train(self) -> bool:
        """Train epoch after epoch, and return whether the training is finished."""
        savepoint = self._savepoint
        while not savepoint.finished:
            started = time.perf_counter()
            if not self._train_epoch():
                return False
            loss, area = self._validate()
            if not np.isfinite(loss):
                raise InputError(
                    f"the loss of epoch {savepoint.epoch + 1} is not finite: use a smaller "
                    f"--learning-rate, and start over with --force"
                )
            self._end_epoch(loss, area, time.perf_counter() - started)
        return True

    def _train_epoch(self) -> bool:
        """Train on the remaining batches of an epoch. Return False if a stop was requested."""
        savepoint = self._savepoint
        windows = epoch_windows(
            self._plan.train, self._settings.batch_size, self._settings.seed, savepoint.epoch
        )
        batches = [batch for window in windows for batch in window]
        seen = sum(len(batch) for batch in batches[: savepoint.batch])
        # The savepoint holds the sum over the processes; the first of them continues with it.
        earlier_loss = savepoint.loss if self._group.rank == 0 else 0.0
        loss = torch.tensor(earlier_loss, dtype=torch.float64, device=self._group.device)
        self._model.train()
        for number, rows, x, labels in self._read_batches(windows, savepoint.batch):
            if number % STOP_CHECK_BATCHES == 0 and self._group.any(self._stop_requested()):
                self._save(number, loss)
                return False
            loss += self._step(number, rows, seen, x, labels)
            seen += rows
            self._report_progress(seen)
        savepoint.batch, savepoint.loss = 0, self._total_loss(loss)
        return True

    def _read_batches(
        self, windows: list[list[RowNumbers]], finished_batches: int
    ) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
        """Yield the batches after the first ``finished_batches`` of an epoch.

        Yields the number of the batch, its rows over all processes, and the features and labels of
        this process.
        """
        number = 0
        for window in windows:
            batches = window[max(0, finished_batches - number) :]
            number += len(window) - len(batches)
            if not batches:
                continue
            own_batches = [batch[self._own_rows(len(batch))] for batch in batches]
            features = self._train.take(np.concatenate(own_batches))
            stops = np.cumsum([len(own_rows) for own_rows in own_batches]).tolist()
            for batch, own_rows, stop in zip(batches, own_batches, stops, strict=True):
                labels = torch.from_numpy(self._plan.train.labels[own_rows])
                yield number, len(batch), features[stop - len(own_rows) : stop], labels
                number += 1

    def _step(
        self, number: int, rows: int, seen: int, x: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Train on one batch, and return the sum of the losses of this process."""
        settings, group, epoch = self._settings, self._group, self._savepoint.epoch
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = settings.rate(epoch + seen / len(self._plan.train))
        mask = dropout_mask(rows, settings, epoch, number)[self._own_rows(rows)].to(group.device)
        self._optimizer.zero_grad()
        with torch.autocast(
            group.device.type, torch.bfloat16, enabled=settings.precision == "bf16"
        ):
            logits = self._model(self._standardised(x), mask, rows)
        loss = F.cross_entropy(logits, labels.to(group.device), reduction="sum")
        (loss * group.world / rows).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()

    def _own_rows(self, rows: int) -> slice:
        """Return which of ``rows`` rows this process takes."""
        return process_slice(rows, self._group.rank, self._group.world)

    def _standardised(self, x: torch.Tensor) -> torch.Tensor:
        """Return features on the device; with mean 0 and variance 1 if the settings say so."""
        x = x.to(self._group.device)
        return (x - self._mean) * self._scale if self._settings.standardise else x

    def _validate(self) -> tuple[float, float]:
        """Return cross entropy and AUROC on the validation part, the same on every process."""
        virus = self._plan.validation.labels == 1
        own_rows = self._own_rows(len(virus))
        logits = torch.zeros(len(virus), 2, device=self._group.device)
        self._network.eval()
        unused_mask = torch.empty(0)
        with torch.no_grad():
            start = own_rows.start
            for block in self._validation.blocks(own_rows.start, own_rows.stop):
                stop = start + len(block)
                logits[start:stop] = self._network(self._standardised(block), unused_mask, 0)
                start = stop
            all_logits = self._group.total(logits).cpu().numpy().astype(np.float64)
        margins = all_logits[:, 1] - all_logits[:, 0]
        if not np.isfinite(margins).all():
            return float("nan"), float("nan")
        area = auroc(virus, margins)
        return log_loss(virus, margins), float("nan") if area is None else area

    def _end_epoch(self, validation_loss: float, area: float, seconds: float) -> None:
        """Keep the best weights, decide whether training is finished, save and report."""
        savepoint, settings = self._savepoint, self._settings
        savepoint.epoch += 1
        row = {
            "epoch": savepoint.epoch,
            "epochs": settings.epochs,
            "loss": savepoint.loss / len(self._plan.train),
            "validation_loss": validation_loss,
            "auroc": area,
            "rate": self._optimizer.param_groups[0]["lr"],
            "seconds": round(seconds, 3),
        }
        savepoint.history.append(row)
        best = savepoint.best_epoch
        if best == savepoint.epoch:
            state = self._network.state_dict()
            savepoint.best = {name: value.cpu().clone() for name, value in state.items()}
        epochs_since_best = savepoint.epoch - best
        savepoint.finished = (
            savepoint.epoch >= settings.epochs or epochs_since_best >= settings.patience
        )
        self._save(0, torch.tensor(0.0, device=self._group.device))
        if self._group.rank == 0:
            self._report(EpochEnded(**row, best=best))

    def _save(self, batch: int, loss: torch.Tensor) -> None:
        savepoint = self._savepoint
        savepoint.batch, savepoint.loss = batch, self._total_loss(loss)
        if self._group.rank == 0:
            state = self._network.state_dict()
            savepoint.network = {name: value.cpu() for name, value in state.items()}
            savepoint.optimizer = self._optimizer.state_dict()
            save_savepoint(self._plan.savepoint, savepoint, self._disk)

    def _total_loss(self, loss: torch.Tensor) -> float:
        with torch.no_grad():
            return float(self._group.total(loss))

    def _report_progress(self, seen: int) -> None:
        now = time.monotonic()
        if self._group.rank == 0 and now - self._last_report >= REPORT_SECONDS:
            self._last_report = now
            epoch = self._savepoint.epoch + 1
            self._report(FramesSeen(epoch, self._settings.epochs, seen, len(self._plan.train)))


def _make_optimizer(
    network: ClassifierNetwork, settings: TrainingSettings
) -> torch.optim.Optimizer:
    if settings.optimizer == "adamw":
        groups = weight_decay_groups(network, settings.weight_decay)
        return torch.optim.AdamW(groups, settings.learning_rate)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return torch.optim.SGD(trained, settings.learning_rate, settings.momentum)
