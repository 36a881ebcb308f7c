"""The training of a network of the RCL predictor, from tables to the folder ``run_NNN``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from msgspec import to_builtins
from torch import nn

from virnucpro.configuration import nested
from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, LockedError, ResumeRefusedError, UsageError
from virnucpro.events import Notice, Show
from virnucpro.layout import CHECKPOINTS, lock_file
from virnucpro.metrics import auroc, call_metrics
from virnucpro.rcl.features import ProteinFeatures, StoredFeatures
from virnucpro.rcl.models import NETWORKS, RCL, write_rcl_model
from virnucpro.rcl.plots import keep_scalars
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins
from virnucpro.rcl.settings import RclTrainingSettings
from virnucpro.rcl.splits import divided, split_of_table, split_text
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.training.data.dataset import PARTS
from virnucpro.training.loop import (
    Savepoint,
    TrainingLoop,
    load_savepoint,
    random_seed,
    save_savepoint,
    sum_over_processes,
)
from virnucpro.training.processes import train_on
from virnucpro.version import __version__

RUN = re.compile(r"run_(\d{3,})")
PLATEAU_FACTOR = 0.5  # of RCL-identifier: ReduceLROnPlateau(mode="max", factor=0.5)
POOL_BATCHES = 16  # batches whose proteins are sorted by length together
FIRST_RATE = 0.02  # share of the highest rate with which a cosine schedule begins
LEAST_FRAGMENT = 40  # residues: longer than an RCL with its neighbours
SHARE_AVERAGED = 0.1  # of all steps: the most that the running mean of the weights reaches back
IGNORED = -1  # label of what is not a residue
# Residues that batches are padded to a multiple of, by the kind of device. For each new shape cuDNN
# plans every convolution, which takes longer than to compute the padding.
PADDED_TO = {"cuda": 64}
METRICS = ("accuracy", "precision", "recall", "f1", "f1_macro", "mcc", "auc")
Rows = npt.NDArray[np.int64]


RclBatch = tuple[torch.Tensor, torch.Tensor, int]
"""The proteins of a batch that this process takes, their labels, and the residues of all processes.

Proteins are float32 ``[B, L, width]`` with zeros behind the end, where labels are ``IGNORED``."""


class RclLoop(TrainingLoop):
    """Trains a network on encoded proteins. The highest F1 of the validation part is the best.

    Where the settings say so, a running mean of the weights is what is validated and kept.
    """

    def __init__(
        self,
        savepoint: Path,
        settings: RclTrainingSettings,
        train: Sequence[AnnotatedProtein],
        validation: Sequence[AnnotatedProtein],
        features: ProteinFeatures,
        device: torch.device,
    ) -> None:
        """Draw the first weights from the seed, and load the savepoint."""
        self._train, self._validation, self._features = train, validation, features
        self._settings, self._seed = settings, settings.seed
        self._lengths = np.array([len(protein.sequence) for protein in train])
        torch.manual_seed(self._seed)
        network = NETWORKS[settings.model](features.width, settings.network)
        optimizer = torch.optim.Adam(
            network.parameters(), settings.lr, weight_decay=settings.weight_decay
        )
        batches = len(epoch_batches(self._lengths, settings.batch_size, self._seed, 0))
        averaged = min(settings.averaged, SHARE_AVERAGED * settings.epochs * batches)
        super().__init__(
            savepoint,
            network,
            optimizer,
            (settings.epochs, settings.patience),
            device,
            averaged=averaged,
            precision=settings.precision,
        )
        self._weights = torch.tensor(settings.loss_weights, device=device)

    def batches(self, epoch: int) -> tuple[list[int], Iterator[RclBatch]]:
        """Return the batches of an epoch, in an order that follows from the seed."""
        batches = epoch_batches(self._lengths, self._settings.batch_size, self._seed, epoch)

        def contents() -> Iterator[RclBatch]:
            for number, rows in enumerate(batches):
                random = np.random.default_rng([self._seed, epoch, number])
                windows = [self._window(int(self._lengths[row]), random) for row in rows]
                yield self._batch(self._train, rows, windows)

        return [len(batch) for batch in batches], contents()

    def _window(self, length: int, random: np.random.Generator) -> slice:
        """Return the residues of a protein that are trained on: all, or a random fragment."""
        if random.random() >= self._settings.fragments or length <= LEAST_FRAGMENT:
            return slice(0, length)
        size = int(random.integers(max(length // 2, LEAST_FRAGMENT), length + 1))
        start = int(random.integers(0, length - size + 1))
        return slice(start, start + size)

    def _batch(
        self, proteins: Sequence[AnnotatedProtein], rows: Rows, windows: Sequence[slice]
    ) -> RclBatch:
        # Every world-th protein, so that all processes have proteins of about the same length.
        own = range(self.process, len(rows), self.processes)
        lengths = [window.stop - window.start for window in windows]
        length = max((lengths[place] for place in own), default=1)
        length += -length % PADDED_TO.get(self.device.type, 1)
        x = np.zeros((len(own), length, self._features.width), np.float32)
        labels = np.full((len(own), length), IGNORED, np.int64)
        for number, place in enumerate(own):
            protein, window = proteins[rows[place]], windows[place]
            x[number, : lengths[place]] = self._features.encode(protein.sequence)[window]
            labels[number, : lengths[place]] = protein.labels()[window]
        return torch.from_numpy(x), torch.from_numpy(labels), sum(lengths)

    def step(self, number: int, content: RclBatch) -> torch.Tensor:
        """Train on one batch, and return the share of this process in its loss."""
        seed = random_seed(self._seed, self.savepoint.epoch, number, self.process)
        torch.manual_seed(seed)
        x, labels, residues = content
        labels = labels.to(self.device)
        logits = self._logits(self.model, x, labels)
        loss = self._loss_sum(logits, labels) / residues
        self.descend(loss)
        return loss.detach().double()

    def _logits(self, network: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the logits float32 ``[B, L, 2]``."""
        with self.autocast():
            logits: torch.Tensor = network(x.to(self.device), labels != IGNORED)
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

    def rate(self, epochs: float) -> float:
        """Return the learning rate after so many epochs.

        With ``cosine`` it rises in epoch 1, then falls to 0 by half a cosine.
        """
        settings = self._settings
        if settings.scheduler == "cosine":
            rise = min(FIRST_RATE + (1 - FIRST_RATE) * epochs, 1.0)
            fall = max(epochs - 1, 0.0) / max(settings.epochs - 1, 1)
            return settings.lr * rise * (1 + math.cos(math.pi * min(fall, 1.0))) / 2
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], settings.lr)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        schedule = plateau(optimizer, "max", PLATEAU_FACTOR, settings.patience // 2)
        for row in self.savepoint.history:
            schedule.step(row["f1"])
        return float(optimizer.param_groups[0]["lr"])

    def validate(self) -> Mapping[str, float]:
        """Return loss and metrics of the residues of the validation part, called by argmax."""
        proteins, size = self._validation, self._settings.batch_size
        lengths = np.array([len(protein.sequence) for protein in proteins])
        order = np.argsort(lengths, kind="stable")
        starts = np.concatenate([[0], np.cumsum(lengths)])
        margins = torch.zeros(int(starts[-1]), dtype=torch.float64, device=self.device)
        losses = torch.zeros(2, dtype=torch.float64, device=self.device)
        network = self.result().eval()
        with torch.no_grad():
            batches = np.split(order, range(size, len(order), size))
            for rows in batches:
                windows = [slice(0, int(lengths[row])) for row in rows]
                x, labels, residues = self._batch(proteins, rows, windows)
                if not len(x):
                    continue
                labels = labels.to(self.device)
                logits = self._logits(network, x, labels)
                losses[0] += self._loss_sum(logits, labels).double() / residues
                own = rows[self.process :: self.processes]
                for row, row_logits in zip(own, logits, strict=True):
                    values = row_logits[: lengths[row], RCL] - row_logits[: lengths[row], 1 - RCL]
                    margins[int(starts[row]) : int(starts[row + 1])] = values.double()
            losses[1] = len(batches) / self.processes
            loss, count = sum_over_processes(losses).tolist()
            scores = sum_over_processes(margins).cpu().numpy()
        truth = np.concatenate([protein.labels() for protein in proteins]) == RCL
        return {"validation_loss": loss / count, **residue_metrics(truth, scores)}

    def merit(self, row: Mapping[str, float]) -> float:
        """Return the F1 of the residues; not finite where the loss is not."""
        return row["f1"] + 0 * row["validation_loss"]


def residue_metrics(
    truth: npt.NDArray[np.bool_], margins: npt.NDArray[np.float64]
) -> dict[str, float]:
    """Return the metrics of residues; what is not defined is 0, as with scikit-learn.

    ``margins`` are float64 ``[n]``: the logit of RCL less the other one.
    """
    if not np.isfinite(margins).all():
        return dict.fromkeys(METRICS, float("nan"))
    found = call_metrics(truth, margins > 0)
    names = ("accuracy", "precision", "recall", "f1", "mcc")
    values = {name: found[name] or 0.0 for name in names}
    macro = (values["f1"] + (call_metrics(~truth, margins <= 0)["f1"] or 0.0)) / 2
    return {**values, "f1_macro": macro, "auc": auroc(truth, margins) or 0.0}


def epoch_batches(lengths: npt.NDArray[np.int64], size: int, seed: int, epoch: int) -> list[Rows]:
    """Return the proteins of each batch of an epoch, over all processes: ``size`` for each.

    A batch has proteins of similar length: those of ``POOL_BATCHES`` batches are sorted, and the
    batches are put into a random order again. A small last batch joins the one before it.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    stops = list(range(size, len(order), size))
    if stops and len(order) - stops[-1] < size // 2:
        stops.pop()
    batches: list[Rows] = []
    for start in range(0, len(stops) + 1, POOL_BATCHES):
        bounds = [0, *stops, len(order)][start : start + POOL_BATCHES + 1]
        pool = order[bounds[0] : bounds[-1]]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += np.split(pool, [bound - bounds[0] for bound in bounds[1:-1]])
    return [batches[number] for number in random.permutation(len(batches))]


def fit_rcl(
    settings: RclTrainingSettings,
    features: ProteinFeatures,
    devices: Sequence[Device],
    show: Show,
    *,
    force: bool = False,
) -> tuple[Path, Savepoint]:
    """Train a network, or finish the training that an earlier start of the same command began.

    There is a process per device. Returned are the folder and the state after the last epoch.
    """
    disk = Disk()
    if settings.batch_size < 2 * len(devices):
        raise UsageError("--batch-size must be two proteins or more for each process or GPU")
    serpins, others = settings.tables
    proteins, warnings = read_proteins(serpins, others, settings.max_length)
    for warning in warnings:
        show(Notice("warning", warning))
    identity = _identity(settings, features)
    with ExitStack() as stack:
        folder, point = run_folder(settings, identity, stack, show, disk, force=force)
        savepoint, kept = savepoint_file(folder), folder / "split.tsv"
        disk.sweep(folder)
        disk.sweep(savepoint.parent)
        if not (folder / "config.json").exists():
            about = {"version": __version__, "identity": identity}
            document = {**nested(to_builtins(settings)), "virnucpro": about}
            document["hardware"]["devices"] = [device.name for device in devices]
            del document["output"]  # where the folder is, which may move
            disk.save(folder / "config.json", _json(document))
        if not kept.exists():
            parts, clusters = divided(proteins, settings, show)
            disk.save(kept, split_text(proteins, parts, clusters))
        parts = split_of_table(proteins, kept)
        used = {}
        for part in ("train", "validation"):
            used[part] = [p for p, own in zip(proteins, parts, strict=True) if own == part]
            with_rcl, least = sum(protein.has_rcl for protein in used[part]), 2 * len(devices)
            if with_rcl < least:
                raise InputError(f"part {part} has {with_rcl} proteins with an RCL, not {least}")
            if isinstance(features, StoredFeatures):
                features.check([protein.sequence for protein in used[part]])
        place = ", ".join(device.name for device in devices)
        show(Notice("info", f"training on {place} in {settings.precision}, written to {folder}"))
        sizes = ", ".join(f"{part} {parts.count(part):,}" for part in PARTS)
        show(Notice("info", f"proteins: {sizes}"))
        if settings.tensorboard:
            show = keep_scalars(folder / "tensorboard", point.history, show)
        loop = partial(RclLoop, savepoint, settings, used["train"], used["validation"], features)
        train_on(loop, devices, show)
        point = load_savepoint(savepoint)
        _write_results(folder, settings, len(used["train"]), point, disk)
        disk.remove(savepoint)  # which proves what is unfinished
    return folder, point


def savepoint_file(folder: Path) -> Path:
    """Return the file of a training from which it goes on; there is none after its end."""
    return folder / CHECKPOINTS / "training.pt"


def run_folder(
    settings: RclTrainingSettings,
    identity: Mapping[str, Json],
    stack: ExitStack,
    show: Show,
    disk: Disk,
    *,
    force: bool,
) -> tuple[Path, Savepoint]:
    """Lock the folder of a training on ``stack``; return it with the savepoint to go on from.

    It is the latest unfinished one of the same identity, or, also with ``force``, a new one.
    """
    root = Path(settings.output_dir).absolute()
    with locked(lock_file(root, "runs"), "the trainings", wait=True):
        matches = filter(None, (RUN.fullmatch(path.name) for path in root.iterdir()))
        folders = {int(match[1]): root / match[0] for match in matches}
        begun = {n for n, folder in folders.items() if savepoint_file(folder).exists()}
        for number in sorted(begun, reverse=True) if not force else ():
            folder = folders[number]
            with ExitStack() as own:
                try:
                    own.enter_context(locked(lock_file(folder, "training"), "this training"))
                    point = load_savepoint(savepoint_file(folder))
                except LockedError:
                    continue  # it is being trained at this moment
                except (InputError, ResumeRefusedError) as error:
                    show(Notice("warning", f"{error}; that training is left alone"))
                    continue
                if point.identity == identity:
                    stack.push(own.pop_all())
                    return folder, point
        # A start that was killed before it wrote its savepoint left nothing to keep.
        kept = begun | {n for n, folder in folders.items() if any(folder.glob("[!.]*"))}
        folder = root / f"run_{max(kept, default=0) + 1:03d}"
        stack.enter_context(locked(lock_file(folder, "training"), "this training"))
        point = Savepoint(dict(identity))
        save_savepoint(savepoint_file(folder), point, disk)
    return folder, point


def _identity(settings: RclTrainingSettings, features: ProteinFeatures) -> dict[str, Json]:
    """Return everything that decides the weights."""
    split = settings.split
    if split not in ("random", "clusters"):
        if not Path(split).is_file():
            raise UsageError(f"--split {split}: expected random, clusters or a table")
        split = hashed(Path(split)).sha256
    names = ("precision", "threshold", "seed", "max_length", "train_split")
    return {
        "tables": [hashed(path).sha256 for path in settings.tables if path],
        "split": split,
        "features": features.name,
        "encoding": settings.encoding,
        "model": settings.model,
        "network": to_builtins(settings.network),
        **{name: getattr(settings, name) for name in names},
        **nested(to_builtins(settings))["training"],
    }


def _write_results(
    folder: Path, settings: RclTrainingSettings, proteins: int, point: Savepoint, disk: Disk
) -> None:
    """Write models and history, under the names of RCL-identifier; ``proteins`` trained them."""
    history = point.history
    for name, weights, epoch in (
        ("best_model.safetensors", point.best, point.best_epoch),
        ("final_model.safetensors", point.last_network(), point.epoch),
    ):
        training = {
            "epoch": epoch,
            "val_f1": history[epoch - 1]["f1"],
            "proteins": proteins,
            "identity": dict(point.identity),
            "made_by": f"virnucpro {__version__}",
        }
        write_rcl_model(
            folder / name,
            weights,
            disk,
            encoding=settings.encoding,
            threshold=settings.threshold,
            training=training,
        )
    document = {
        "train_losses": [row["loss"] for row in history],
        "val_losses": [row["validation_loss"] for row in history],
        "val_metrics": {name: [row[name] for row in history] for name in METRICS},
        "learning_rates": [row["rate"] for row in history],
    }
    disk.save(folder / "training_history.json", _json(document))


def _json(document: Mapping[str, Json]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
