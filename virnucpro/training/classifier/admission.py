"""Whether a training may begin, or go on: its data, its files, and what was there before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from virnucpro.classifier import inspect
from virnucpro.contracts import Json
from virnucpro.errors import InputError, ModelError, ResumeRefusedError, UsageError
from virnucpro.events import Notice
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.training.classifier.recipe import Recipe
from virnucpro.training.classifier.savepoint import Savepoint, load, save
from virnucpro.training.data.dataset import PARTS, Dataset, read_embedding_record


@dataclass(frozen=True)
class TrainingFiles:
    """The files of a training, by its output."""

    output: Path

    @property
    def card(self) -> Path:
        """The model card."""
        return self.output.with_suffix(".md")

    @property
    def savepoint(self) -> Path:
        """The state of an unfinished training."""
        return self.output.parent / ".checkpoints" / f"{self.output.name}.training.pt"

    @property
    def lock(self) -> Path:
        """Held by the process that trains."""
        return self.output.parent / ".checkpoints" / f"{self.output.name}.lock"


def records_of(dataset: Dataset) -> dict[str, Mapping[str, Json]]:
    """The records of embedding, of every part that has frames.

    Raises:
        UsageError: a part is missing, was not embedded, or not in the same way as the others.
    """
    digest = sha256_of(dataset.description_file) if dataset.description() else ""
    again = f"embed it: virnucpro train embed {dataset.root}"
    found: dict[str, Mapping[str, Json]] = {}
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
            raise UsageError(f"part {part} of {dataset.root} is not embedded as it is now: {again}")
        found[part] = record
    ways = {_way(record) for record in found.values()}
    if len(ways) > 1:
        raise UsageError(
            f"the parts of {dataset.root} were embedded with different models: {again}"
        )
    return found


def _way(record: Mapping[str, Json]) -> str:
    models = {role: record["models"][role]["sha256"] for role in ("nucleotide", "protein")}
    return json.dumps([models, record["truncation"], record["precision"]], sort_keys=True)


def identity_of(
    recipe: Recipe, dataset: Dataset, records: Mapping[str, Mapping[str, Json]]
) -> dict[str, Json]:
    """Everything that decides the weights; compared before a training is gone on with."""
    record = records["train"]
    frames = {
        f"{part} frames": records[part]["counts"]["frames"] - records[part]["counts"]["failed"]
        for part in ("train", "validation")
    }
    return {
        "data_set": sha256_of(dataset.description_file),
        "nucleotide model": record["models"]["nucleotide"]["sha256"],
        "protein model": record["models"]["protein"]["sha256"],
        "precision of the encoders": record["precision"],
        "truncation": record["truncation"],
        **frames,
        **{name.replace("_", " "): value for name, value in asdict(recipe).items()},
    }


def admitted(
    files: TrainingFiles,
    identity: dict[str, Json],
    disk: Disk,
    show: Callable[[Notice], None],
    *,
    resume: bool,
    force: bool,
) -> Savepoint | None:
    """The savepoint to go on from, on the disk; None where the classifier is finished already.

    Raises:
        UsageError: something is there and neither resume nor force was asked for.
        ResumeRefused: it was trained on other data or in another way.
    """
    there = [path for path in (files.output, files.savepoint, files.card) if path.exists()]
    if there and force and not (resume and _same(files, identity)):
        for path in there:
            disk.move(path, path.with_name(f"{path.name}.previous"))
        show(Notice("info", "--force: starting over; what was there is now in *.previous"))
        there = []
    if not there:
        if resume:
            show(Notice("info", f"nothing to resume for {files.output.name}: starting anew"))
        point = Savepoint(identity)
        save(files.savepoint, point, disk)
        return point
    if not resume:
        what = "an interrupted training" if files.savepoint in there else there[0].name
        raise UsageError(
            f"{what} is already at {files.output}: go on with --resume, or start over with --force"
        )
    if files.savepoint.exists():
        point = load(files.savepoint) or Savepoint(identity)
        _refuse_changes(point.identity, identity, files)
        return point
    _refuse_changes(_identity_in(files), identity, files)
    return None


def _same(files: TrainingFiles, identity: Mapping[str, Json]) -> bool:
    """Whether what is there could be gone on with, so that --force is not needed."""
    try:
        point = load(files.savepoint)
        _refuse_changes(point.identity if point else _identity_in(files), identity, files)
    except (ResumeRefusedError, InputError):
        return False
    return True


def _identity_in(files: TrainingFiles) -> Mapping[str, Json]:
    """What a finished classifier says of its training; empty where it says nothing."""
    try:
        said = json.loads(inspect(files.output).extra.get("training", "{}"))
    except (ModelError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _refuse_changes(
    earlier: Mapping[str, Json], wanted: Mapping[str, Json], files: TrainingFiles
) -> None:
    changed = [name for name in wanted if earlier.get(name) != wanted[name]]
    if changed:
        rows = "\n".join(f"  {n}: was {earlier.get(n)}, is {wanted[n]}" for n in changed)
        raise ResumeRefusedError(
            f"{files.output} was trained on something else, or in another way:\n{rows}\n"
            f"resume with the same data and options, or start over with --force"
        )
