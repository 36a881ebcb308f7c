"""``train prepare``: make a labelled data set on disk from a table of genomes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

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
    read_identity,
    save_identity,
)
from virnucpro.training.data.dataset import CONTENTS, PARTS, Content, Dataset
from virnucpro.training.data.genomes import (
    GenomeFile,
    chunk_positions,
    cut_genomes,
    genome_files,
    records_of_parts,
    survey_genomes,
)
from virnucpro.training.data.parts import (
    labelled,
    left_out_counts,
    part_counts,
    part_notices,
    write_frames,
    write_genomes_table,
    write_records,
)
from virnucpro.training.data.splits import assign_parts, check_genomes, drop_relatives
from virnucpro.training.data.table import read_genome_table
from virnucpro.version import __version__

if TYPE_CHECKING:
    import pandas as pd

FRAME_SETTINGS = ("shard_size", "balance", "stride")  # what only decides about frames


@dataclass(frozen=True)
class DatasetSettings:
    """The settings of ``train prepare``.

    Attributes:
        table: the table of genome files.
        folder: the folder that its relative paths start from.
        lengths: chunk lengths in bases; for records, those that models are trained for.
        content: whether the parts hold the open frames of chunks, or whole records.
        validation, test: the fractions of the genomes that go to these parts.
        relatives: the largest fraction of its 31-mers that a genome may share with held-out ones.
        shard_size: the most frames per shard; None for as many as a split file of ``predict`` has.
        balance: whether train and validation get the same number of frames of each label.
        stride: bases from the start of a chunk to that of the next; None cuts as ``predict`` does.
        seed: the seed of the parts, of the choice of frames and of their order.
    """

    table: Path
    folder: Path
    lengths: tuple[int, ...]
    content: Content = "frames"
    validation: float = 0.1
    test: float = 0.1
    relatives: float = 0.05
    shard_size: int | None = None
    balance: bool = True
    stride: int | None = None
    seed: int = 0

    def identity(self) -> dict[str, Json]:
        """Return the settings that decide about the content, beside table and genome files."""
        settings = asdict(self) | {"lengths": list(self.lengths)}
        excluded = {"table", "folder", *(FRAME_SETTINGS if self.content == "records" else ())}
        if self.shard_size is None:  # any size will do
            excluded.add("shard_size")
        return {name: settings[name] for name in settings if name not in excluded}


class PreparedDataset(NamedTuple):
    """The content of ``dataset.json``, and whether it was made, ``found``, or made once more."""

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
    """Make the data set, unless the same one exists already."""
    disk = disk or Disk()
    if settings.test + settings.validation > 1:
        raise UsageError("--test and --validation are together more than all genomes")
    if dataset.root.exists() and not dataset.root.is_dir():
        raise UsageError(f"--output-dir {dataset.root} is a file: name a folder")
    rows = read_genome_table(settings.table, settings.folder)
    disk.make_folder(dataset.lock.parent)
    state = [dataset.begun_file, dataset.previous]
    with locked(dataset.lock, "this data set", state=state):
        files = genome_files(rows, progress)
        row_text = json.dumps([row.identity() for row in rows])
        identity: dict[str, Json] = {
            **settings.identity(),
            "table": hashlib.sha256(row_text.encode()).hexdigest(),
            "sources": [{"file": file.name, "sha256": file.source.sha256} for file in files],
        }
        wanted = _work_identity(dataset, identity)
        existing = _existing_work(dataset, settings.content, identity, force=force)
        if check_work(wanted, existing, disk, force=force).decision == "finished":
            return PreparedDataset(Dataset(dataset.root).description, "found")
        records = _divided(settings, files, progress)
        # What an interrupted run left is made anew in minutes.
        for path in existing.own_files:
            disk.remove_tree(path)
        for folder in (dataset.root, dataset.begun_file.parent):
            disk.sweep(folder)
        save_identity(dataset.begun_file, wanted, disk)
        description = {
            "schema": SCHEMAS["data set"],
            "version": __version__,
            "command": list(command),
            **identity,
            **_written(settings, files, records, dataset, disk, progress),
        }
        # This file is written last: a folder without it holds no data set.
        disk.save(dataset.description_file, (json.dumps(description, indent=1) + "\n").encode())
        disk.remove(dataset.begun_file)
    return PreparedDataset(description, "remade" if existing.finished else "made")


def _divided(
    settings: DatasetSettings, files: Sequence[GenomeFile], progress: StepProgress
) -> pd.DataFrame:
    """Return all records with their parts and numbers of chunks."""
    records = survey_genomes(settings.table, files, progress)
    check_genomes(settings.table, records)
    assign_parts(records, test=settings.test, validation=settings.validation, seed=settings.seed)
    drop_relatives(records, settings.relatives)
    del records["sketch"]  # they are large, and not needed any more
    used = records["part"].isin(PARTS)
    if not records.loc[used, "bases"].any():
        raise InputError(f"{settings.table}: no record of the genome files has any bases")
    if settings.content == "frames":
        records.loc[used, "chunks"] = [
            sum(len(chunk_positions(bases, length, settings.stride)) for length in settings.lengths)
            for bases in records.loc[used, "bases"]
        ]
    return records


def _written(
    settings: DatasetSettings,
    files: Sequence[GenomeFile],
    records: pd.DataFrame,
    dataset: Dataset,
    disk: Disk,
    progress: StepProgress,
) -> dict[str, Json]:
    """Write all files except ``dataset.json``, and return what that file says about them."""
    lengths, stride, frames = settings.lengths, settings.stride, None
    sources = records_of_parts(records, files, PARTS)
    if settings.content == "records":
        sizes = write_records(dataset, records, sources, disk, progress)
    else:
        spool, seed = dataset.sequences_file, settings.seed
        try:
            progress.begin("cutting chunks, finding open frames", int(records["chunks"].sum()))
            found = cut_genomes(sources, lengths, stride, spool, disk, progress)
            if not len(found):
                raise InputError(
                    f"{settings.table}: no genome has an open frame in a chunk of "
                    f"{', '.join(map(str, lengths))} bases: try a smaller --expected-length"
                )
            frames = labelled(records, found, seed, balance=settings.balance)
            counts = frames.loc[frames["taken"], "number"].value_counts()
            records["frames"] = counts.reindex(records.index, fill_value=0)
            none = records["part"].isin(PARTS) & (records["frames"] == 0)
            records.loc[none, "note"] = "none of its frames is in the data set"
            size = settings.shard_size
            sizes = write_frames(dataset, records, frames, spool, size, seed, disk, progress)
        finally:
            disk.remove(spool)
    write_genomes_table(dataset, records, disk)
    fractions = {"train": 1.0, "validation": settings.validation, "test": settings.test}
    requested_parts = {part for part, fraction in fractions.items() if fraction > 0}
    return {
        "parts": sizes,
        "counts": part_counts(records, frames, lengths, stride),
        "left_out": left_out_counts(records),
        "notices": part_notices(sizes, settings.content, requested_parts, records),
    }


def _work_identity(dataset: Dataset, identity: Mapping[str, Json]) -> WorkIdentity:
    """Return the identity of a data set with names for people, one for each genome file."""
    settings = {name: identity[name] for name in identity if name not in ("table", "sources")}
    for source in identity.get("sources") or ():
        settings[f"genome file {source['file']}"] = source["sha256"]
    settings["rows of the table"] = identity.get("table")
    return WorkIdentity(f"the data set {dataset.root.name}", settings)


def _own_files(dataset: Dataset, *contents: str) -> list[Path]:
    """Return the files of a data set of these contents that exist, ``dataset.json`` first."""
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

    A data set of frames does not prove that the files of records are its own, or the reverse.
    Unfinished work is never compared: nothing of it is used.
    """
    own_files, known = list[Path](), None
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
    elif begun := read_identity(dataset.begun_file):
        own_files = _own_files(dataset, str(begun.settings["content"]))
    foreign_files = [path for path in _own_files(dataset, content) if path not in own_files]
    previous = dataset.previous
    return ExistingWork(dataset.root, previous, own_files, foreign_files, known, finished=finished)
