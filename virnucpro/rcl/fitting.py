"""From tables of proteins to the folder of a finished training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Notice, StepProgress
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import byte_size
from virnucpro.rcl.curves import draw_curves, history_document
from virnucpro.rcl.features import ProteinFeatures
from virnucpro.rcl.model_files import write_rcl_model
from virnucpro.rcl.models import MASKED, PADDED, RclModel
from virnucpro.rcl.networks import NETWORKS
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins
from virnucpro.rcl.run_folder import RclRunFiles, run_folder
from virnucpro.rcl.settings import RclTrainingSettings
from virnucpro.rcl.splits import cluster_split, original_split, split_of_table, split_text
from virnucpro.rcl.training import RclTrainingPlan
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.training.data.dataset import PARTS, Part
from virnucpro.training.packages import require_packages
from virnucpro.training.progress import TrainingEvent
from virnucpro.training.run import run_training
from virnucpro.training.savepoint import Savepoint, load_savepoint
from virnucpro.version import __version__


class TrainingDisplay(StepProgress, Protocol):
    """Shows notices, steps and epochs."""

    def show(self, event: Notice | TrainingEvent) -> None:
        """Show an event."""
        ...


@dataclass(frozen=True)
class RclTrainingRequest:
    """What the user asked for.

    Attributes:
        serpins: table of the proteins with an RCL.
        others: table of the proteins without one; None for none.
        runs: the folder of all trainings.
        settings: of the training.
        features: what turns a protein into numbers.
        devices: one device per process.
        split: ``random``, ``clusters``, or the file of a table with the columns id and part.
        tensorboard: whether TensorBoard scalars are written.
        resume: continue an earlier training.
        force: start a new training where an unfinished one could be continued.
    """

    serpins: Path
    others: Path | None
    runs: Path
    settings: RclTrainingSettings
    features: ProteinFeatures
    devices: Sequence[Device]
    split: str
    tensorboard: bool = True
    resume: bool = False
    force: bool = False


@dataclass(frozen=True)
class RclTrainingResult:
    """A finished training: its folder, its epochs, the best of them, and its metrics."""

    folder: Path
    epochs: int
    best_epoch: int
    metrics: Mapping[str, float]


def fit_rcl(
    request: RclTrainingRequest,
    display: TrainingDisplay,
    interruption: Interruption,
    disk: Disk | None = None,
) -> RclTrainingResult:
    """Train a network, or finish the training that an earlier start of the same command began.

    Raises:
        VirNucProError: see ``virnucpro.errors``; every finished epoch is kept.
    """
    disk = disk or Disk()
    clusters = ("Bio", "scipy") if request.split == "clusters" else ()
    tensorboard = ("tensorboard",) if request.tensorboard else ()
    require_packages(["sklearn", "matplotlib", *clusters, *tensorboard])
    settings = request.settings
    proteins, warnings = read_proteins(request.serpins, request.others, settings.max_length)
    for warning in warnings:
        display.show(Notice("warning", warning))
    identity = _identity(request)
    with ExitStack() as stack:
        folder = run_folder(
            request.runs,
            identity,
            display.show,
            disk,
            resume=request.resume,
            force=request.force,
        )
        files = stack.enter_context(folder)
        disk.sweep(files.root)
        disk.sweep(files.savepoint.parent)
        if not files.config.exists():
            disk.save(files.config, _json(_config(request, identity)))
        point = load_savepoint(files.savepoint)
        assert point is not None
        parts = _parts(request, proteins, files, display, disk)
        plan = _plan(request, proteins, parts, files)
        for line in _announcement(request, plan, parts, point, files):
            display.show(Notice("info", line))
        scalars = files.tensorboard if request.tensorboard else None
        point = run_training(plan, request.devices, display.show, interruption, disk, scalars)
        return _finish(request, identity, plan, point, files, disk)


def _identity(request: RclTrainingRequest) -> dict[str, Json]:
    """Return everything that decides the weights."""
    split = request.split
    if split not in ("random", "clusters"):
        split = sha256_of(Path(split)) if Path(split).is_file() else ""
        if not split:
            raise UsageError(f"--split {request.split}: expected random, clusters or a table")
    tables = {"serpins": request.serpins, "others": request.others}
    digests = {name: sha256_of(path) for name, path in tables.items() if path is not None}
    facts = {name.replace("_", " "): value for name, value in request.settings.facts().items()}
    return {**digests, "split": split, "features": request.features.name, **facts}


def _parts(
    request: RclTrainingRequest,
    proteins: Sequence[AnnotatedProtein],
    files: RclRunFiles,
    display: TrainingDisplay,
    disk: Disk,
) -> list[Part]:
    """Return the part of each protein, which the folder of the training keeps.

    Raises:
        InputError: train or validation has too few proteins.
    """
    settings, clusters = request.settings, None
    parts: list[Part]
    if files.split.exists():
        parts = split_of_table(proteins, files.split)
    else:
        if request.split == "random":
            parts = original_split(len(proteins), settings.train_split, settings.seed)
        elif request.split == "clusters":
            parts, clusters = cluster_split(proteins, settings.train_split, settings.seed, display)
        else:
            parts = split_of_table(proteins, Path(request.split))
        disk.save(files.split, split_text(proteins, parts, clusters))
    for part in ("train", "validation"):
        count = sum(
            protein.has_rcl for protein, own in zip(proteins, parts, strict=True) if own == part
        )
        least = 2 * len(request.devices)
        if count < least:
            raise InputError(
                f"part {part} has {count} proteins with an RCL, and needs {least}: use larger "
                f"tables, or another --split"
            )
    return parts


def _plan(
    request: RclTrainingRequest,
    proteins: Sequence[AnnotatedProtein],
    parts: Sequence[Part],
    files: RclRunFiles,
) -> RclTrainingPlan:
    """Return what the training processes need.

    Raises:
        InputError: a protein has no features.
    """
    train, validation = (
        [protein for protein, own in zip(proteins, parts, strict=True) if own == part]
        for part in ("train", "validation")
    )
    features = request.features
    if missing := features.missing([protein.sequence for protein in (*train, *validation)]):
        raise InputError(
            f"{len(missing):,} proteins have no features, that of {len(missing[0])} residues "
            f"beginning with {missing[0][:20]} among them: repeat virnucpro rcl embed with these "
            f"tables"
        )
    return RclTrainingPlan(request.settings, train, validation, features, files.savepoint)


def _announcement(
    request: RclTrainingRequest,
    plan: RclTrainingPlan,
    parts: Sequence[Part],
    point: Savepoint,
    files: RclRunFiles,
) -> Iterator[str]:
    """Yield what is said before the first epoch: devices, batch, network, and proteins."""
    settings, devices = request.settings, request.devices
    yield f"the training is written to {files.root}"
    if devices[0].kind == "cuda":
        yield f"training on {len(devices)} GPU{'s' if len(devices) > 1 else ''}:"
        for device in devices:
            yield f"  GPU {device.index}: {device.name}, {byte_size(device.memory)}"
    else:
        yield f"training on the CPU, {len(devices)} process{'es' if len(devices) > 1 else ''}"
    share = settings.batch_size / len(devices)
    yield (
        f"effective batch size {settings.batch_size}: {share:g} proteins for each of "
        f"{len(devices)} processes, in {settings.precision}"
        if len(devices) > 1
        else f"batch size {settings.batch_size}, in {settings.precision}"
    )
    with torch.device("meta"):
        network = NETWORKS[settings.model](plan.features.width, **settings.network)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    yield f"{settings.model} on {settings.encoding}: {parameters:,} parameters"
    yield "proteins: " + ", ".join(f"{part} {parts.count(part):,}" for part in PARTS)
    if point.begun:
        yield f"going on in epoch {point.epoch + 1}"


def _finish(
    request: RclTrainingRequest,
    identity: Mapping[str, Json],
    plan: RclTrainingPlan,
    point: Savepoint,
    files: RclRunFiles,
    disk: Disk,
) -> RclTrainingResult:
    """Write models, history and curves. The savepoint goes last: it proves what is unfinished."""
    metrics = {
        name: value
        for name, value in point.history[point.best_epoch - 1].items()
        if name not in ("epoch", "epochs", "seconds")
    }
    settings = request.settings
    for path, state, epoch in (
        (files.best, point.best, point.best_epoch),
        (files.final, point.last_network(), point.epoch),
    ):
        network = NETWORKS[settings.model](plan.features.width, **settings.network)
        network.load_state_dict(state)
        training = {
            "epoch": epoch,
            "val_f1": point.history[epoch - 1]["f1"],
            "proteins": len(plan.train),
            "identity": dict(identity),
            "made_by": f"virnucpro {__version__}",
        }
        padding = MASKED if settings.masked else PADDED
        model = RclModel(
            network.eval(),
            settings.model,
            settings.network,
            settings.encoding,
            padding,
            settings.threshold,
            training,
        )
        write_rcl_model(path, model, disk)
    disk.save(files.history, _json(history_document(point.history)))
    for name, picture in draw_curves(point.history, point.best_epoch).items():
        disk.save(files.root / name, picture)
    disk.remove(files.savepoint)
    return RclTrainingResult(files.root, point.epoch, point.best_epoch, metrics)


def _config(request: RclTrainingRequest, identity: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings with the keys of RCL-identifier, and what else decides the weights."""
    settings = request.settings
    return {
        "encoding": settings.encoding,
        "model": settings.model,
        "data": {
            "max_length": settings.max_length,
            "train_split": settings.train_split,
            "random_seed": settings.seed,
            "train_serpin": str(request.serpins),
            "train_non_serpin": str(request.others) if request.others else None,
        },
        "models": {kind: dict(values) for kind, values in settings.networks.items()},
        "training": {
            "batch_size": settings.batch_size,
            "epochs": settings.epochs,
            "learning_rate": settings.learning_rate,
            "weight_decay": settings.weight_decay,
            "patience": settings.patience,
            "loss_weights": list(settings.loss_weights),
            "optimizer": settings.optimizer,
            "scheduler": settings.scheduler,
        },
        "evaluation": {"threshold": settings.threshold},
        "hardware": {
            "devices": [device.name for device in request.devices],
            "mixed_precision": settings.precision != "fp32",
        },
        "virnucpro": {"version": __version__, "identity": dict(identity)},
    }


def _json(document: Mapping[str, Json]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
