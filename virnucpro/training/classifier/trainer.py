"""The training of the classifier, as each process runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import log_loss
from virnucpro.training.classifier.features import (
    FeatureReader,
    PartFeatures,
    RowNumbers,
    epoch_windows,
)
from virnucpro.training.classifier.network import (
    ClassifierNetwork,
    dropout_mask,
    weight_decay_groups,
)
from virnucpro.training.classifier.settings import TrainingSettings
from virnucpro.training.group import TrainingGroup
from virnucpro.training.loop import EpochPlan, TrainingLoop
from virnucpro.training.progress import ReportEvent, StopRequested


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

    def loop(
        self, group: TrainingGroup, report: ReportEvent, stop_requested: StopRequested
    ) -> ClassifierLoop:
        """Return the loop of one process."""
        return ClassifierLoop(self, group, report, stop_requested)


@dataclass(frozen=True)
class FrameBatch:
    """The rows of a batch over all processes, and features and labels of this process."""

    rows: int
    features: torch.Tensor
    labels: torch.Tensor


class ClassifierLoop(TrainingLoop):
    """Trains the classifier on merged features. The lowest validation loss is the best."""

    def __init__(
        self,
        plan: TrainingPlan,
        group: TrainingGroup,
        report: ReportEvent,
        stop_requested: StopRequested,
    ) -> None:
        """Load the savepoint, and open the features."""
        self._plan, self._settings = plan, plan.settings
        settings = plan.settings
        network = ClassifierNetwork(plan.train.width, settings, group).to(group.device)
        super().__init__(
            plan.savepoint,
            network,
            _make_optimizer(network, settings),
            (settings.epochs, settings.patience),
            group,
            report,
            stop_requested,
            precision=settings.precision,
        )
        self._train = FeatureReader(plan.train)
        self._validation = FeatureReader(plan.validation)
        self._mean = torch.from_numpy(plan.mean).float().to(group.device)
        self._scale = torch.from_numpy(1 / plan.deviation).float().to(group.device)

    def epoch_plan(self, epoch: int, finished_batches: int) -> EpochPlan:
        """Return the batches of an epoch, whose features are read window by window."""
        settings = self._settings
        windows = epoch_windows(self._plan.train, settings.batch_size, settings.seed, epoch)
        sizes = [len(batch) for window in windows for batch in window]
        batches = self._read_batches(windows, finished_batches)
        return EpochPlan(sizes, "frames", len(self._plan.train), batches)

    def _read_batches(
        self, windows: list[list[RowNumbers]], finished_batches: int
    ) -> Iterator[FrameBatch]:
        number = 0
        for window in windows:
            batches = window[max(0, finished_batches - number) :]
            number += len(window)
            if not batches:
                continue
            own_batches = [batch[self.group.own_rows(len(batch))] for batch in batches]
            features = self._train.take(np.concatenate(own_batches))
            parts = torch.split(features, [len(own_rows) for own_rows in own_batches])
            for batch, own_rows, part in zip(batches, own_batches, parts, strict=True):
                labels = torch.from_numpy(self._plan.train.labels[own_rows])
                yield FrameBatch(len(batch), part, labels)

    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs."""
        return self._settings.rate(epochs)

    def step(self, number: int, content: FrameBatch) -> torch.Tensor:
        """Train on one batch, and return the sum of the losses of this process."""
        group, rows = self.group, content.rows
        mask = dropout_mask(rows, self._settings, self.savepoint.epoch, number)
        with self.autocast():
            x = self._standardised(content.features)
            logits = self.model(x, mask[group.own_rows(rows)].to(group.device), rows)
        loss = F.cross_entropy(logits, content.labels.to(group.device), reduction="sum")
        self.descend(loss / rows)
        return loss.detach()

    def _standardised(self, x: torch.Tensor) -> torch.Tensor:
        """Return features on the device; with mean 0 and variance 1 if the settings say so."""
        x = x.to(self.group.device)
        return (x - self._mean) * self._scale if self._settings.standardise else x

    def validate(self) -> Mapping[str, float]:
        """Return cross entropy and AUROC on the validation part."""
        virus = self._plan.validation.labels == 1
        own_rows = self.group.own_rows(len(virus))
        logits = torch.zeros(len(virus), 2, device=self.group.device)
        self.network.eval()
        unused_mask = torch.empty(0)
        with torch.no_grad():
            blocks = map(self._standardised, self._validation.blocks(own_rows.start, own_rows.stop))
            own = [self.network(block, unused_mask, 0) for block in blocks]
            logits[own_rows] = torch.cat([logits[:0], *own])
            all_logits = self.group.total(logits).cpu().numpy().astype(np.float64)
        margins = all_logits[:, 1] - all_logits[:, 0]
        if not np.isfinite(margins).all():
            return {"validation_loss": float("nan"), "auroc": float("nan")}
        area = auroc(virus, margins)
        return {
            "validation_loss": log_loss(virus, margins),
            "auroc": float("nan") if area is None else area,
        }

    def rank(self, metrics: Mapping[str, float]) -> float:
        """Return the validation loss, negated."""
        return -metrics["validation_loss"]


def _make_optimizer(
    network: ClassifierNetwork, settings: TrainingSettings
) -> torch.optim.Optimizer:
    if settings.optimizer == "adamw":
        groups = weight_decay_groups(network, settings.weight_decay)
        return torch.optim.AdamW(groups, settings.learning_rate)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return torch.optim.SGD(trained, settings.learning_rate, settings.momentum)
