"""From the features of a data set to a finished classifier file with its model card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from virnucpro.classifier.files import (
    ClassifierMetadata,
    build_classifier,
    classifier_to_bytes,
    inspect_classifier,
)
from virnucpro.classifier.fit import entry_of
from virnucpro.contracts import MOLECULES, Device, Json
from virnucpro.errors import InputError, ModelError, UsageError
from virnucpro.events import Emit, Notice
from virnucpro.formatting import counted, markdown_table, markdown_text
from virnucpro.layout import CHECKPOINTS, lock_file
from virnucpro.metrics.classification import (
    auroc,
    call_metrics,
    fit_temperature,
    log_loss,
    metric_text,
)
from virnucpro.settings import AnalysisSettings
from virnucpro.store.disk import Disk, telling
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.training.classifier.features import PartFeatures, find_features
from virnucpro.training.classifier.trainer import ClassifierLoop, TrainingSettings
from virnucpro.training.data.dataset import PARTS, Dataset, Part
from virnucpro.training.loop import Savepoint
from virnucpro.training.run import TrainingFiles, begin_training, how_to_predict, run_training
from virnucpro.version import __version__


def fit_classifier(
    folder: Path,
    output: Path,
    settings: TrainingSettings,
    devices: Sequence[Device],
    show: Emit,
    *,
    force: bool = False,
) -> list[str] | None:
    """Train a classifier on the data set in ``folder``, or finish what an earlier start began.

    There is one process per device. Returns what came out, in sentences; None if an earlier start
    had finished it.
    """
    if output.suffix != ".safetensors" or output.is_dir():
        raise UsageError(f"--output {output}: name a file whose name ends in .safetensors")
    dataset, output = Dataset(folder.absolute()), output.absolute()
    disk = Disk(output.parent)
    files = TrainingFiles(
        f"the training of {output.name}",
        output.parent,
        (output.with_suffix(".md"), output),
        output.parent / CHECKPOINTS / f"{output.name}.training.pt",
        lock_file(output.parent, output.name),
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
    with locked(files.lock, "this classifier"), telling(disk, show):
        try:
            earlier = dict(parse_json(inspect_classifier(output).extra["training"]))
        except (ModelError, LookupError, ValueError, TypeError):
            earlier = {}
        point = begin_training(files, identity, earlier, disk, show, force=force)
        if point is None:
            return None
        show(Notice("info", "reading the features"))
        parts = {part: find_features(dataset, part) for part in PARTS if dataset.shards(part)}
        train, validation = parts["train"], parts["validation"]
        if not 0 < train.labels.mean() < 1 or not 0 < validation.labels.mean() < 1:
            raise InputError("train or validation has one class only: prepare more genomes")
        sizes = ", ".join(f"{part} {len(features):,}" for part, features in parts.items())
        show(Notice("info", f"frames: {sizes}; {train.width:,} values each"))
        if left_out := sum(features.left_out for features in parts.values()):
            show(Notice("warning", f"left out: {counted(left_out, 'frame')} not embedded"))
        loop = partial(ClassifierLoop, files.savepoint, settings, train, validation)
        point = run_training(loop, files.savepoint, devices, show)
        lines = _write_results(files, point, settings, dataset, record, parts, disk)
        disk.remove(files.savepoint)
        return lines


def _embedding_records(dataset: Dataset) -> Mapping[str, Mapping[str, Json]]:
    """Return what ``train embed`` recorded about every part that has frames."""
    dataset.require_content("frames")
    records: dict[str, Mapping[str, Json]] = {}
    ways: list[Sequence[Json]] = []
    for part in PARTS:
        if not dataset.shards(part):
            if part == "test":
                continue
            raise UsageError(f"{dataset.root} has no frames of {part}: prepare more genomes")
        try:
            records[part] = record = parse_json(dataset.layout(part).run_json.read_bytes())
            models = [record["models"][molecule]["sha256"] for molecule in MOLECULES]
            ways.append((record["data_set"], *models, record["truncation"], record["precision"]))
        except (OSError, ValueError, LookupError, TypeError):
            ways.append([None])
    if ways[0][0] != hashed(dataset.description_file).sha256 or any(way != ways[0] for way in ways):
        raise UsageError(f"not embedded as a whole: use virnucpro train embed {dataset.root}")
    return records


def _write_results(
    files: TrainingFiles,
    point: Savepoint,
    settings: TrainingSettings,
    dataset: Dataset,
    record: Mapping[str, Json],
    parts: Mapping[Part, PartFeatures],
    disk: Disk,
) -> list[str]:
    """Fit the temperature, measure, write model card and classifier, and say what came out."""
    card, output = files.results
    network = build_classifier(point.best, ClassifierMetadata(), output)
    margins = {}
    for part, features in parts.items():
        if part != "train":
            rows = features.blocks(0, len(features))
            blocks = [network.scores(block, softmax=False).numpy() for block in rows]
            logits = np.concatenate(blocks)
            margins[part] = logits[:, 1].astype(np.float64) - logits[:, 0]
    temperature = fit_temperature(margins["validation"], parts["validation"].labels)
    metrics: dict[str, dict[str, str]] = {}
    for part, values in margins.items():
        virus = parts[part].labels == 1
        found, scaled = call_metrics(virus, values > 0), values / temperature
        rates = {name: found[name] for name in ("accuracy", "precision", "recall", "f1")}
        rates |= {"AUROC": auroc(virus, scaled), "log loss": log_loss(virus, scaled)}
        counts = {"frames": f"{found['rows']:,}", "virus": f"{found['virus']:,}"}
        metrics[part] = counts | {name: metric_text(rate) for name, rate in rates.items()}
    # Without a path: files made from the same data in the same way are the same to the byte.
    options = ("hidden", "epochs", "batch_size", "learning_rate", "patience", "seed", "precision")
    words = [f"--{name.replace('_', '-')} {getattr(settings, name)}" for name in options]
    command = f"virnucpro train classifier DATASET --output FILE.safetensors {' '.join(words)}"
    encoders, models = {}, [record["models"][molecule] for molecule in MOLECULES]
    usual = (AnalysisSettings.nucleotide_model, AnalysisSettings.protein_model)
    for key, model, name in zip(("dnabert", "esm"), models, usual, strict=True):
        if model["name"] != name:
            encoders[key] = model["path"] if Path(model["name"]).exists() else model["name"]
    facts = {
        "command": command,
        "nucleotide encoder": models[0]["name"],
        "protein encoder": models[1]["name"],
        **point.identity,
        "chunk lengths": ", ".join(map(str, dataset.lengths())),
        "kept epoch": f"{point.best_epoch} of {point.epoch}",
        "temperature of the scores": f"{temperature:.4g}",
    }
    use = how_to_predict(Path(output.name), dataset.lengths()[0], encoders)
    text = _card(output.name, use, facts, metrics)
    disk.save(card, text.encode())
    content = classifier_to_bytes(
        point.best,
        encoders=[entry_of(model["name"], model["family"]) for model in models],
        chunk_lengths=dataset.lengths(),
        extra={
            "made_by": f"virnucpro {__version__}",
            "command": command,
            "seed": str(settings.seed),
            "data_set": record["data_set"],
            "training": json.dumps(point.identity, sort_keys=True),
        },
        temperature=temperature,
    )
    disk.save(output, content)
    return [
        f"Trained for {counted(point.epoch, 'epoch')}; kept epoch {point.best_epoch}.",
        *(
            f"{part}: frames {row['frames']}, AUROC {row['AUROC']}, accuracy {row['accuracy']}, "
            f"F1 {row['f1']}"
            for part, row in metrics.items()
        ),
        f"Scores are calibrated with a temperature of {temperature:.4g}.",
        f"Classifier: {output}; model card: {card}",
        "Next: " + "\n".join(how_to_predict(output, dataset.lengths()[0], encoders)),
    ]


def _card(
    file: str, use: Sequence[str], facts: Mapping[str, Json], metrics: Mapping[str, dict[str, str]]
) -> str:
    """Return the model card of the classifier ``file``, in Markdown."""
    rows = [
        (metric, *(row[metric] for row in metrics.values())) for metric in metrics["validation"]
    ]
    command = "\n".join(f"    {line}" for line in use)
    return f"""# {markdown_text(file)}

Scores open reading frames of DNA as viral or not, from two embeddings of each frame. It was made by
virnucpro {__version__}. Use:

{command}

## Training

{markdown_table(("what", "value"), facts.items())}

The file genomes.tsv of the data set says which genome is in which part, and none is in two.

## How good it is

The metrics are those of single frames, each called as the likelier class, and not those of records,
which `virnucpro predict` calls by all of their chunks.

{markdown_table(("", *metrics), rows)}

The validation part chose the epoch and the temperature of the scores (Guo et al. 2017), so its
metrics are somewhat too good. The test part was
{"used for nothing but this table" if "test" in metrics else "empty"}.

## Limits

- Nothing is known about chunks of other lengths, and only those with an open reading frame get a
  score.
- Groups of organisms that are not in the data set were not seen in training.
- A sample with another share of viral frames than the validation part shifts the scores.
"""
