"""The lite encoder and its classifier in training: settings, network, trainer and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from virnucpro.encoders.lite_network import LiteNetwork, LiteShape
from virnucpro.errors import ModelError
from virnucpro.precision import emulated_on_cpu
from virnucpro.training.classifier.network import weight_decay_groups
from virnucpro.training.lite.balance import GcShares, GroupLosses, gc_of
from virnucpro.training.lite.genomes import Bases, GenomeSet, WindowSampler, mutated

BATCH_BASES = 64_000
MEASURED_BASES = 64_000  # per batch without gradients
WARM_UP = 500  # steps, or a tenth of a training of fewer than 5,000
AVERAGED = 20  # the result is a running mean of the weights over the last twentieth of the steps
# The windows of a batch have one length, but in use a model has running statistics of all lengths.
# From this share of the steps on, the batch norms use these in training, too.
SETTLED = 0.7
REWEIGHED = 100  # steps from one change of the shares of groups to the next
SHORTENED = 0.3  # how often the windows of a length are cut to between 70 and 100 % of it


BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d


@dataclass(frozen=True)
class LiteTrainingSettings:
    """The settings of a lite training.

    Worse on held-out taxa after 1,000 steps were twice the mutation rate, and codons as the mean of
    their synonyms in a third of the windows. Nothing else was tried.

    Attributes:
        steps: batches.
        seed: the seed of the weights, the batches and the dropout.
        shape: the sizes of the network.
        hidden: units of the classifier.
        dropout: the fraction of hidden units that are left out; of the embeddings, half of it.
        learning_rate: of AdamW, with a warm-up and a cosine.
        weight_decay: of AdamW.
        label_smoothing: some genes of a phage are bacterial, and the reverse.
        mutation_rate: the mean fraction of bases that are replaced in half of the windows.
    """

    steps: int = 18_000
    seed: int = 0
    shape: LiteShape = field(default_factory=LiteShape)
    hidden: int = 128
    dropout: float = 0.2
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    label_smoothing: float = 0.02
    mutation_rate: float = 0.05

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: a short rise, then a cosine."""
        rise = min(1.0, (step + 1) / min(WARM_UP, self.steps // 10 + 1))
        cosine = 0.5 + 0.5 * math.cos(math.pi * step / self.steps)
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

    def classifier_state(self) -> dict[str, torch.Tensor]:
        """Return the state of the classifier alone."""
        layers = ("hidden_layer.", "bn1.", "output_layer.")
        return {name: v for name, v in self.state_dict().items() if name.startswith(layers)}


class LiteTrainer:
    """Trains a model on windows of ``genomes``: those of a batch have one of ``lengths``.

    It multiplies in bf16 where the processor has instructions for it, else in fp32. The same
    arguments give the same weights on one machine with the same number of threads, also if the
    training was stopped and continued with :meth:`state`.
    """

    def __init__(
        self,
        settings: LiteTrainingSettings,
        genomes: GenomeSet,
        lengths: tuple[int, ...],
        start: LiteNetwork | None = None,
    ) -> None:
        """Draw the first weights; those of the encoder are taken from ``start`` if it is given.

        Raises:
            InputError: a label has no records of one of the lengths.
            ModelError: ``start`` has other sizes.
        """
        torch.manual_seed(settings.seed)
        self.step = 0
        self.losses: list[float] = []
        self._settings = settings
        self._genomes = genomes
        self._samplers = [(length, WindowSampler(genomes, length)) for length in lengths]
        self._random = np.random.default_rng(settings.seed)
        self._group_losses = GroupLosses(len(genomes.group_names))
        self._factors = np.ones(len(genomes.group_names))
        self._gc_shares = GcShares()
        self._model = LiteModel(settings)
        if start is not None:
            if start.shape != settings.shape:
                raise ModelError(
                    f"the encoder to start from has other sizes ({start.shape}) than the one to "
                    f"be trained ({settings.shape})"
                )
            self._model.encoder.load_state_dict(start.state_dict())
        decay = max(0.0, 1 - AVERAGED / settings.steps)
        running_mean = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self._average = AveragedModel(self._model, multi_avg_fn=running_mean, use_buffers=True)
        groups = weight_decay_groups(self._model, settings.weight_decay)
        self._optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate)
        self._bf16 = not emulated_on_cpu("bf16")

    def advance(self) -> None:
        """Train on one batch."""
        settings, model = self._settings, self._model
        self._settle_norms()
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = settings.rate(self.step)
        windows, records = self._draw()
        labels = torch.from_numpy(self._genomes.virus[records].astype(np.int64))
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            logits = model(torch.from_numpy(windows).long())
        smoothing = settings.label_smoothing
        losses = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
        weights = self._gc_shares.weights(gc_of(windows), labels.numpy())
        loss = (torch.from_numpy(weights) * losses).sum() / float(weights.sum())
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        self._optimizer.step()
        self._average.update_parameters(model)
        self.losses.append(float(loss.detach()))
        self.step += 1
        self._group_losses.note(self._genomes.groups[records], losses.detach().numpy())
        if self.step % REWEIGHED == 0:
            self._reweigh(self._group_losses.factors())

    def finish(self) -> LiteModel:
        """Return the model with the averaged weights, ready to be used."""
        self._model.load_state_dict(self._average.module.state_dict())
        return self._model.eval()

    def state(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "step": self.step,
            "model": self._model.state_dict(),
            "average": self._average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "torch": torch.get_rng_state(),
            "numpy": self._random.bit_generator.state,
            "group_losses": self._group_losses.state(),
            "factors": self._factors.tolist(),
            "gc_shares": self._gc_shares.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state` was taken."""
        self.step = int(state["step"])
        self._model.load_state_dict(state["model"])
        self._average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch"])
        self._random.bit_generator.state = state["numpy"]
        self._group_losses.load_state(state["group_losses"])
        self._gc_shares.load_state(state["gc_shares"])
        self._reweigh(np.array(state["factors"]))

    def _reweigh(self, factors: npt.NDArray[np.float64]) -> None:
        self._factors = factors
        for _, sampler in self._samplers:
            sampler.reweigh(factors)

    def _settle_norms(self) -> None:
        """Let the batch norms use the statistics of their batch, or later those of all lengths."""
        settled = int(SETTLED * self._settings.steps)
        for own, mean in zip(self._model.modules(), self._average.module.modules(), strict=True):
            if not isinstance(own, BatchNorm):
                continue
            assert isinstance(mean, BatchNorm)
            own.train(self.step < settled)
            if self.step == settled:
                own.load_state_dict(
                    own.state_dict()
                    | {name: mean.state_dict()[name] for name in ("running_mean", "running_var")}
                )

    def _draw(self) -> tuple[Bases, npt.NDArray[np.int64]]:
        """Return the windows of the next batch, and the records that they are from."""
        random = self._random
        length, sampler = self._samplers[int(random.integers(len(self._samplers)))]
        if random.random() < SHORTENED:
            length = int(length * random.uniform(0.7, 1.0))
        count = max(2, BATCH_BASES // length // 2 * 2)
        records, offsets = sampler.draw(count, length, random)
        windows = self._genomes.windows(records, offsets, length)
        return mutated(windows, self._settings.mutation_rate, random), records


def window_margins(
    model: LiteModel,
    genomes: GenomeSet,
    records: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    length: int,
) -> npt.NDArray[np.float32]:
    """Return the logits of virus less those of others, as in ``predict``: float32 ``[n]``."""
    margins = np.empty(len(records), np.float32)
    size = max(1, MEASURED_BASES // length)
    with torch.inference_mode():
        for start in range(0, len(records), size):
            rows = slice(start, start + size)
            windows = genomes.windows(records[rows], offsets[rows], length)
            logits = model(torch.from_numpy(windows).long())
            margins[rows] = (logits[:, 1] - logits[:, 0]).numpy()
    return margins
