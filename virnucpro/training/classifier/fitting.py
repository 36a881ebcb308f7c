"""From the features of a data set to a finished classifier file with its card."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from virnucpro import __version__
from virnucpro.classifier import Classifier, to_bytes
from virnucpro.classifier.fit import family_of
from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Notice
from virnucpro.executors.signals import Interruption
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.models.catalogue import KNOWN
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.training.classifier.admission import (
    TrainingFiles,
    admit_training,
    identity_of,
    records_of,
)
from virnucpro.training.classifier.assessment import assess, logits_of
from virnucpro.training.classifier.board import Board
from virnucpro.training.classifier.card import Facts, card_text
from virnucpro.training.classifier.features import PartFeatures, moments, survey
from virnucpro.training.classifier.network import EPS, folded
from virnucpro.training.classifier.processes import train_on
from virnucpro.training.classifier.progress import EpochEnded, TrainingEvent
from virnucpro.training.classifier.recipe import Recipe
from virnucpro.training.classifier.savepoint import Savepoint, load
from virnucpro.training.classifier.trainer import Plan
from virnucpro.training.data.dataset import LABELS, PARTS, Dataset, Part

Show = Callable[[Notice | TrainingEvent], None]


@dataclass(frozen=True)
class FitRequest:
    """What the user asked for. ``tensorboard``: where scalars go, if anywhere."""

    dataset: Path
    output: Path
    recipe: Recipe
    devices: Sequence[Device]
    resume: bool = False
    force: bool = False
    tensorboard: Path | None = None


@dataclass(frozen=True)
class Fitted:
    """A finished classifier: where it is, and how good, by part.

    ``facts`` is None where it was finished before and only found.
    """

    output: Path
    card: Path
    facts: Facts | None = None


def fit(
    request: FitRequest, show: Show, interruption: Interruption, disk: Disk | None = None
) -> Fitted:
    """Train a classifier, or finish what an earlier start left.

    Raises:
        VirNucProError: see ``virnucpro.errors``; every finished epoch is kept.
    """
    disk = disk or Disk()
    dataset = Dataset(request.dataset.absolute())
    files = TrainingFiles(request.output.absolute())
    records = records_of(dataset)
    _check_request(request, dataset, files)
    identity = identity_of(request.recipe, dataset, records)
    with ExitStack() as stack:
        stack.enter_context(locked(files.lock, "this classifier"))
        disk.sweep(files.output.parent, {files.output.name, files.card.name})
        disk.sweep(files.savepoint.parent, {files.savepoint.name})
        point = admit_training(
            files, identity, disk, show, resume=request.resume, force=request.force
        )
        if point is None:
            return Fitted(files.output, files.card)
        board = stack.enter_context(Board(request.tensorboard, point.epoch + 1))
        show(Notice("info", "reading the features"))
        parts = {part: survey(dataset, part) for part in PARTS if dataset.shards(part)}
        plan = _plan(request.recipe, parts, files)
        _announce(parts, point, show)

        def report(event: TrainingEvent) -> None:
            if isinstance(event, EpochEnded):
                board.add(event)
            show(event)

        with interruption.held():  # leaving it raises Interrupted, after the savepoint is written
            finished = train_on(plan, request.devices, report, interruption)
        assert finished
        facts = _finish(request, dataset, records, identity, plan, parts, files, disk)
    return Fitted(files.output, files.card, facts)


def _check_request(request: FitRequest, dataset: Dataset, files: TrainingFiles) -> None:
    """What can be seen before any work.

    Raises:
        UsageError: the output's name, or a missing package.
    """
    if files.output.suffix != ".safetensors":
        raise UsageError(f"--output {request.output}: the name must end in .safetensors")
    if files.output.is_dir():
        raise UsageError(f"--output {request.output} is a folder: name a file")
    needed = ["sklearn"] + (["tensorboard"] if request.tensorboard else [])
    for package in needed:
        try:
            __import__(package)
        except ImportError as error:
            raise UsageError(
                f"training needs the package {package}: pip install 'virnucpro[train]'"
            ) from error


def _plan(recipe: Recipe, parts: Mapping[Part, PartFeatures], files: TrainingFiles) -> Plan:
    """What the processes need.

    Raises:
        InputError: train or validation lack frames of a class.
    """
    train, validation = parts["train"], parts["validation"]
    for part in ("train", "validation"):
        for kind, label in enumerate(LABELS):
            if not (parts[part].labels == kind).any():
                raise InputError(
                    f"part {part} has no frames of class {label}: prepare the data with more "
                    f"genomes of it"
                )
    width = train.width
    mean, deviation = np.zeros(width), np.ones(width)
    if recipe.standardise:
        mean, deviation = moments(train)
    return Plan(recipe, train, validation, mean, deviation, files.savepoint)


def _announce(parts: Mapping[Part, PartFeatures], point: Savepoint, show: Show) -> None:
    sizes = ", ".join(f"{part} {len(features):,}" for part, features in parts.items())
    show(Notice("info", f"frames: {sizes}; {parts['train'].width:,} numbers each"))
    lost = sum(features.left_out for features in parts.values())
    if lost:
        text = f"{lost:,} frames could not be embedded and are left out"
        show(Notice("warning", text))
    if point.epoch or point.batch:
        show(Notice("info", f"going on in epoch {point.epoch + 1}"))


def _finish(
    request: FitRequest,
    dataset: Dataset,
    records: Mapping[str, Mapping[str, Json]],
    identity: Mapping[str, Json],
    plan: Plan,
    parts: Mapping[Part, PartFeatures],
    files: TrainingFiles,
    disk: Disk,
) -> Facts:
    """Temperature, figures, and the files; the classifier's comes last."""
    point = load(files.savepoint)
    assert point is not None
    state: dict[str, torch.Tensor] = point.best
    if request.recipe.standardise:
        state = folded(state, plan.mean, plan.deviation)
    classifier = Classifier(state, EPS)
    logits = {part: logits_of(classifier, features) for part, features in parts.items()}
    temperature = fit_temperature(logits["validation"], parts["validation"].labels)
    models = records["train"]["models"]
    facts = Facts(
        dataset=dataset,
        digest=str(identity["data_set"]),
        recipe=request.recipe,
        command=_command(request),
        devices=tuple(device.name for device in request.devices),
        models={role: models[role] for role in ("nucleotide", "protein")},
        precision=str(records["train"]["precision"]),
        width=plan.train.width,
        temperature=temperature,
        best_epoch=point.best_epoch,
        epochs=point.epoch,
        left_out={part: features.left_out for part, features in parts.items()},
        figures={
            part: assess(logits[part], parts[part].labels, temperature)
            for part in parts
            if part != "train"
        },
    )
    content = to_bytes(
        state,
        encoders=[encoder_entry(models[role]) for role in ("nucleotide", "protein")],
        chunk_lengths=dataset.lengths(),
        extra={
            "made_by": f"virnucpro {__version__}",
            "command": facts.command,
            "seed": str(request.recipe.seed),
            "data_set": facts.digest,
            "training": json.dumps(identity, sort_keys=True),
        },
        temperature=temperature,
    )
    disk.save(files.card, card_text(facts, files.output.name).encode())
    disk.save(files.output, content)
    disk.remove(files.savepoint)
    return facts


def _command(request: FitRequest) -> str:
    """The command that trains the same, every setting spelled out.

    No path is in it: files made from the same data in the same way are the same to the byte.
    """
    recipe = request.recipe
    options = {
        "recipe": recipe.name,
        "hidden": recipe.hidden,
        "epochs": recipe.epochs,
        "batch-size": recipe.batch_size,
        "learning-rate": recipe.learning_rate,
        "patience": recipe.patience,
        "seed": recipe.seed,
        "precision": recipe.precision,
    }
    words = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"virnucpro train classifier DATASET --output FILE.safetensors {words}"


def encoder_entry(model: Mapping[str, Json]) -> str:
    """How a classifier file names an encoder: a released model by its name, else its family."""
    short = str(model["name"]).rstrip("/").split("/")[-1].removesuffix(".pt")
    released = {known.name.split("/")[-1] for known in KNOWN}
    family = str(model["family"])
    return short if short in released and family_of(short) == family else family
