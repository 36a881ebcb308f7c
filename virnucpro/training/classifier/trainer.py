"""The training of the classifier, as each process runs it: settings, network and loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.metrics.classification import auroc, log_loss
from virnucpro.training.classifier.features import PartFeatures, RowNumbers, epoch_windows
from virnucpro.training.group import MaskedBatchNorm, sum_over_processes
from virnucpro.training.loop import TrainingLoop, random_seed

STEP_EPOCHS, STEP_FACTOR = 10, 0.85  # train.py of the original: StepLR(step_size=10, gamma=0.85)


@dataclass(frozen=True)
class TrainingSettings:
    """Everything that decides the weights, beside the data.

    The defaults are those of train.py of https://github.com/Li-Jing-1997/VirNucPro.
    """

    epochs: int = 200  # the most
    batch_size: int = 32  # frames per step, over all processes together
    learning_rate: float = 0.0002  # its highest value
    momentum: float = 0.9  # of SGD
    hidden: int = 512
    dropout: float = 0.5
    patience: int = 5  # epochs without a lower validation loss before training stops
    seed: int = 42  # of first weights, order and dropout
    precision: str = "fp32"  # of the matrix products; all else is fp32


class ClassifierNetwork(nn.Module):
    """Linear layer, batch normalisation, ReLU, dropout, linear layer."""

    def __init__(self, width: int, settings: TrainingSettings) -> None:
        """Draw the first weights as the original does (Xavier), from the seed of the settings."""
        super().__init__()
        random = torch.Generator().manual_seed(settings.seed)
        self.hidden_layer = _linear(width, settings.hidden, random)
        # Batch normalisation takes this bias out again: its gradient consists of rounding errors.
        self.hidden_layer.bias.requires_grad_(False)
        self.bn1 = MaskedBatchNorm(settings.hidden)
        self.output_layer = _linear(settings.hidden, 2, random)
        self._keep_probability = 1 - settings.dropout

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[n, 2]`` of ``[n, width]``.

        ``mask`` ``[n, hidden]`` holds the units that dropout keeps; it is read in training only.
        """
        x = self.hidden_layer(x).float()  # [n, hidden]
        x = F.relu(self.bn1(x[..., None], torch.ones_like(x[:, :1, None]))[..., 0])
        if self.training:
            x = x * mask / self._keep_probability
        return torch.as_tensor(self.output_layer(x)).float()  # [n, 2]


def _linear(width: int, units: int, random: torch.Generator) -> nn.Linear:
    layer = nn.Linear(width, units, device="meta").to_empty(device="cpu")
    nn.init.xavier_uniform_(layer.weight, generator=random)
    nn.init.uniform_(layer.bias, -(width**-0.5), width**-0.5, generator=random)  # torch's default
    return layer


def dropout_mask(rows: int, settings: TrainingSettings, epoch: int, batch: int) -> torch.Tensor:
    """Return which units are kept in a batch, on any device: bool ``[rows, hidden]``."""
    random = torch.Generator().manual_seed(random_seed(settings.seed, epoch, batch))
    mask = torch.empty(rows, settings.hidden, dtype=torch.bool)
    return mask.bernoulli_(1 - settings.dropout, generator=random)


FrameBatch = tuple[int, torch.Tensor, torch.Tensor]
"""The rows of a batch over all processes, and features and labels of this process."""


class ClassifierLoop(TrainingLoop):
    """Trains the classifier on merged features. The lowest validation loss is the best."""

    def __init__(
        self,
        savepoint: Path,
        settings: TrainingSettings,
        train: PartFeatures,
        validation: PartFeatures,
        device: torch.device,
    ) -> None:
        """Load the savepoint."""
        self._settings, self._train, self._validation = settings, train, validation
        network = ClassifierNetwork(train.width, settings).to(device)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(trained, settings.learning_rate, settings.momentum)
        super().__init__(
            savepoint,
            network,
            optimizer,
            (settings.epochs, settings.patience),
            device,
            precision=settings.precision,
        )

    def batches(self, epoch: int) -> tuple[list[int], Iterator[FrameBatch]]:
        """Return the batches of an epoch, whose features are read window by window."""
        settings = self._settings
        windows = epoch_windows(self._train, settings.batch_size, settings.seed, epoch)
        return [len(batch) for window in windows for batch in window], self._read_batches(windows)

    def _read_batches(self, windows: list[list[RowNumbers]]) -> Iterator[FrameBatch]:
        for window in windows:
            own_batches = [batch[self._own_rows(len(batch))] for batch in window]
            features = self._train.take(np.concatenate(own_batches))
            parts = torch.split(features, [len(own_rows) for own_rows in own_batches])
            for batch, own_rows, part in zip(window, own_batches, parts, strict=True):
                labels = torch.from_numpy(self._train.labels[own_rows])
                yield len(batch), part, labels

    def _own_rows(self, rows: int) -> slice:
        """Return which of ``rows`` rows this process takes."""
        ends = (place * rows // self.processes for place in (self.process, self.process + 1))
        return slice(*ends)

    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs."""
        return self._settings.learning_rate * STEP_FACTOR ** (int(epochs) // STEP_EPOCHS)

    def step(self, number: int, content: FrameBatch) -> torch.Tensor:
        """Train on one batch, and return the share of this process in its loss."""
        rows, features, labels = content
        mask = dropout_mask(rows, self._settings, self.savepoint.epoch, number)
        with self.autocast():
            x = features.to(self.device)
            logits = self.model(x, mask[self._own_rows(rows)].to(self.device))
        loss = F.cross_entropy(logits, labels.to(self.device), reduction="sum") / rows
        self.descend(loss)
        return loss.detach()

    def validate(self) -> Mapping[str, float]:
        """Return cross entropy and AUROC on the validation part."""
        virus = self._validation.labels == 1
        own_rows = self._own_rows(len(virus))
        logits = torch.zeros(len(virus), 2, device=self.device)
        self.network.eval()
        unused_mask = torch.empty(0)
        with torch.no_grad():
            blocks = self._validation.blocks(own_rows.start, own_rows.stop)
            own = [self.network(x.to(self.device), unused_mask) for x in blocks]
            logits[own_rows] = torch.cat([logits[:0], *own])
            all_logits = sum_over_processes(logits).cpu().numpy().astype(np.float64)
        margins = all_logits[:, 1] - all_logits[:, 0]
        if not np.isfinite(margins).all():
            return {"validation_loss": float("nan"), "auroc": float("nan")}
        area = auroc(virus, margins)
        return {
            "validation_loss": log_loss(virus, margins),
            "auroc": float("nan") if area is None else area,
        }

    def merit(self, row: Mapping[str, float]) -> float:
        """Return the validation loss, negated."""
        return -row["validation_loss"]
