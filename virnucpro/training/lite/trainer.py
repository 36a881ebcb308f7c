"""The lite encoder and its classifier in training: settings, network, loop and scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.encoders.lite_network import LiteNetwork, LiteShape
from virnucpro.errors import InputError
from virnucpro.events import EpochProgress
from virnucpro.precision import cpu_has_bf16
from virnucpro.training.lite.genomes import (
    Bases,
    GenomeSet,
    WindowSampler,
    even_gc_shares,
    gc_weights,
    mutated,
    note_losses,
)
from virnucpro.training.loop import TrainingLoop

BATCH_BASES = 64_000
SAVED_STEPS = 200  # from one savepoint to the next: minutes of work
WARM_UP = 500  # steps, or a tenth of a training of fewer than 5,000
AVERAGED = 20  # the result is a running mean of the weights over the last twentieth of the steps
# From an earlier model on, the rate stays, and the mean is over half of the steps. Wide means are
# better on data of another kind than those of training (SWAD: Cha et al. 2021, NeurIPS 34).
AVERAGED_AGAIN = 2
# The windows of a batch have one length, but in use a model has running statistics of all lengths.
# From this share of the steps on, the batch norms use these in training, too.
SETTLED = 0.7
REWEIGHED = 100  # steps from one change of the shares of groups to the next
OFTENER = 3.0  # a factor for groups that matter more than their bases say
SHORTENED = 0.3  # how often the windows of a length are cut to between 70 and 100 % of it

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d


@dataclass(frozen=True)
class LiteTrainingSettings:
    """The settings of a lite training.

    ``start_from`` is the encoder of an earlier training, to go on from with the classifier beside
    it and a learning rate that does not fall. ``mask`` is a table of regions that are not trained
    on (:func:`virnucpro.training.lite.genomes.read_mask`).
    """

    steps: int = 18_000  # batches
    seed: int = 0
    shape: LiteShape = field(default_factory=LiteShape)
    hidden: int = 128  # units of the classifier
    dropout: float = 0.2  # of hidden units; of the embeddings, half of it
    learning_rate: float = 2e-3  # of AdamW, with a warm-up and a cosine
    weight_decay: float = 0.01
    label_smoothing: float = 0.02  # some genes of a phage are bacterial, and the reverse
    mutation_rate: float = 0.05  # mean fraction of bases that are replaced in half of the windows
    more_of: tuple[str, ...] = ()  # groups that are drawn ``OFTENER`` times as often
    start_from: Path | None = None
    mask: Path | None = None

    def rate(self, step: int, *, steady: bool) -> float:
        """Return the learning rate of a step: a short rise, then a cosine unless it is steady."""
        rise = min(1.0, (step + 1) / min(WARM_UP, self.steps // 10 + 1))
        cosine = 1.0 if steady else 0.5 + 0.5 * math.cos(math.pi * step / self.steps)
        return self.learning_rate * (rise * cosine + 1e-3)


class LiteModel(nn.Module):
    """The encoder, and the classifier on top. Its names are those of the classifier file."""

    def __init__(self, settings: LiteTrainingSettings) -> None:
        super().__init__()
        self.encoder = LiteNetwork(settings.shape)
        self.drop = nn.Dropout(settings.dropout / 2)
        self.hidden_layer = nn.Linear(settings.shape.dim, settings.hidden)
        self.bn1 = nn.BatchNorm1d(settings.hidden)
        self.drop_hidden = nn.Dropout(settings.dropout)
        self.output_layer = nn.Linear(settings.hidden, 2)

    def forward(self, bases: torch.Tensor) -> torch.Tensor:
        """Return the logits of others and virus: int64 ``[B, L]`` to float32 ``[B, 2]``."""
        hidden = self.hidden_layer(self.drop(self.encoder(bases))).float()
        hidden = self.drop_hidden(F.relu(self.bn1(hidden)))
        return torch.as_tensor(self.output_layer(hidden)).float()


Windows = tuple[Bases, npt.NDArray[np.int64]]
"""Windows, uint8 ``[n, L]``, and the records that they are from."""


class LiteLoop(TrainingLoop):
    """Trains a model on windows of genomes: the windows of a batch have one length.

    ``SAVED_STEPS`` steps are what an epoch is to other trainings; they are not validated: the model
    is measured when it is finished. It multiplies
    in bf16 where the processor has instructions for it, else in fp32. The same arguments give the
    same weights on one machine with the same number of threads, also if it was interrupted.
    """

    def __init__(
        self,
        savepoint: Path,
        settings: LiteTrainingSettings,
        genomes: GenomeSet,
        lengths: Sequence[int],
        start: LiteModel | None,
        device: torch.device,
    ) -> None:
        """Draw the first weights, or take those of ``start``, and load the savepoint."""
        self._settings, self._genomes = settings, genomes
        self._samplers = [(length, WindowSampler(genomes, length)) for length in lengths]
        torch.manual_seed(settings.seed)
        self._steady, model = start is not None, LiteModel(settings)
        if start is not None:
            model.load_state_dict(start.state_dict())
        decayed: list[nn.Parameter] = []  # matrices and kernels; it would distort scales
        others: list[nn.Parameter] = []
        for parameter in model.parameters():
            (decayed if parameter.ndim > 1 else others).append(parameter)
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        epochs = max(1, math.ceil(settings.steps / SAVED_STEPS))
        super().__init__(
            savepoint,
            model,
            torch.optim.AdamW(groups, lr=settings.learning_rate),
            (epochs, epochs),
            device,
            averaged=settings.steps / (AVERAGED_AGAIN if self._steady else AVERAGED),
            precision="bf16" if cpu_has_bf16() else "fp32",
        )
        self._step = self.savepoint.epoch * SAVED_STEPS
        self._random = np.random.default_rng(settings.seed)
        self._group_losses = np.ones(len(genomes.group_names))
        self._gc_shares = even_gc_shares()
        if unknown := set(settings.more_of) - set(genomes.group_names):
            raise InputError(f"the training part has no group {min(unknown)!r} to draw more of")
        self._reweigh(np.ones(len(genomes.group_names)))
        if extra := self.savepoint.extra:
            torch.set_rng_state(extra["torch"])
            self._random.bit_generator.state = extra["numpy"]
            self._group_losses = np.array(extra["group_losses"])
            self._gc_shares = np.array(extra["gc_shares"])
            self._reweigh(np.array(extra["factors"]))

    def extra_state(self) -> dict[str, Any]:
        """Return the state of the random generators and of what is counted."""
        return {
            "torch": torch.get_rng_state(),
            "numpy": self._random.bit_generator.state,
            "group_losses": self._group_losses.tolist(),
            "factors": self._factors.tolist(),
            "gc_shares": self._gc_shares.tolist(),
        }

    def batches(self, epoch: int) -> tuple[list[int], Iterator[Windows]]:
        """Return steps, each with its batch."""
        steps = min(SAVED_STEPS, self._settings.steps - epoch * SAVED_STEPS)
        return [1] * steps, (self._draw() for _ in range(steps))

    def rate(self, epochs: float) -> float:
        """Return the learning rate of the next step."""
        return self._settings.rate(self._step, steady=self._steady)

    def merit(self, row: Mapping[str, float]) -> float:
        """Return what makes the last step the best."""
        return row["epoch"]

    def progress(self, seen: int, total: int) -> EpochProgress:
        """Return how many of all steps are done."""
        return EpochProgress(1, 1, self._step, self._settings.steps)

    def step(self, number: int, content: Windows) -> torch.Tensor:
        """Train on one batch, and return its loss."""
        windows, records = content
        self._settle_norms(self._step)
        labels = torch.from_numpy(self._genomes.virus[records].astype(np.int64))
        with self.autocast():
            logits = self.model(torch.from_numpy(windows).long())
        smoothing = self._settings.label_smoothing
        losses = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
        weights = gc_weights(self._gc_shares, windows, labels.numpy())
        loss = (torch.from_numpy(weights) * losses).sum() / float(weights.sum())
        self.descend(loss, largest_gradient=1.0)
        groups = self._genomes.groups[records]
        note_losses(self._group_losses, groups, losses.detach().numpy())
        self._step += 1
        if self._step % REWEIGHED == 0:
            self._reweigh(self._group_losses / self._group_losses.mean())
        return loss.detach()

    def _reweigh(self, factors: npt.NDArray[np.float64]) -> None:
        self._factors = factors
        more = np.isin(self._genomes.group_names, self._settings.more_of)
        for _, sampler in self._samplers:
            sampler.reweigh(np.where(more, OFTENER, 1.0) * factors)

    def _settle_norms(self, step: int) -> None:
        """Let the batch norms use the statistics of their batch, or later those of all lengths."""
        settled = 0 if self._steady else int(SETTLED * self._settings.steps)
        assert self.average is not None
        for own, mean in zip(self.network.modules(), self.average.module.modules(), strict=True):
            if not isinstance(own, BatchNorm):
                continue
            own.train(step < settled)
            if step == settled:
                means = {k: v for k, v in mean.state_dict().items() if k.startswith("running")}
                own.load_state_dict(own.state_dict() | means)

    def _draw(self) -> Windows:
        """Return the next batch."""
        random = self._random
        length, sampler = self._samplers[int(random.integers(len(self._samplers)))]
        if random.random() < SHORTENED:
            length = int(length * random.uniform(0.7, 1.0))
        records, offsets = sampler.draw(max(2, BATCH_BASES // length // 2 * 2), length, random)
        windows = self._genomes.windows(records, offsets, length)
        return mutated(windows, self._settings.mutation_rate, random), records


def window_rows(
    network: nn.Module,
    genomes: GenomeSet,
    records: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    length: int,
) -> npt.NDArray[np.float32]:
    """Return what an encoder or a model makes of windows, as in ``predict``: float32 ``[n, D]``."""
    rows = []
    size = max(1, BATCH_BASES // length)
    with torch.inference_mode():
        for start in range(0, len(records), size):
            part = slice(start, start + size)
            windows = genomes.windows(records[part], offsets[part], length)
            rows.append(network(torch.from_numpy(windows).long()).numpy())
    return np.concatenate(rows)
