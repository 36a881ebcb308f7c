"""Whether a training may begin, or go on: its data, its files, and what was there before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from virnucpro.classifier.files import inspect_classifier
from virnucpro.contracts import Json
from virnucpro.errors import InputError, ModelError, ResumeRefusedError, UsageError
from virnucpro.events import Notice
from virnucpro.layout import MOLECULES, checkpoint_folder, lock_file
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json
from virnucpro.store.work import ExistingWork, WorkIdentity, check_work
from virnucpro.training.classifier.settings import TrainingSettings
from virnucpro.training.data.dataset import PARTS, Dataset, read_embedding_record
from virnucpro.training.savepoint import Savepoint, load_savepoint, save_savepoint


class TrainingFiles:
    """The files of a training whose classifier is written to ``output``.

    Attributes:
        card: the model card.
        savepoint: the state of an unfinished training.
        lock: the file that the training process locks.
        previous: the folder that takes what ``--force`` moves aside.
    """

    def __init__(self, output: Path) -> None:
        checkpoints = checkpoint_folder(output.parent)
        self.output = output
        self.card = output.with_suffix(".md")
        self.savepoint = checkpoints / f"{output.name}.training.pt"
        self.lock = lock_file(output.parent, output.name)
        self.previous = checkpoints / f"{output.name}.previous"


def embedding_records(dataset: Dataset) -> dict[str, Mapping[str, Json]]:
    """Return what ``train embed`` recorded about every part that has frames.

    Raises:
        UsageError: it is a data set of records, or a part is missing, was not embedded, or was
            embedded with other models.
    """
    dataset.require_content("frames")
    digest = sha256_of(dataset.description_file)
    again = f"make them with virnucpro train embed {dataset.root}"
    records: dict[str, Mapping[str, Json]] = {}
    ways: set[str] = set()
    for part in PARTS:
        if not dataset.shards(part):
            if part != "test":
                raise UsageError(
                    f"{dataset.root} has no frames of part {part}, which training needs: prepare "
                    f"it with a larger --{part}"
                    if part == "validation"
                    else f"{dataset.root} has no frames to train on: prepare it with more genomes"
                )
            continue
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


def training_identity(
    training: TrainingSettings, dataset: Dataset, records: Mapping[str, Mapping[str, Json]]
) -> dict[str, Json]:
    """Return everything that decides the weights. It is compared before a training continues."""
    record = records["train"]
    frames = {
        f"{part} frames": records[part]["counts"]["frames"] - records[part]["counts"]["failed"]
        for part in ("train", "validation")
    }
    return {
        "data set": sha256_of(dataset.description_file),
        "nucleotide model": record["models"]["nucleotide"]["sha256"],
        "protein model": record["models"]["protein"]["sha256"],
        "precision of the encoders": record["precision"],
        "truncation": record["truncation"],
        **frames,
        **{name.replace("_", " "): value for name, value in asdict(training).items()},
    }


def admit_training(
    files: TrainingFiles,
    identity: dict[str, Json],
    disk: Disk,
    show: Callable[[Notice], None],
    *,
    resume: bool,
    force: bool,
) -> Savepoint | None:
    """Return the savepoint to go on from, which is on the disk; None for a finished training.

    Raises:
        UsageError: files that are not ours would be overwritten.
        ResumeRefusedError: the earlier training used other data or settings, or a newer version of
            the program wrote its savepoint.
        InputError: the savepoint is damaged.
    """
    results = [path for path in (files.card, files.output) if path.exists()]
    existing = ExistingWork(
        files.output.parent, files.previous, foreign_files=results, option="--output"
    )
    label = f"the training of {files.output.name}"
    point = None
    if files.savepoint.exists():
        try:
            point = load_savepoint(files.savepoint)
        except (InputError, ResumeRefusedError):
            if not force:
                raise
        # Before a training is over, it has written nothing but its savepoint.
        own_results = results if point is not None and point.finished else []
        existing = replace(
            existing,
            own_files=[*own_results, files.savepoint],
            foreign_files=[path for path in results if path not in own_results],
            identity=WorkIdentity(label, point.identity) if point else None,
        )
    elif settings := _identity_in(files.output):
        existing = replace(
            existing,
            own_files=results,
            foreign_files=[],
            identity=WorkIdentity(label, settings),
            finished=True,
        )
    wanted = WorkIdentity(label, identity)
    admission = check_work(wanted, existing, disk, resume=resume, force=force)
    if admission.notice:
        show(Notice("info", admission.notice))
    if admission.decision == "finished":
        return None
    if admission.decision == "continue" and point is not None:
        return point
    point = Savepoint(identity)
    save_savepoint(files.savepoint, point, disk)
    return point


def _identity_in(output: Path) -> dict[str, Json]:
    """Return what a classifier that was trained here depends on; empty for any other file."""
    if not output.exists():
        return {}
    try:
        settings = parse_json(inspect_classifier(output).extra.get("training", "{}"))
    except (ModelError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}
