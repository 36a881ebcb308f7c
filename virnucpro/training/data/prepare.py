"""``train prepare``: make a labelled data set on disk from a table of genomes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro import __version__
from virnucpro.contracts import Json
from virnucpro.errors import InputError, ResumeRefusedError, UsageError
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk, DiskWithoutResume, sha256_of
from virnucpro.store.lock import locked
from virnucpro.training.data.dataset import PARTS, SCHEMA, Dataset
from virnucpro.training.data.genomes import GenomeFile, cut_genomes, genome_files, survey_genomes
from virnucpro.training.data.parts import (
    frame_counts,
    left_out_counts,
    part_notices,
    select_frames,
    write_genomes_table,
    write_parts,
)
from virnucpro.training.data.splits import assign_parts, check_labels, drop_relatives
from virnucpro.training.data.table import SourceRow, read_genome_table
from virnucpro.training.progress import StepProgress


@dataclass(frozen=True)
class DatasetSettings:
    """The settings of ``train prepare``.

    Attributes:
        table: the table of genome files.
        folder: the folder that its relative paths start from.
        lengths: chunk lengths in bases.
        validation: the fraction of the genomes that go to validation.
        test: the fraction of the genomes that are held out.
        relatives: the largest fraction of its 31-mers that a genome may share with held-out ones.
        shard_size: frames per shard.
        balance: whether train and validation get the same number of frames of each label.
        stride: bases from the start of a chunk to that of the next; None cuts as ``predict`` does.
        seed: the seed of the parts, of the choice of frames and of their order.
    """

    table: Path
    folder: Path
    lengths: tuple[int, ...]
    validation: float = 0.1
    test: float = 0.1
    relatives: float = 0.05
    shard_size: int = 10_000
    balance: bool = True
    stride: int | None = None
    seed: int = 0

    def identity(self) -> dict[str, Json]:
        """Return the settings that decide about the content, beside table and genome files."""
        return {
            "lengths": list(self.lengths),
            "validation": self.validation,
            "test": self.test,
            "relatives": self.relatives,
            "shard_size": self.shard_size,
            "balance": self.balance,
            "stride": self.stride,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class PreparedDataset:
    """The content of ``dataset.json``, and how the data set came about.

    ``outcome`` is ``made``, ``found`` (an earlier run of the same command made it) or ``remade``
    (the earlier data set was moved to ``previous``).
    """

    description: dict[str, Json]
    outcome: Literal["made", "found", "remade"]


def prepare_dataset(
    settings: DatasetSettings,
    dataset: Dataset,
    progress: StepProgress,
    *,
    command: Sequence[str] = (),
    force: bool = False,
    disk: Disk | None = None,
) -> PreparedDataset:
    """Make the data set, unless the same one exists already.

    Raises:
        UsageError: the table or a genome file cannot be read, or the folder holds other files.
        InputError: the table or a genome file has mistakes, or no genome has an open frame.
        ResumeRefusedError: a data set with other settings exists; ``force`` moves it aside.
        LockedError: another process works in the folder.
        OutputError: the disk is full or unwritable.
    """
    disk = disk or DiskWithoutResume()
    if settings.test + settings.validation > 1:
        raise UsageError(
            f"--test {settings.test} and --validation {settings.validation} are more than all "
            f"genomes"
        )
    rows = read_genome_table(settings.table, settings.folder)
    files = genome_files(rows)
    _refuse_foreign(dataset)
    disk.make_folder(dataset.lock.parent)
    with locked(dataset.lock):
        identity = _identity(settings, rows, files, progress)
        if dataset.description_file.exists() and not force:
            description = Dataset(dataset.root).description()
            if changed := _changes(description, identity):
                raise ResumeRefusedError(
                    f"{dataset.root} holds a data set that was made in another way:\n{changed}\n"
                    f"choose another --output-dir, or make it anew with --force"
                )
            return PreparedDataset(description, "found")
        outcome: Literal["made", "remade"] = (
            "remade" if force and _move_aside(dataset, disk) else "made"
        )
        _clear(dataset, disk)
        description = {
            "schema": SCHEMA,
            "version": __version__,
            "command": list(command),
            **identity,
            **_make_files(settings, files, dataset, disk, progress),
        }
        # This file is written last: a folder without it holds no data set.
        disk.save(dataset.description_file, (json.dumps(description, indent=1) + "\n").encode())
    return PreparedDataset(description, outcome)


def _make_files(
    settings: DatasetSettings,
    files: tuple[GenomeFile, ...],
    dataset: Dataset,
    disk: Disk,
    progress: StepProgress,
) -> dict[str, Json]:
    """Write all files except ``dataset.json``, and return what that file says about them."""
    survey = survey_genomes(settings.table, files, progress)
    records = survey.records
    check_labels(settings.table, records)
    assign_parts(records, test=settings.test, validation=settings.validation, seed=settings.seed)
    drop_relatives(survey, settings.relatives)
    survey.sketches.clear()  # they are large, and not needed any more
    lengths, stride = settings.lengths, settings.stride
    try:
        frames = cut_genomes(survey, lengths, stride, dataset.sequences_file, disk, progress)
        selected = select_frames(
            records, lengths, frames, balance=settings.balance, seed=settings.seed
        )
        if not selected.taken.any():
            raise InputError(
                f"{settings.table}: no genome has an open frame in a chunk of "
                f"{', '.join(map(str, lengths))} bases: try a smaller --expected-length"
            )
        sizes = write_parts(dataset, selected, settings.shard_size, settings.seed, disk, progress)
    finally:
        disk.remove(dataset.sequences_file)
    write_genomes_table(dataset, records, disk)
    requested_parts = {"train"}
    if settings.validation > 0:
        requested_parts.add("validation")
    if settings.test > 0:
        requested_parts.add("test")
    return {
        "parts": sizes,
        "counts": frame_counts(selected, stride),
        "left_out": left_out_counts(records),
        "notices": part_notices(sizes, requested_parts),
    }


def _identity(
    settings: DatasetSettings,
    rows: tuple[SourceRow, ...],
    files: tuple[GenomeFile, ...],
    progress: StepProgress,
) -> dict[str, Json]:
    """Return what decides about the data set: settings, rows, and checksums of the files."""
    row_text = json.dumps([row.identity() for row in rows])
    progress.begin("checksums of the genomes", sum(file.stamp[0] for file in files))
    sources = []
    for file in files:
        sources.append({"file": file.name, "sha256": sha256_of(file.path)})
        progress.advance(file.stamp[0])
    return {
        **settings.identity(),
        "table": hashlib.sha256(row_text.encode()).hexdigest(),
        "sources": sources,
    }


def _changes(description: dict[str, Json], identity: dict[str, Json]) -> str:
    """Return a line for each difference; the text is empty if there is none."""
    lines = []
    for name, now in identity.items():
        before = description.get(name)
        if before == now:
            continue
        if name == "table":
            lines.append("  the rows of the table are others")
        elif name == "sources":
            old_digests = {entry["file"]: entry["sha256"] for entry in before or ()}
            files = [e["file"] for e in now if old_digests.get(e["file"]) != e["sha256"]]
            files += sorted(old_digests.keys() - {e["file"] for e in now})
            lines.append(f"  genomes that differ: {', '.join(files[:5]) or 'their order'}")
        else:
            lines.append(f"  {name}: was {before}, is {now}")
    return "\n".join(lines)


# --- the folder ------------------------------------------------------------------------------


def _owned(dataset: Dataset) -> list[Path]:
    """All files of a data set that exist, ``dataset.json`` first: it is what makes it one."""
    files = [dataset.description_file, dataset.genomes_table, dataset.sequences_file]
    files += [dataset.frames_table(part) for part in PARTS]
    found = [path for path in files if path.exists()]
    for part in PARTS:
        found += Layout(dataset.root, part, 0).owned()
    return found


def _refuse_foreign(dataset: Dataset) -> None:
    """Refuse a folder whose files do not belong to a data set.

    Raises:
        UsageError: the folder is a file, or holds files that ``train prepare`` would overwrite.
    """
    if dataset.root.exists() and not dataset.root.is_dir():
        raise UsageError(f"--output-dir {dataset.root} is a file: name a folder")
    if dataset.description_file.exists() or dataset.lock.exists():
        return
    if there := _owned(dataset):
        raise UsageError(
            f"{dataset.root} holds {there[0].name}, which does not belong to a data set: "
            f"choose another --output-dir"
        )


def _clear(dataset: Dataset, disk: Disk) -> None:
    """Remove what an interrupted run left; it is made in minutes, unlike features.

    Raises:
        UsageError: there are features, of a data set whose ``dataset.json`` is gone.
    """
    features = [file for part in PARTS for file in Layout(dataset.root, part, 0).feature_files()]
    if features:
        raise UsageError(
            f"{dataset.root} has features ({features[0].name}) but no "
            f"{dataset.description_file.name}: choose another --output-dir, or start over with "
            f"--force"
        )
    for path in _owned(dataset):
        disk.remove_tree(path)
    for part in PARTS:
        for folder in ("nucleotide", "protein"):
            disk.sweep(dataset.root / f"{part}_{folder}")
    disk.sweep(dataset.root)
    disk.sweep(dataset.sequences_file.parent)


def _move_aside(dataset: Dataset, disk: Disk) -> bool:
    """Keep the latest earlier data set, once: its features may have taken days.

    Returns whether there was any.
    """
    # A kill half way leaves the folder under its first name, and the next --force goes on with it.
    moving = dataset.previous.with_suffix(".moving")
    there = _owned(dataset)
    if not there and not moving.exists():
        return False
    disk.make_folder(moving)
    for path in there:
        disk.move(path, moving / path.name)
    disk.remove_tree(dataset.previous)
    disk.move(moving, dataset.previous)
    return True
