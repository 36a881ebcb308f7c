"""From the features of a data set to a finished classifier file with its model card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.classifier.files import Classifier, classifier_to_bytes, inspect_classifier
from virnucpro.classifier.fit import entry_of
from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, ModelError, UsageError
from virnucpro.events import Notice
from virnucpro.executors.signals import Interruption
from virnucpro.layout import MOLECULES, checkpoint_folder, lock_file
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json
from virnucpro.store.lock import locked
from virnucpro.training.classifier.card import TrainingReport, card_text, frame_metrics
from virnucpro.training.classifier.features import (
    FeatureReader,
    PartFeatures,
    find_features,
    moments,
)
from virnucpro.training.classifier.trainer import (
    EPS,
    TrainingPlan,
    TrainingSettings,
    fold_standardisation,
)
from virnucpro.training.data.dataset import PARTS, Dataset, Part, read_embedding_record
from virnucpro.training.progress import Show
from virnucpro.training.run import TrainingFiles, begin_training, run_training
from virnucpro.training.savepoint import Savepoint
from virnucpro.version import __version__

Records = Mapping[str, Mapping[str, Json]]
"""What ``train embed`` recorded, by part."""


def fit_classifier(
    folder: Path,
    output: Path,
    settings: TrainingSettings,
    devices: Sequence[Device],
    show: Show,
    interruption: Interruption,
    *,
    resume: bool = False,
    force: bool = False,
    tensorboard: Path | None = None,
) -> TrainingReport | None:
    """Train a classifier on the data set in ``folder``, or finish what an earlier start began.

    There is one process per device. ``tensorboard`` is the folder for TensorBoard scalars; None
    writes none. Returns None if an earlier start had finished it.
    """
    if output.suffix != ".safetensors" or output.is_dir():
        raise UsageError(f"--output {output}: name a file whose name ends in .safetensors")
    disk, dataset, output = Disk(), Dataset(folder.absolute()), output.absolute()
    place = output.parent
    files = TrainingFiles(
        f"the training of {output.name}",
        place,
        (output.with_suffix(".md"), output),
        checkpoint_folder(place) / f"{output.name}.training.pt",
        lock_file(place, output.name),
        checkpoint_folder(place) / f"{output.name}.previous",
        option="--output",
    )
    records = embedding_records(dataset)
    record = records["train"]
    identity: dict[str, Json] = {
        "data set": record["data_set"],
        **{f"{m} model": record["models"][m]["sha256"] for m in MOLECULES},
        "precision of the encoders": record["precision"],
        "truncation": record["truncation"],
        **{
            f"{part} frames": records[part]["counts"]["frames"] - records[part]["counts"]["failed"]
            for part in ("train", "validation")
        },
        **{name.replace("_", " "): value for name, value in asdict(settings).items()},
    }
    with locked(files.lock, "this classifier", state=[files.savepoint, files.previous]):
        try:
            earlier = parse_json(inspect_classifier(output).extra.get("training", "null"))
        except (ModelError, ValueError):
            earlier = None
        known = earlier if isinstance(earlier, dict) else None
        point = begin_training(files, identity, known, disk, show, resume=resume, force=force)
        if point is None:
            return None
        show(Notice("info", "reading the features"))
        parts = {part: find_features(dataset, part) for part in PARTS if dataset.shards(part)}
        train, validation = parts["train"], parts["validation"]
        if not 0 < train.labels.mean() < 1 or not 0 < validation.labels.mean() < 1:
            raise InputError(
                "train or validation has frames of one class only: prepare the data with more "
                "genomes of the other class"
            )
        mean, deviation = np.zeros(train.width), np.ones(train.width)
        if settings.standardise:
            mean, deviation = moments(train)
        plan = TrainingPlan(settings, train, validation, mean, deviation, files.savepoint)
        sizes = ", ".join(f"{part} {len(features):,}" for part, features in parts.items())
        show(Notice("info", f"frames: {sizes}; {train.width:,} numbers each"))
        if left_out := sum(features.left_out for features in parts.values()):
            show(Notice("warning", f"{left_out:,} frames could not be embedded and are left out"))
        if point.begun:
            show(Notice("info", f"going on in epoch {point.epoch + 1}"))
        point = run_training(plan, devices, show, interruption, disk, tensorboard)
        report, classifier = _finished(point, plan, dataset, record, parts, devices)
        disk.save(output.with_suffix(".md"), card_text(report, output.name).encode())
        disk.save(output, classifier)
        disk.remove(files.savepoint)
        return report


def embedding_records(dataset: Dataset) -> Records:
    """Return what ``train embed`` recorded about every part that has frames."""
    dataset.require_content("frames")
    digest = sha256_of(dataset.description_file)
    again = f"make them with virnucpro train embed {dataset.root}"
    records: dict[str, Mapping[str, Json]] = {}
    ways: set[str] = set()
    for part in [part for part in PARTS if part != "test" or dataset.shards(part)]:
        if not dataset.shards(part):
            raise UsageError(
                f"{dataset.root} has no frames of part {part}, which training needs: prepare it "
                f"with more genomes, or a larger --validation"
            )
        record = read_embedding_record(dataset.layout(part))
        if record is None or record.get("data_set") != digest:
            raise UsageError(
                f"the features of part {part} of {dataset.root} are not there, or are those of an "
                f"earlier data set: {again}"
            )
        records[part] = record
        models = {molecule: record["models"][molecule]["sha256"] for molecule in MOLECULES}
        way = [models, record["truncation"], record["precision"]]
        ways.add(json.dumps(way, sort_keys=True))
    if len(ways) > 1:
        raise UsageError(
            f"the parts of {dataset.root} were embedded with different models: {again}"
        )
    return records


def _finished(
    point: Savepoint,
    plan: TrainingPlan,
    dataset: Dataset,
    record: Mapping[str, Json],
    parts: Mapping[Part, PartFeatures],
    devices: Sequence[Device],
) -> tuple[TrainingReport, bytes]:
    """Fit the temperature, measure, and return the report and the classifier file."""
    state, settings = point.best, plan.settings
    if settings.standardise:
        state = fold_standardisation(state, plan.mean, plan.deviation)
    classifier = Classifier(state, EPS)
    logits: dict[Part, npt.NDArray[np.float64]] = {}
    for part, features in parts.items():
        if part != "train":
            rows = FeatureReader(features).blocks(0, len(features))
            blocks = [classifier.logits(block).numpy() for block in rows]
            logits[part] = np.concatenate(blocks).astype(np.float64)
    # Without a path: files made from the same data in the same way are the same to the byte.
    names = ("recipe", "hidden", "epochs", "batch_size", "learning_rate", "patience", "seed")
    words = " ".join(
        f"--{name.replace('_', '-')} {getattr(settings, name)}" for name in (*names, "precision")
    )
    temperature = fit_temperature(logits["validation"], parts["validation"].labels)
    report = TrainingReport(
        dataset=dataset,
        record=record,
        settings=settings,
        command=f"virnucpro train classifier DATASET --output FILE.safetensors {words}",
        devices=tuple(device.name for device in devices),
        width=plan.train.width,
        temperature=temperature,
        best_epoch=point.best_epoch,
        epochs=point.epoch,
        left_out=sum(features.left_out for features in parts.values()),
        metrics={
            part: frame_metrics(own, parts[part].labels, temperature)
            for part, own in logits.items()
        },
    )
    models = [record["models"][molecule] for molecule in MOLECULES]
    content = classifier_to_bytes(
        state,
        encoders=[entry_of(model["name"], model["family"]) for model in models],
        chunk_lengths=dataset.lengths(),
        extra={
            "made_by": f"virnucpro {__version__}",
            "command": report.command,
            "seed": str(settings.seed),
            "data_set": record["data_set"],
            "training": json.dumps(point.identity, sort_keys=True),
        },
        temperature=temperature,
    )
    return report, content
