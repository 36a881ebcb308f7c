"""``train prepare``: make a labelled data set on disk from a table of genomes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.contracts import Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Notice, StepProgress
from virnucpro.store.disk import Disk, HashedFile, explain_write_errors, hashed_input, telling
from virnucpro.store.documents import SCHEMAS
from virnucpro.store.lock import locked
from virnucpro.store.work import WorkIdentity, check_same, checked_again
from virnucpro.tables import GENOMES
from virnucpro.training.data.dataset import PARTS, Content, Dataset
from virnucpro.training.data.genomes import cut_genomes, records_of_parts, survey_genomes
from virnucpro.training.data.parts import balanced, write_frames, write_records
from virnucpro.training.data.splits import assign_parts, check_genomes, drop_relatives
from virnucpro.training.data.table import SourceRow, read_genome_table
from virnucpro.version import __version__

if TYPE_CHECKING:
    import pandas as pd


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
        seed: the seed of the parts, of the choice of frames and of their order.
    """

    table: Path
    folder: Path
    lengths: tuple[int, ...]
    content: Content = "frames"
    validation: float = 0.1
    test: float = 0.1
    relatives: float = 0.05
    seed: int = 0


def prepare_dataset(
    settings: DatasetSettings,
    dataset: Dataset,
    progress: StepProgress,
    *,
    command: Sequence[str] = (),
    force: bool = False,
    disk: Disk | None = None,
) -> tuple[dict[str, Json], str | None]:
    """Make the data set, unless the same one exists already.

    Returns:
        The content of ``dataset.json``, and what users are told of what was there.
    """
    disk = disk or Disk(dataset.root)
    if settings.test + settings.validation > 1:
        raise UsageError("--test and --validation are together more than all genomes")
    if dataset.root.exists() and not dataset.root.is_dir():
        raise UsageError(f"--output-dir {dataset.root} is a file: name a folder")
    rows = read_genome_table(settings.table, settings.folder)
    said: list[Notice] = []
    with locked(dataset.lock, "this data set"), telling(disk, said.append):
        files: dict[Path, list[SourceRow]] = {}
        for row in rows:
            files.setdefault(row.path, []).append(row)
        sources = []
        progress.begin("checksums of the genomes", len(files))
        for path in files:
            sources.append(hashed_input(path))
            progress.advance(1)
        row_text = json.dumps([row.identity() for row in rows])
        names = ("content", "validation", "test", "relatives", "seed")
        identity: dict[str, Json] = {
            **{name: getattr(settings, name) for name in names},
            "lengths": list(settings.lengths),
            "table": hashlib.sha256(row_text.encode()).hexdigest(),
            "sources": [
                {"file": files[source.path][0].file, "sha256": source.sha256} for source in sources
            ],
        }
        wanted = _work_identity(dataset, identity)
        if dataset.description_file.exists() and not force:
            earlier = Dataset(dataset.root).description
            values = {name: earlier.get(name) for name in identity}
            check_same(wanted, _work_identity(dataset, values), dataset.root)
            return earlier, checked_again(wanted.label)
        records = survey_genomes(settings.table, files, progress)
        check_genomes(settings.table, records)
        shares = {"test": settings.test, "validation": settings.validation}
        assign_parts(records, **shares, seed=settings.seed)
        drop_relatives(records, settings.relatives)
        del records["sketch"]  # they are large, and not needed any more
        if not records.loc[records["part"].isin(PARTS), "bases"].any():
            raise InputError(f"{settings.table}: no record of the genome files has any bases")
        # What an earlier start left is made anew in minutes.
        for path in _files_of(dataset):
            disk.clear(path)
        disk.sweep(dataset.root)
        description = {
            "schema": SCHEMAS["data set"],
            "version": __version__,
            "command": list(command),
            **identity,
            **_written(settings, records, sources, dataset, disk, progress),
        }
        # This file is written last: a folder without it holds no data set.
        disk.save(dataset.description_file, (json.dumps(description, indent=1) + "\n").encode())
    return description, said[0].message if said else None


def _written(
    settings: DatasetSettings,
    records: pd.DataFrame,
    sources: Sequence[HashedFile],
    dataset: Dataset,
    disk: Disk,
    progress: StepProgress,
) -> dict[str, Json]:
    """Write all files except ``dataset.json``, and return what that file says about them."""
    chosen = records_of_parts(records, sources)
    if settings.content == "records":
        sizes = write_records(dataset, records, chosen, disk, progress)
    else:
        with explain_write_errors(dataset.root), tempfile.TemporaryFile(dir=dataset.root) as spool:
            bases = int(records.loc[records["part"].isin(PARTS), "bases"].sum())
            progress.begin("cutting chunks, finding open frames", bases)
            frames = cut_genomes(chosen, settings.lengths, spool, progress)
            if frames.empty:
                raise InputError(f"{settings.table}: no genome has an open frame in a chunk")
            owners = records.loc[frames["number"], ["part", "group", "label"]]
            frames[["part", "group"]] = owners[["part", "group"]].to_numpy()
            frames["virus"] = owners["label"].to_numpy() == "virus"
            frames = frames[balanced(frames, settings.seed)]
            counts = frames["number"].value_counts()
            records["frames"] = counts.reindex(records.index, fill_value=0)
            sizes = write_frames(dataset, records, frames, spool, settings.seed, disk, progress)
    with disk.create(dataset.genomes_table) as table:
        table.write(GENOMES.header.encode())
        for row in records[list(GENOMES.row._fields)].to_dict("records"):
            table.write(GENOMES.line(**row).encode(), 1)
    groups = records.groupby(["part", "label"])
    counts = groups[["bases", "frames"]].sum()
    counts.insert(0, "genomes", groups["genome"].nunique())
    counts.insert(1, "records", groups.size())
    return {"parts": sizes, "counts": counts.reset_index().to_dict("records")}


def _work_identity(dataset: Dataset, identity: Mapping[str, Json]) -> WorkIdentity:
    """Return the identity of a data set with names for people, one for each genome file."""
    settings = {name: identity[name] for name in identity if name not in ("table", "sources")}
    for source in identity.get("sources") or ():
        settings[f"genome file {source['file']}"] = source["sha256"]
    settings["rows of the table"] = identity.get("table")
    return WorkIdentity(f"the data set {dataset.root.name}", settings)


def _files_of(dataset: Dataset) -> list[Path]:
    """Return the files and folders of a data set, ``dataset.json`` first."""
    files = [dataset.description_file, dataset.genomes_table]
    for part in PARTS:
        layout = dataset.layout(part)
        files += [dataset.records_file(part), dataset.frames_table(part)]
        files += [*layout.folders.values(), layout.merged_folder, layout.run_json, layout.state]
    return files
