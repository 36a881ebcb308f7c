"""From the features of a data set to a finished classifier file with its model card."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.classifier.fit import entry_of
from virnucpro.classifier.scoring import Classifier
from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Notice
from virnucpro.executors.signals import Interruption
from virnucpro.layout import MOLECULES
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.training.classifier.admission import (
    TrainingFiles,
    admit_training,
    embedding_records,
    training_identity,
)
from virnucpro.training.classifier.card import TrainingReport, card_text, frame_metrics
from virnucpro.training.classifier.features import (
    FeatureReader,
    PartFeatures,
    find_features,
    moments,
)
from virnucpro.training.classifier.network import EPS, fold_standardisation
from virnucpro.training.classifier.settings import TrainingSettings
from virnucpro.training.classifier.trainer import TrainingPlan
from virnucpro.training.data.dataset import LABELS, PARTS, Dataset, Part
from virnucpro.training.processes import train_on
from virnucpro.training.progress import EpochEnded, TrainingEvent
from virnucpro.training.savepoint import Savepoint, load_savepoint
from virnucpro.version import __version__

Show = Callable[[Notice | TrainingEvent], None]


@dataclass(frozen=True)
class ClassifierRequest:
    """What the user asked for.

    Attributes:
        dataset: the folder of the data set.
        output: the classifier file.
        settings: the settings of the training.
        devices: one device per process.
        resume: continue an earlier training.
        force: move earlier files aside, and start over.
        tensorboard: the folder for TensorBoard scalars; None writes none.
    """

    dataset: Path
    output: Path
    settings: TrainingSettings
    devices: Sequence[Device]
    resume: bool = False
    force: bool = False
    tensorboard: Path | None = None


def fit_classifier(
    request: ClassifierRequest, show: Show, interruption: Interruption, disk: Disk | None = None
) -> TrainingReport | None:
    """Train a classifier, or finish a training that an earlier start began.

    Returns None if an earlier start had finished it.

    Raises:
        VirNucProError: see ``virnucpro.errors``; every finished epoch is kept.
    """
    disk = disk or Disk()
    dataset = Dataset(request.dataset.absolute())
    files = TrainingFiles(request.output.absolute())
    records = embedding_records(dataset)
    _check_request(request, files)
    identity = training_identity(request.settings, dataset, records)
    with ExitStack() as stack:
        state = [files.savepoint, files.previous]
        stack.enter_context(locked(files.lock, "this classifier", state=state))
        disk.sweep(files.output.parent, {files.output.name, files.card.name})
        disk.sweep(files.savepoint.parent, {files.savepoint.name})
        savepoint = admit_training(
            files, identity, disk, show, resume=request.resume, force=request.force
        )
        if savepoint is None:
            return None
        scalars = None
        if request.tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter

            # What an earlier start wrote from the next epoch on is dropped.
            scalars = stack.enter_context(
                SummaryWriter(str(request.tensorboard), purge_step=savepoint.epoch + 1)
            )
        show(Notice("info", "reading the features"))
        parts = {part: find_features(dataset, part) for part in PARTS if dataset.shards(part)}
        plan = _make_plan(request.settings, parts, files)
        _announce(parts, savepoint, show)

        def report_event(event: TrainingEvent) -> None:
            if scalars is not None and isinstance(event, EpochEnded):
                for name, value in (
                    ("loss/train", event.loss),
                    ("loss/validation", event.metrics["validation_loss"]),
                    ("auroc/validation", event.metrics["auroc"]),
                    ("learning_rate", event.rate),
                ):
                    scalars.add_scalar(name, value, event.epoch)
                scalars.flush()
            show(event)

        with interruption.held():  # leaving it raises Interrupted, after the savepoint is written
            finished = train_on(plan, request.devices, report_event, interruption)
        assert finished
        return _finish(request, dataset, records, identity, plan, parts, files, disk)


def _check_request(request: ClassifierRequest, files: TrainingFiles) -> None:
    """Check what can be checked before any work.

    Raises:
        UsageError: the name of the output is not usable, or a package is missing.
    """
    if files.output.suffix != ".safetensors":
        raise UsageError(f"--output {request.output}: the name must end in .safetensors")
    if files.output.is_dir():
        raise UsageError(f"--output {request.output} is a folder: name a file")
    for package in ["sklearn"] + (["tensorboard"] if request.tensorboard else []):
        try:
            __import__(package)
        except ImportError as error:
            raise UsageError(
                f"training needs the package {package}: pip install 'virnucpro[train]'"
            ) from error


def _make_plan(
    settings: TrainingSettings, parts: Mapping[Part, PartFeatures], files: TrainingFiles
) -> TrainingPlan:
    """Return what the training processes need.

    Raises:
        InputError: train or validation has no frames of a class.
    """
    for part in ("train", "validation"):
        for class_number, label in enumerate(LABELS):
            if not (parts[part].labels == class_number).any():
                raise InputError(
                    f"part {part} has no frames of class {label}: prepare the data with more "
                    f"genomes of it"
                )
    train, validation = parts["train"], parts["validation"]
    mean, deviation = np.zeros(train.width), np.ones(train.width)
    if settings.standardise:
        mean, deviation = moments(train)
    return TrainingPlan(settings, train, validation, mean, deviation, files.savepoint)


def _announce(parts: Mapping[Part, PartFeatures], savepoint: Savepoint, show: Show) -> None:
    sizes = ", ".join(f"{part} {len(features):,}" for part, features in parts.items())
    show(Notice("info", f"frames: {sizes}; {parts['train'].width:,} numbers each"))
    if left_out := sum(features.left_out for features in parts.values()):
        show(Notice("warning", f"{left_out:,} frames could not be embedded and are left out"))
    if savepoint.epoch or savepoint.batch:
        show(Notice("info", f"going on in epoch {savepoint.epoch + 1}"))


def _finish(
    request: ClassifierRequest,
    dataset: Dataset,
    records: Mapping[str, Mapping[str, Json]],
    identity: Mapping[str, Json],
    plan: TrainingPlan,
    parts: Mapping[Part, PartFeatures],
    files: TrainingFiles,
    disk: Disk,
) -> TrainingReport:
    """Fit the temperature, measure, and write the card and then the classifier."""
    savepoint = load_savepoint(files.savepoint)
    assert savepoint is not None
    state: dict[str, torch.Tensor] = savepoint.best
    if request.settings.standardise:
        state = fold_standardisation(state, plan.mean, plan.deviation)
    classifier = Classifier(state, EPS)
    logits = {part: _logits_of(classifier, features) for part, features in parts.items()}
    temperature = fit_temperature(logits["validation"], parts["validation"].labels)
    models: dict[str, Json] = {
        molecule: records["train"]["models"][molecule] for molecule in MOLECULES
    }
    report = TrainingReport(
        dataset=dataset,
        digest=str(identity["data set"]),
        settings=request.settings,
        command=_command(request.settings),
        devices=tuple(device.name for device in request.devices),
        models=models,
        precision=str(records["train"]["precision"]),
        width=plan.train.width,
        temperature=temperature,
        best_epoch=savepoint.best_epoch,
        epochs=savepoint.epoch,
        left_out={part: features.left_out for part, features in parts.items()},
        metrics={
            part: frame_metrics(logits[part], parts[part].labels, temperature)
            for part in parts
            if part != "train"
        },
    )
    content = classifier_to_bytes(
        state,
        encoders=[entry_of(model["name"], model["family"]) for model in models.values()],
        chunk_lengths=dataset.lengths(),
        extra={
            "made_by": f"virnucpro {__version__}",
            "command": report.command,
            "seed": str(request.settings.seed),
            "data_set": report.digest,
            "training": json.dumps(identity, sort_keys=True),
        },
        temperature=temperature,
    )
    disk.save(files.card, card_text(report, files.output.name).encode())
    disk.save(files.output, content)
    disk.remove(files.savepoint)
    return report


def _logits_of(classifier: Classifier, features: PartFeatures) -> npt.NDArray[np.float64]:
    """Return the logits of every row as predict computes them, before the temperature.

    They are float64 ``[n, 2]``.
    """
    reader = FeatureReader(features)
    blocks = [classifier.logits(block).numpy() for block in reader.blocks(0, len(features))]
    return np.concatenate([np.zeros((0, 2)), *blocks]).astype(np.float64)


def _command(settings: TrainingSettings) -> str:
    """Return the command that trains the same classifier, with every setting written out.

    It contains no path: files made from the same data in the same way are the same to the byte.
    """
    names = ("recipe", "hidden", "epochs", "batch_size", "learning_rate", "patience", "seed")
    words = " ".join(
        f"--{name.replace('_', '-')} {getattr(settings, name)}" for name in (*names, "precision")
    )
    return f"virnucpro train classifier DATASET --output FILE.safetensors {words}"
