"""The network in training, equal on one process and on many.

Its state has the names of the classifier file. Batch normalisation takes mean and variance over
the whole batch, whichever processes its rows are on (torch's own ``SyncBatchNorm`` does not exist
on the CPU), and dropout masks are drawn for the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.training.classifier.recipe import Recipe

EPS, MOMENTUM = 1e-5, 0.1  # torch's defaults for BatchNorm1d
Total = Callable[[torch.Tensor], torch.Tensor]
"""Sum of a tensor over all processes; passes gradients."""


class GlobalBatchNorm(nn.Module):
    """Batch normalisation of ``[n, hidden]`` over the rows of all processes."""

    def __init__(self, hidden: int, total: Total) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.running_mean: torch.Tensor
        self.running_var: torch.Tensor
        self.register_buffer("running_mean", torch.zeros(hidden))
        self.register_buffer("running_var", torch.ones(hidden))
        self._total = total

    def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
        """Normalise; in training with the statistics of the ``count`` rows of the whole batch."""
        if not self.training:
            statistics = self.running_mean, self.running_var
            return F.batch_norm(x, *statistics, self.weight, self.bias, eps=EPS)
        mean = self._total(x.sum(0)) / count  # [hidden]
        centred = x - mean
        variance = self._total((centred * centred).sum(0)) / count
        with torch.no_grad():
            unbiased = variance * count / max(count - 1, 1)
            self.running_mean.lerp_(mean, MOMENTUM)
            self.running_var.lerp_(unbiased, MOMENTUM)
        return centred * (variance + EPS).rsqrt() * self.weight + self.bias


class Network(nn.Module):
    """Linear, batch normalisation, ReLU, dropout, linear."""

    def __init__(self, width: int, recipe: Recipe, total: Total) -> None:
        """First weights as the original draws them (Xavier), from the recipe's seed."""
        super().__init__()
        random = torch.Generator().manual_seed(recipe.seed)
        self.hidden_layer = _linear(width, recipe.hidden, random)
        # Batch normalisation takes this bias out again. Its gradient is nothing but rounding,
        # which AdamW would blow up to full steps.
        self.hidden_layer.bias.requires_grad_(False)
        self.bn1 = GlobalBatchNorm(recipe.hidden, total)
        self.output_layer = _linear(recipe.hidden, 2, random)
        self._keep = 1 - recipe.dropout

    def forward(self, x: torch.Tensor, kept: torch.Tensor, count: int) -> torch.Tensor:
        """``[n, width]`` to ``[n, 2]``.

        ``kept`` is the dropout mask ``[n, hidden]``, read in training only; ``count`` are the
        rows of the whole batch.
        """
        x = self.hidden_layer(x).float()  # [n, hidden]
        x = F.relu(self.bn1(x, count))
        if self.training:
            x = x * kept / self._keep
        return torch.as_tensor(self.output_layer(x)).float()  # [n, 2]


def _linear(width: int, units: int, random: torch.Generator) -> nn.Linear:
    layer = nn.Linear(width, units, device="meta").to_empty(device="cpu")
    nn.init.xavier_uniform_(layer.weight, generator=random)
    nn.init.uniform_(layer.bias, -(width**-0.5), width**-0.5, generator=random)  # torch's default
    return layer


def dropout_mask(rows: int, recipe: Recipe, epoch: int, batch: int) -> torch.Tensor:
    """bool ``[rows, hidden]``: the units kept in a batch, the same on every process and device."""
    entropy = np.random.SeedSequence((recipe.seed, epoch, batch))
    random = torch.Generator().manual_seed(int(entropy.generate_state(1, np.uint64)[0] >> 1))
    mask = torch.empty(rows, recipe.hidden, dtype=torch.bool)
    return mask.bernoulli_(1 - recipe.dropout, generator=random)


def folded(
    state: dict[str, torch.Tensor], mean: np.ndarray, deviation: np.ndarray
) -> dict[str, torch.Tensor]:
    """``state`` of a network trained on ``(x - mean) / deviation``, for ``x`` itself."""
    weight = state["hidden_layer.weight"].double().numpy() / deviation  # [hidden, width]
    bias = state["hidden_layer.bias"].double().numpy() - weight @ mean
    first = {"hidden_layer.weight": weight, "hidden_layer.bias": bias}
    return state | {name: torch.from_numpy(value).float() for name, value in first.items()}
