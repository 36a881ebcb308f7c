"""The training of a network of the RCL predictor, as each process runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from virnucpro.metrics.classification import auroc, confusion_counts
from virnucpro.rcl.features import ProteinFeatures
from virnucpro.rcl.networks import NETWORKS, RCL
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.rcl.settings import PLATEAU_FACTOR, RclTrainingSettings
from virnucpro.training.group import TrainingGroup
from virnucpro.training.loop import EpochPlan, TrainingLoop
from virnucpro.training.progress import ReportEvent, StopRequested
from virnucpro.training.savepoint import Savepoint

POOL_BATCHES = 16  # batches whose proteins are sorted by length together
LEAST_FRAGMENT = 40  # residues: longer than an RCL with its neighbours
SHARE_AVERAGED = 0.1  # of all steps: the most that the running mean of the weights reaches back
IGNORED = -1  # label of what is not a residue
_AVERAGE = "average"  # in ``extra`` of the savepoint: the state of the AveragedModel
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RclTrainingPlan:
    """What is trained, on which proteins, and where the savepoint is. Picklable."""

    settings: RclTrainingSettings
    train: Sequence[AnnotatedProtein]
    validation: Sequence[AnnotatedProtein]
    features: ProteinFeatures
    savepoint: Path

    def loop(
        self, group: TrainingGroup, report: ReportEvent, stop_requested: StopRequested
    ) -> RclLoop:
        """Return the loop of one process."""
        return RclLoop(self, group, report, stop_requested)


@dataclass(frozen=True)
class RclBatch:
    """The proteins of a batch that this process takes.

    Attributes:
        x: encoded residues, float32 ``[B, L, width]``, zeros behind the end.
        labels: int64 ``[B, L]``: 0, 1, or ``IGNORED`` behind the end.
        residues: of the proteins of all processes.
    """

    x: torch.Tensor
    labels: torch.Tensor
    residues: int


class RclLoop(TrainingLoop[RclBatch]):
    """Trains a network on encoded proteins. The highest F1 of the validation part is the best.

    Where the settings say so, a running mean of the weights is what is validated and kept.
    """

    def __init__(
        self,
        plan: RclTrainingPlan,
        group: TrainingGroup,
        report: ReportEvent,
        stop_requested: StopRequested,
    ) -> None:
        """Draw the first weights from the seed, and load the savepoint."""
        settings = plan.settings
        self._plan, self._settings = plan, settings
        torch.manual_seed(settings.seed)
        network = NETWORKS[settings.model](plan.features.width, **settings.network)
        network = network.to(group.device)
        optimizers = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        optimizer = optimizers[settings.optimizer](
            network.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        limits = settings.epochs, settings.patience
        super().__init__(plan.savepoint, network, optimizer, limits, group, report, stop_requested)
        self._features = plan.features
        self._weights = torch.tensor(settings.loss_weights, device=group.device)
        self._scaler = torch.amp.GradScaler(group.device.type, enabled=settings.precision == "fp16")
        if self.savepoint.extra:
            self._scaler.load_state_dict(dict(self.savepoint.extra))
        self._average = self._running_mean() if settings.averaged else None

    def _running_mean(self) -> AveragedModel:
        """Return the running mean of the weights, as the savepoint has it."""
        batches = len(epoch_batches(self._lengths(), self._settings, 0, self.group.world))
        steps = min(self._settings.averaged, SHARE_AVERAGED * self._settings.epochs * batches)
        update = get_ema_multi_avg_fn(max(0.0, 1 - 1 / steps))  # type: ignore[no-untyped-call]
        # With the statistics of batch norm, which belong to the weights.
        average = AveragedModel(self.network, multi_avg_fn=update, use_buffers=True)
        if _AVERAGE in self.savepoint.extra:
            average.load_state_dict(self.savepoint.extra[_AVERAGE])
        return average

    def result(self) -> nn.Module:
        """Return the network with the averaged weights, if there is one."""
        return self.network if self._average is None else self._average.module

    def extra_state(self) -> dict[str, Any]:
        """Return the state of the gradient scaler, and of the running mean."""
        extra = dict(self._scaler.state_dict())
        if self._average is not None:
            state = self._average.state_dict()
            extra[_AVERAGE] = {name: value.cpu() for name, value in state.items()}
        return extra

    def _lengths(self) -> Rows:
        """Return the residues of each protein of the training part, int64 ``[n]``."""
        return np.array([len(protein.sequence) for protein in self._plan.train])

    def epoch_plan(self, epoch: int, finished_batches: int) -> EpochPlan[RclBatch]:
        """Return the batches of an epoch, in an order that follows from the seed."""
        batches = epoch_batches(self._lengths(), self._settings, epoch, self.group.world)
        sizes = [len(batch) for batch in batches]

        def contents() -> Iterator[RclBatch]:
            for number in range(finished_batches, len(batches)):
                yield self._train_batch(batches[number], epoch, number)

        return EpochPlan(sizes, "proteins", len(batches), contents())

    def _train_batch(self, rows: Rows, epoch: int, number: int) -> RclBatch:
        random = np.random.default_rng([self._settings.seed, epoch, number])
        windows = [self._window(self._plan.train[row], random) for row in rows]
        return self._batch(self._plan.train, rows, windows)

    def _window(self, protein: AnnotatedProtein, random: np.random.Generator) -> slice:
        """Return the residues of a protein that are trained on: all, or a random fragment."""
        length = len(protein.sequence)
        if random.random() >= self._settings.fragments or length <= LEAST_FRAGMENT:
            return slice(0, length)
        size = int(random.integers(max(length // 2, LEAST_FRAGMENT), length + 1))
        start = int(random.integers(0, length - size + 1))
        return slice(start, start + size)

    def _batch(
        self, proteins: Sequence[AnnotatedProtein], rows: Rows, windows: Sequence[slice]
    ) -> RclBatch:
        settings, group = self._settings, self.group
        # Every world-th protein: those of one process are as long as those of the others.
        own = range(group.rank, len(rows), group.world)
        lengths = [windows[place].stop - windows[place].start for place in range(len(rows))]
        length = settings.max_length
        if settings.masked:
            length = max((lengths[place] for place in own), default=1)
        x = np.zeros((len(own), length, self._plan.features.width), np.float32)
        labels = np.full((len(own), length), IGNORED, np.int64)
        for number, place in enumerate(own):
            protein, window = proteins[rows[place]], windows[place]
            x[number, : lengths[place]] = self._features.encode(protein.sequence)[window]
            labels[number, : lengths[place]] = protein.labels()[window]
        return RclBatch(torch.from_numpy(x), torch.from_numpy(labels), sum(lengths))

    def step(self, number: int, seen: int, content: RclBatch) -> torch.Tensor:
        """Train on one batch, and return the share of this process in its loss."""
        settings, group, epoch = self._settings, self.group, self.savepoint.epoch
        rate = self._rate(epoch + seen / len(self._plan.train))
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        entropy = np.random.SeedSequence((settings.seed, epoch, number, group.rank))
        torch.manual_seed(int(entropy.generate_state(1, np.uint64)[0] >> 1))  # of the dropout
        self.optimizer.zero_grad()
        labels = content.labels.to(group.device)
        logits = self._logits(self.model, content.x, labels)
        loss = self._loss_sum(logits, labels) / content.residues
        self._scaler.scale(loss * group.world).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(self.optimizer)
        self._scaler.update()
        if self._average is not None:
            self._average.update_parameters(self.network)
        return loss.detach().double()

    def _logits(self, network: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the logits float32 ``[B, L, 2]``."""
        settings, device = self._settings, self.group.device
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(settings.precision)
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            mask = labels != IGNORED if settings.masked else None
            logits: torch.Tensor = network(x.to(device), mask)
        return logits.float()

    def _loss_sum(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of all residues, as RCL-identifier defines it.

        It adds 1e-8 to the probability, and divides by the number of residues, not by the sum of
        their weights.
        """
        real = labels != IGNORED
        classes = labels[real]
        probability = logits[real].softmax(-1).gather(1, classes[:, None])[:, 0]
        return -(self._weights[classes] * torch.log(probability + 1e-8)).sum()

    def _rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs."""
        settings = self._settings
        if settings.scheduler == "cosine":
            return settings.cosine_rate(epochs)
        if settings.scheduler == "none":
            return settings.learning_rate
        return plateau_rate(settings, [row["f1"] for row in self.savepoint.history])

    def validate(self) -> Mapping[str, float]:
        """Return loss and metrics of the residues of the validation part, called by argmax."""
        plan, settings, group = self._plan, self._settings, self.group
        proteins = plan.validation
        lengths = np.array([len(protein.sequence) for protein in proteins])
        order = np.argsort(lengths, kind="stable") if settings.masked else np.arange(len(lengths))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        margins = torch.zeros(int(starts[-1]), dtype=torch.float64, device=group.device)
        losses = torch.zeros(2, dtype=torch.float64, device=group.device)
        network = self.result().eval()
        with torch.no_grad():
            batches = np.split(order, range(settings.batch_size, len(order), settings.batch_size))
            for rows in batches:
                windows = [slice(0, int(lengths[row])) for row in rows]
                batch = self._batch(proteins, rows, windows)
                if not len(batch.x):
                    continue
                labels = batch.labels.to(group.device)
                logits = self._logits(network, batch.x, labels)
                losses[0] += self._loss_sum(logits, labels).double() / batch.residues
                for row, row_logits in zip(rows[group.rank :: group.world], logits, strict=True):
                    values = row_logits[: lengths[row], RCL] - row_logits[: lengths[row], 1 - RCL]
                    margins[int(starts[row]) : int(starts[row + 1])] = values.double()
            losses[1] = len(batches) / group.world
            loss, count = group.total(losses).tolist()
            scores = group.total(margins).cpu().numpy()
        truth = np.concatenate([protein.labels() for protein in proteins]) == RCL
        return {"validation_loss": loss / count, **residue_metrics(truth, scores)}

    def rank(self, metrics: Mapping[str, float]) -> float:
        """Return the F1 of the residues; not finite where the loss is not."""
        return metrics["f1"] + 0 * metrics["validation_loss"]


def last_network(point: Savepoint) -> dict[str, torch.Tensor]:
    """Return the state of the network after the last epoch, averaged if the training does so."""
    if _AVERAGE not in point.extra:
        return point.network
    state = point.extra[_AVERAGE].items()
    return {n.removeprefix("module."): value for n, value in state if n != "n_averaged"}


def residue_metrics(
    truth: npt.NDArray[np.bool_], margins: npt.NDArray[np.float64]
) -> dict[str, float]:
    """Return the metrics of residues; what is not defined is 0, as with scikit-learn.

    ``margins`` are float64 ``[n]``: the logit of RCL less the other one.
    """
    if not np.isfinite(margins).all():
        return dict.fromkeys(
            ("accuracy", "precision", "recall", "f1", "f1_macro", "mcc", "auc"), float("nan")
        )
    counts = confusion_counts(truth, margins > 0)
    others = confusion_counts(~truth, margins <= 0)
    return {
        "accuracy": counts.accuracy or 0.0,
        "precision": counts.precision or 0.0,
        "recall": counts.recall or 0.0,
        "f1": counts.f1 or 0.0,
        "f1_macro": ((counts.f1 or 0.0) + (others.f1 or 0.0)) / 2,
        "mcc": counts.mcc or 0.0,
        "auc": auroc(truth, margins) or 0.0,
    }


def plateau_rate(settings: RclTrainingSettings, history: Sequence[float]) -> float:
    """Return the learning rate of ``ReduceLROnPlateau`` after epochs with these F1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], settings.learning_rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, "max", PLATEAU_FACTOR, settings.patience // 2
    )
    for value in history:
        schedule.step(value)
    return float(optimizer.param_groups[0]["lr"])


def epoch_batches(
    lengths: npt.NDArray[np.int64], settings: RclTrainingSettings, epoch: int, world: int
) -> list[Rows]:
    """Return the proteins of each batch of an epoch, over all processes.

    With ``settings.masked``, a batch has proteins of similar length: those of ``POOL_BATCHES``
    batches are sorted, and the batches are put into a random order again. A small last batch joins
    the one before it. ``world`` matters only where a last batch has fewer proteins than processes.
    """
    random = np.random.default_rng([settings.seed, epoch])
    size, order = settings.batch_size, random.permutation(len(lengths))
    stops = list(range(size, len(order), size))
    least = size // 2 if settings.masked else world
    if stops and len(order) - stops[-1] < least:
        stops.pop()
    if not settings.masked:
        return np.split(order, stops)
    batches: list[Rows] = []
    for start in range(0, len(stops) + 1, POOL_BATCHES):
        bounds = [0, *stops, len(order)][start : start + POOL_BATCHES + 1]
        pool = order[bounds[0] : bounds[-1]]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += np.split(pool, [bound - bounds[0] for bound in bounds[1:-1]])
    return [batches[number] for number in random.permutation(len(batches))]
