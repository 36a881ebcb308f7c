"""The network in training. The result is the same on one process and on many.

Its state has the names of the classifier file. Batch normalisation takes mean and variance over
the whole batch, whichever processes its rows are on (torch's own ``SyncBatchNorm`` does not exist
on the CPU). Dropout masks are drawn for the whole batch.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.training.classifier.settings import TrainingSettings
from virnucpro.training.group import TrainingGroup
from virnucpro.training.loop import random_seed

EPS, MOMENTUM = 1e-5, 0.1  # torch's defaults for BatchNorm1d


class GlobalBatchNorm(nn.Module):
    """Batch normalisation of ``[n, hidden]`` over the rows of all processes."""

    def __init__(self, hidden: int, group: TrainingGroup) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.running_mean: torch.Tensor
        self.running_var: torch.Tensor
        self.register_buffer("running_mean", torch.zeros(hidden))
        self.register_buffer("running_var", torch.ones(hidden))
        self._group = group

    def forward(self, x: torch.Tensor, rows: int) -> torch.Tensor:
        """Normalise ``x``; in training with the statistics of the ``rows`` of the whole batch."""
        if not self.training:
            statistics = self.running_mean, self.running_var
            return F.batch_norm(x, *statistics, self.weight, self.bias, eps=EPS)
        mean = self._group.total(x.sum(0)) / rows  # [hidden]
        centred = x - mean
        variance = self._group.total((centred * centred).sum(0)) / rows
        with torch.no_grad():
            unbiased = variance * rows / max(rows - 1, 1)
            self.running_mean.lerp_(mean, MOMENTUM)
            self.running_var.lerp_(unbiased, MOMENTUM)
        return centred * (variance + EPS).rsqrt() * self.weight + self.bias


class ClassifierNetwork(nn.Module):
    """Linear layer, batch normalisation, ReLU, dropout, linear layer."""

    def __init__(self, width: int, settings: TrainingSettings, group: TrainingGroup) -> None:
        """Draw the first weights as the original does (Xavier), from the seed of the settings."""
        super().__init__()
        random = torch.Generator().manual_seed(settings.seed)
        self.hidden_layer = _linear(width, settings.hidden, random)
        # Batch normalisation takes this bias out again. Its gradient consists of rounding errors,
        # which AdamW would turn into full steps.
        self.hidden_layer.bias.requires_grad_(False)
        self.bn1 = GlobalBatchNorm(settings.hidden, group)
        self.output_layer = _linear(settings.hidden, 2, random)
        self._keep_probability = 1 - settings.dropout

    def forward(self, x: torch.Tensor, mask: torch.Tensor, rows: int) -> torch.Tensor:
        """Return the logits ``[n, 2]`` of ``[n, width]``.

        ``mask`` ``[n, hidden]`` holds the units that dropout keeps; it is read in training only.
        ``rows`` is the number of rows of the whole batch.
        """
        x = self.hidden_layer(x).float()  # [n, hidden]
        x = F.relu(self.bn1(x, rows))
        if self.training:
            x = x * mask / self._keep_probability
        return torch.as_tensor(self.output_layer(x)).float()  # [n, 2]


def _linear(width: int, units: int, random: torch.Generator) -> nn.Linear:
    layer = nn.Linear(width, units, device="meta").to_empty(device="cpu")
    nn.init.xavier_uniform_(layer.weight, generator=random)
    nn.init.uniform_(layer.bias, -(width**-0.5), width**-0.5, generator=random)  # torch's default
    return layer


def dropout_mask(rows: int, settings: TrainingSettings, epoch: int, batch: int) -> torch.Tensor:
    """Return which units are kept in a batch: bool ``[rows, hidden]``.

    The mask is the same on every process and device.
    """
    random = torch.Generator().manual_seed(random_seed(settings.seed, epoch, batch))
    mask = torch.empty(rows, settings.hidden, dtype=torch.bool)
    return mask.bernoulli_(1 - settings.dropout, generator=random)


def weight_decay_groups(network: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return parameter groups for AdamW: weight decay is for matrices and kernels only.

    Decay would distort scales and biases. Parameters that are not trained are in no group.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]


def fold_standardisation(
    state: dict[str, torch.Tensor], mean: np.ndarray, deviation: np.ndarray
) -> dict[str, torch.Tensor]:
    """Return the state for inputs ``x`` of a network trained on ``(x - mean) / deviation``."""
    weight = state["hidden_layer.weight"].double().numpy() / deviation  # [hidden, width]
    bias = state["hidden_layer.bias"].double().numpy() - weight @ mean
    first_layer = {"hidden_layer.weight": weight, "hidden_layer.bias": bias}
    return state | {name: torch.from_numpy(value).float() for name, value in first_layer.items()}
