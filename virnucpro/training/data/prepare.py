"""``train prepare``: make a labelled data set on disk from a table of genomes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from virnucpro.contracts import Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import StepProgress
from virnucpro.layout import MOLECULES, Layout
from virnucpro.store.disk import Disk
from virnucpro.store.documents import SCHEMAS
from virnucpro.store.lock import locked
from virnucpro.store.work import (
    ExistingWork,
    WorkIdentity,
    check_work,
    foreign_files_refusal,
    read_identity,
    save_identity,
)
from virnucpro.training.data.dataset import CONTENTS, PARTS, Content, Dataset
from virnucpro.training.data.genomes import (
    GenomeFile,
    GenomeSurvey,
    cut_genomes,
    genome_files,
    survey_genomes,
)
from virnucpro.training.data.parts import (
    balance_frames,
    frame_counts,
    left_out_counts,
    part_notices,
    record_counts,
    write_genomes_table,
    write_parts,
    write_records,
)
from virnucpro.training.data.splits import assign_parts, check_genomes, drop_relatives
from virnucpro.training.data.table import SourceRow, read_genome_table
from virnucpro.version import __version__

FRAME_SETTINGS = ("shard_size", "balance", "stride")  # what only decides about frames


@dataclass(frozen=True)
class DatasetSettings:
    """The settings of ``train prepare``.

    Attributes:
        table: the table of genome files.
        folder: the folder that its relative paths start from.
        lengths: chunk lengths in bases; for records, those that models are trained for.
        content: whether the parts hold the open frames of chunks, or whole records.
        validation: the fraction of the genomes that go to validation.
        test: the fraction of the genomes that are held out.
        relatives: the largest fraction of its 31-mers that a genome may share with held-out ones.
        shard_size: frames per shard.
        balance: whether train and validation get the same number of frames of each label.
        stride: bases from the start of a chunk to that of the next; None cuts as ``predict`` does.
        seed: the seed of the parts, of the choice of frames and of their order.

    Records do not depend on ``FRAME_SETTINGS``.
    """

    table: Path
    folder: Path
    lengths: tuple[int, ...]
    content: Content = "frames"
    validation: float = 0.1
    test: float = 0.1
    relatives: float = 0.05
    shard_size: int = 10_000
    balance: bool = True
    stride: int | None = None
    seed: int = 0

    def identity(self) -> dict[str, Json]:
        """Return the settings that decide about the content, beside table and genome files."""
        settings = asdict(self) | {"lengths": list(self.lengths)}
        unused = FRAME_SETTINGS if self.content == "records" else ()
        excluded = ("table", "folder", *unused)
        return {name: settings[name] for name in settings if name not in excluded}


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
        InputError: the table or a genome file has mistakes, or the parts would be empty.
        ResumeRefusedError: a data set with other settings exists; ``force`` moves it aside.
        LockedError: another process works in the folder.
        OutputError: the disk is full or unwritable.
    """
    disk = disk or Disk()
    if settings.test + settings.validation > 1:
        raise UsageError(
            f"--test {settings.test} and --validation {settings.validation} are more than all "
            f"genomes"
        )
    if dataset.root.exists() and not dataset.root.is_dir():
        raise UsageError(f"--output-dir {dataset.root} is a file: name a folder")
    rows = read_genome_table(settings.table, settings.folder)
    existing = _existing_work(dataset, settings.content, {}, force=force)
    if not force and (refusal := foreign_files_refusal(existing)):
        raise refusal
    disk.make_folder(dataset.lock.parent)
    state = [dataset.begun_file, dataset.previous]
    with locked(dataset.lock, "this data set", state=state):
        files = genome_files(rows, progress)
        identity = _identity(settings, rows, files)
        wanted = _work_identity(dataset, identity)
        existing = _existing_work(dataset, settings.content, identity, force=force)
        admission = check_work(wanted, existing, disk, force=force)
        if admission.decision == "finished":
            return PreparedDataset(Dataset(dataset.root).description, "found")
        _clear(dataset, existing.own_files, disk)
        save_identity(dataset.begun_file, wanted, disk)
        try:
            sizes = _make_files(settings, files, dataset, disk, progress)
        except InputError:  # what a refused table leaves is of no use
            _clear(dataset, _own_files(dataset, settings.content), disk)
            disk.remove(dataset.begun_file)
            raise
        description = {
            "schema": SCHEMAS["data set"],
            "version": __version__,
            "command": list(command),
            **identity,
            **sizes,
        }
        # This file is written last: a folder without it holds no data set.
        disk.save(dataset.description_file, (json.dumps(description, indent=1) + "\n").encode())
        disk.remove(dataset.begun_file)
    return PreparedDataset(description, "remade" if existing.finished else "made")


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
    check_genomes(settings.table, records)
    assign_parts(records, test=settings.test, validation=settings.validation, seed=settings.seed)
    drop_relatives(survey, settings.relatives)
    survey.sketches.clear()  # they are large, and not needed any more
    if settings.content == "frames":
        sizes, counts = _make_frames(settings, survey, dataset, disk, progress)
    elif any(record.part and record.bases for record in records):
        sizes, counts = write_records(dataset, survey, disk, progress), record_counts(records)
    else:
        raise InputError(f"{settings.table}: no record of the genome files has any bases")
    write_genomes_table(dataset, settings.content, records, disk)
    fractions = {"train": 1.0, "validation": settings.validation, "test": settings.test}
    requested_parts = {part for part, fraction in fractions.items() if fraction > 0}
    return {
        "parts": sizes,
        "counts": counts,
        "left_out": left_out_counts(records),
        "notices": part_notices(settings.content, sizes, requested_parts, records),
    }


def _make_frames(
    settings: DatasetSettings,
    survey: GenomeSurvey,
    dataset: Dataset,
    disk: Disk,
    progress: StepProgress,
) -> tuple[dict[str, Json], list[dict[str, Json]]]:
    """Write shards and frames tables, and return ``parts`` and ``counts`` of ``dataset.json``.

    Raises:
        InputError: no genome has an open frame.
    """
    lengths, stride = settings.lengths, settings.stride
    try:
        frames = cut_genomes(survey, lengths, stride, dataset.sequences_file, disk, progress)
        if not len(frames.rows):
            raise InputError(
                f"{settings.table}: no genome has an open frame in a chunk of "
                f"{', '.join(map(str, lengths))} bases: try a smaller --expected-length"
            )
        if settings.balance:
            balance_frames(frames, lengths, settings.seed)
        sizes = write_parts(dataset, frames, settings.shard_size, settings.seed, disk, progress)
    finally:
        disk.remove(dataset.sequences_file)
    return sizes, frame_counts(frames, lengths, stride)


def _identity(
    settings: DatasetSettings,
    rows: tuple[SourceRow, ...],
    files: tuple[GenomeFile, ...],
) -> dict[str, Json]:
    """Return what decides about the data set: settings, rows, and checksums of the files."""
    row_text = json.dumps([row.identity() for row in rows])
    return {
        **settings.identity(),
        "table": hashlib.sha256(row_text.encode()).hexdigest(),
        "sources": [{"file": file.name, "sha256": file.source.sha256} for file in files],
    }


def _work_identity(dataset: Dataset, identity: Mapping[str, Json]) -> WorkIdentity:
    """Return the identity of a data set with names for people, one for each genome file."""
    settings = {name: identity[name] for name in identity if name not in ("table", "sources")}
    genomes = {
        f"genome file {source['file']}": source["sha256"]
        for source in identity.get("sources") or ()
    }
    settings = {**settings, "rows of the table": identity.get("table"), **genomes}
    return WorkIdentity(f"the data set {dataset.root.name}", settings)


# --- the folder ------------------------------------------------------------------------------


def _own_files(dataset: Dataset, *contents: str) -> list[Path]:
    """Return the files of a data set of these contents that exist, ``dataset.json`` first.

    That file makes it a data set.
    """
    files = [dataset.description_file, dataset.genomes_table, dataset.sequences_file]
    for part in PARTS:
        layout = Layout(dataset.root, part)
        if "records" in contents:
            files.append(dataset.records_file(part))
        if "frames" in contents:
            files += [dataset.frames_table(part), *map(layout.folder, MOLECULES)]
            files += [layout.merged_folder, layout.run_json, layout.state]
    return [path for path in files if path.exists()]


def _existing_work(
    dataset: Dataset, content: Content, identity: Mapping[str, Json], *, force: bool
) -> ExistingWork:
    """Return what the folder holds; ``identity`` names the settings that are compared.

    A data set of frames does not prove that the files of records are its own, or the reverse:
    existing files of the ``content`` that is to be written are then those of the user. Unfinished
    work is never compared: nothing of it is used, it is made anew in minutes.

    Raises:
        InputError: ``dataset.json`` is damaged, and ``force`` does not move it aside.
    """
    files, own_files, known = _own_files(dataset, content), list[Path](), None
    finished = dataset.description_file.exists()
    if finished:
        earlier, contents = Dataset(dataset.root), CONTENTS
        try:
            contents = (earlier.content,)
            values = {name: earlier.description.get(name) for name in identity}
            known = None if force else _work_identity(dataset, values)
        except InputError:
            if not force:
                raise
        own_files = _own_files(dataset, *contents)
    elif dataset.begun_file.exists() and not any(
        Layout(dataset.root, part).feature_files() for part in PARTS
    ):
        begun = read_identity(dataset.begun_file)
        own_files = _own_files(
            dataset, begun.settings.get("content", "frames") if begun else content
        )
    else:
        for part in PARTS:  # a run of predict may have the name of a part
            files += Layout(dataset.root, part).owned()
    foreign_files = [path for path in dict.fromkeys(files) if path not in own_files]
    return ExistingWork(
        dataset.root, dataset.previous, own_files, foreign_files, known, finished=finished
    )


def _clear(dataset: Dataset, own_files: Iterable[Path], disk: Disk) -> None:
    """Remove what an interrupted run left; it is made in minutes, unlike features."""
    for path in own_files:
        disk.remove_tree(path)
    for part in PARTS:
        for molecule in MOLECULES:
            disk.sweep(Layout(dataset.root, part).folder(molecule))
    disk.sweep(dataset.root)
    disk.sweep(dataset.sequences_file.parent)
