"""From the features of a data set to a finished classifier file with its model card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from virnucpro.classifier.files import Classifier, classifier_to_bytes, inspect_classifier
from virnucpro.classifier.fit import entry_of
from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, ModelError, UsageError
from virnucpro.events import Notice
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import counted
from virnucpro.layout import MOLECULES, checkpoint_folder, lock_file
from virnucpro.metrics.classification import auroc, call_metrics, fit_temperature, log_loss
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json
from virnucpro.store.lock import locked
from virnucpro.training.classifier.card import TrainingReport, card_text
from virnucpro.training.classifier.features import FeatureReader, PartFeatures, find_features
from virnucpro.training.classifier.trainer import EPS, TrainingPlan, TrainingSettings
from virnucpro.training.data.dataset import PARTS, Dataset, Part
from virnucpro.training.progress import Show
from virnucpro.training.run import TrainingFiles, begin_training, run_training
from virnucpro.training.savepoint import Savepoint
from virnucpro.version import __version__


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
) -> TrainingReport | None:
    """Train a classifier on the data set in ``folder``, or finish what an earlier start began.

    There is one process per device. Returns None if an earlier start had finished it.
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
    records = _embedding_records(dataset)
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
            earlier = dict(parse_json(inspect_classifier(output).extra["training"]))
        except (ModelError, LookupError, ValueError, TypeError):
            earlier = {}
        point = begin_training(files, identity, earlier, disk, show, resume=resume, force=force)
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
        plan = TrainingPlan(settings, train, validation, files.savepoint)
        sizes = ", ".join(f"{part} {len(features):,}" for part, features in parts.items())
        show(Notice("info", f"frames: {sizes}; {train.width:,} values each"))
        if left_out := sum(features.left_out for features in parts.values()):
            show(Notice("warning", f"left out: {counted(left_out, 'frame')} not embedded"))
        if point.begun:
            show(Notice("info", f"going on in epoch {point.epoch + 1}"))
        point = run_training(plan, devices, show, interruption)
        report, classifier = _finished(point, plan, dataset, record, parts, devices)
        disk.save(output.with_suffix(".md"), card_text(report, output.name).encode())
        disk.save(output, classifier)
        disk.remove(files.savepoint)
        return report


def _embedding_records(dataset: Dataset) -> Mapping[str, Mapping[str, Json]]:
    """Return what ``train embed`` recorded about every part that has frames."""
    dataset.require_content("frames")
    records: dict[str, Mapping[str, Json]] = {}
    ways: list[Sequence[Json]] = []
    for part in PARTS:
        if not dataset.shards(part):
            if part == "test":
                continue
            raise UsageError(
                f"{dataset.root} has no frames of part {part}, which training needs: prepare it "
                f"with more genomes, or a larger --validation"
            )
        try:
            records[part] = record = parse_json(dataset.layout(part).run_json.read_bytes())
            models = [record["models"][molecule]["sha256"] for molecule in MOLECULES]
            ways.append((record["data_set"], *models, record["truncation"], record["precision"]))
        except (OSError, ValueError, LookupError, TypeError):
            ways.append([None])
    if ways[0][0] != sha256_of(dataset.description_file) or any(way != ways[0] for way in ways):
        raise UsageError(
            f"{dataset.root} has no features of all parts that belong to this data set, made with "
            f"the same models: make them with virnucpro train embed {dataset.root}"
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
    settings, classifier = plan.settings, Classifier(point.best, EPS)
    margins = {}
    for part, features in parts.items():
        if part != "train":
            rows = FeatureReader(features).blocks(0, len(features))
            blocks = [classifier.scores(block, softmax=False).numpy() for block in rows]
            logits = np.concatenate(blocks)
            margins[part] = logits[:, 1].astype(np.float64) - logits[:, 0]
    temperature = fit_temperature(margins["validation"], parts["validation"].labels)
    metrics: dict[str, dict[str, float | None]] = {}
    for part, values in margins.items():
        virus = parts[part].labels == 1
        found, scaled = call_metrics(virus, values > 0), values / temperature
        metrics[part] = {
            "frames": found["rows"],
            **{n: found[n] for n in ("virus", "accuracy", "precision", "recall", "f1")},
            "auroc": auroc(virus, scaled),
            "log_loss": log_loss(virus, scaled),
        }
    # Without a path: files made from the same data in the same way are the same to the byte.
    options = ("hidden", "epochs", "batch_size", "learning_rate", "patience", "seed")
    words = " ".join(
        f"--{name.replace('_', '-')} {getattr(settings, name)}" for name in (*options, "precision")
    )
    report = TrainingReport(
        dataset,
        record,
        settings,
        point,
        f"virnucpro train classifier DATASET --output FILE.safetensors {words}",
        [device.name for device in devices],
        temperature,
        sum(features.left_out for features in parts.values()),
        metrics,
    )
    models = [record["models"][molecule] for molecule in MOLECULES]
    content = classifier_to_bytes(
        point.best,
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
