"""``train prepare``: from a table of genomes to a labelled data set on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from virnucpro import __version__
from virnucpro.contracts import Json
from virnucpro.errors import InputError, ResumeRefusedError, UsageError
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk, DiskWithoutResume, sha256_of
from virnucpro.store.lock import locked
from virnucpro.training.data.cutting import cut
from virnucpro.training.data.dataset import LABELS, PARTS, SCHEMA, Dataset
from virnucpro.training.data.parts import counts, select, write_genomes, write_parts
from virnucpro.training.data.splits import assign, check_labels, drop_relatives
from virnucpro.training.data.survey import Origin, Reason, Source, Watch, sources_of, survey
from virnucpro.training.data.table import SourceRow, read_table


@dataclass(frozen=True)
class Recipe:
    """What a data set is made from, and how.

    Attributes:
        table: the table of sources.
        folder: where its relative paths start.
        lengths: chunk lengths in bases.
        validation: fraction of the genomes that go to validation.
        test: fraction of the genomes that are held out.
        relatives: largest share of 31-mers that a genome may have in common with held-out ones.
        shard_size: frames a shard.
        balance: whether train and validation get as many frames of each label.
        stride: bases from one chunk to the next; None cuts as ``predict`` does.
        seed: for the parts, the choice of frames and their order.
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

    def settings(self) -> dict[str, Json]:
        """All that decides about the content, beside table and sources."""
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
class Prepared:
    """A data set that is there: the content of its ``dataset.json``, and how it came about.

    ``how`` is ``made``, ``found`` (made by an earlier run of the same command) or ``remade``
    (the earlier one was moved to ``previous``).
    """

    facts: dict[str, Json]
    how: str


def prepare(
    recipe: Recipe,
    dataset: Dataset,
    watch: Watch,
    *,
    command: Sequence[str] = (),
    force: bool = False,
    disk: Disk | None = None,
) -> Prepared:
    """Make the data set, unless the same one is there already.

    Raises:
        UsageError: table or a source cannot be read, or the folder holds something else.
        InputError: table or a source has mistakes, or there is not one open frame.
        ResumeRefused: a data set made in another way is there; ``force`` moves it aside.
        LockedError: another process is at work in the folder.
        OutputError: the disk is full or unwritable.
    """
    disk = disk or DiskWithoutResume()
    if recipe.test + recipe.validation > 1:
        raise UsageError(
            f"--test {recipe.test} and --validation {recipe.validation} are more than all genomes"
        )
    rows = read_table(recipe.table, recipe.folder)
    sources = sources_of(rows)
    _refuse_foreign(dataset)
    disk.make_folder(dataset.lock.parent)
    with locked(dataset.lock):
        wanted = _wanted(recipe, rows, sources, watch)
        if dataset.facts_file.exists() and not force:
            facts = dataset.facts()
            if changed := _changes(facts, wanted):
                raise ResumeRefusedError(
                    f"{dataset.root} holds a data set that was made in another way:\n{changed}\n"
                    f"choose another --output-dir, or make it anew with --force"
                )
            return Prepared(facts, "found")
        how = "remade" if force and _move_aside(dataset, disk) else "made"
        _clear(dataset, disk)
        facts = {
            "schema": SCHEMA,
            "version": __version__,
            "command": list(command),
            **wanted,
            **_make(recipe, sources, dataset, disk, watch),
        }
        # Last: a folder without it holds no data set.
        disk.save(dataset.facts_file, (json.dumps(facts, indent=1) + "\n").encode())
    return Prepared(facts, how)


def _make(
    recipe: Recipe, sources: tuple[Source, ...], dataset: Dataset, disk: Disk, watch: Watch
) -> dict[str, Json]:
    """Write all files but ``dataset.json``; returns what that says about them."""
    found = survey(recipe.table, sources, watch)
    check_labels(recipe.table, found.origins)
    assign(found.origins, test=recipe.test, validation=recipe.validation, seed=recipe.seed)
    drop_relatives(found, recipe.relatives)
    found.sketches.clear()
    try:
        frames = cut(found, recipe.lengths, recipe.stride, dataset.spool, disk, watch)
        chosen = select(
            found.origins, recipe.lengths, frames, balance=recipe.balance, seed=recipe.seed
        )
        if not chosen.taken.any():
            raise InputError(
                f"{recipe.table}: no genome has an open frame in a chunk of "
                f"{', '.join(map(str, recipe.lengths))} bases: try a smaller --expected-length"
            )
        parts = write_parts(dataset, chosen, recipe.shard_size, recipe.seed, disk, watch)
    finally:
        disk.remove(dataset.spool)
    write_genomes(dataset, found.origins, disk)
    return {
        "parts": parts,
        "counts": counts(chosen, recipe.stride),
        "left_out": _left_out(found.origins),
        "notices": _notices(recipe, parts),
    }


def _wanted(
    recipe: Recipe, rows: tuple[SourceRow, ...], sources: tuple[Source, ...], watch: Watch
) -> dict[str, Json]:
    """What a data set made now would be made from: settings, rows, and contents of the files."""
    said = json.dumps([row.said() for row in rows])
    watch.begin("checksums of the genomes", sum(source.seen[0] for source in sources))
    files = []
    for source in sources:
        files.append({"file": source.file, "sha256": sha256_of(source.path)})
        watch.advance(source.seen[0])
    return {
        **recipe.settings(),
        "table": hashlib.sha256(said.encode()).hexdigest(),
        "sources": files,
    }


def _changes(facts: dict[str, Json], wanted: dict[str, Json]) -> str:
    """A line for each thing that differs; empty where nothing does."""
    lines = []
    for name, now in wanted.items():
        was = facts.get(name)
        if was == now:
            continue
        if name == "table":
            lines.append("  the rows of the table are others")
        elif name == "sources":
            before = {entry["file"]: entry["sha256"] for entry in was or ()}
            files = [e["file"] for e in now if before.get(e["file"]) != e["sha256"]]
            files += sorted(before.keys() - {e["file"] for e in now})
            lines.append(f"  genomes that differ: {', '.join(files[:5]) or 'their order'}")
        else:
            lines.append(f"  {name}: was {was}, is {now}")
    return "\n".join(lines)


def _left_out(origins: Sequence[Origin]) -> list[dict[str, Json]]:
    """Genomes, records and bases that went to no part, by reason."""
    rows = []
    for reason in get_args(Reason):
        own = [o for o in origins if o.reason == reason]
        rows.append(
            {
                "reason": reason,
                "genomes": len({o.genome for o in own}),
                "records": len(own),
                "bases": sum(o.bases for o in own),
            }
        )
    return rows


def _notices(recipe: Recipe, parts: dict[str, Json]) -> list[str]:
    """What a person would want to know before training with it."""
    found = []
    asked = {"train": True, "validation": recipe.validation > 0, "test": recipe.test > 0}
    for part in PARTS:
        if part not in parts:
            if asked[part]:
                found.append(
                    f"{part} has no frames: there are few genomes, and their names decide; take "
                    f"another --seed or a larger fraction, or name the part in the split column"
                )
            continue
        found += [
            f"{part} has no frames of label {label}: nothing can be learned or measured there"
            for label in LABELS
            if not parts[part][label]
        ]
    return found


# --- the folder ------------------------------------------------------------------------------


def _owned(dataset: Dataset) -> list[Path]:
    """All files of a data set that exist, ``dataset.json`` first: it is what makes it one."""
    files = [dataset.facts_file, dataset.genomes_table, dataset.spool]
    files += [dataset.frames_table(part) for part in PARTS]
    found = [path for path in files if path.exists()]
    for part in PARTS:
        found += Layout(dataset.root, part, 0).owned()
    return found


def _refuse_foreign(dataset: Dataset) -> None:
    """Never write over what is no data set.

    Raises:
        UsageError: the folder is a file, or holds files of those names of another origin.
    """
    if dataset.root.exists() and not dataset.root.is_dir():
        raise UsageError(f"--output-dir {dataset.root} is a file: name a folder")
    if dataset.facts_file.exists() or dataset.lock.exists():
        return
    if there := _owned(dataset):
        raise UsageError(
            f"{dataset.root} holds {there[0].name}, which is of no data set: choose another "
            f"--output-dir"
        )


def _clear(dataset: Dataset, disk: Disk) -> None:
    """Remove what an interrupted run left; it is made in minutes, unlike features.

    Raises:
        UsageError: there are features, of a data set whose ``dataset.json`` is gone.
    """
    features = [file for part in PARTS for file in Layout(dataset.root, part, 0).feature_files()]
    if features:
        raise UsageError(
            f"{dataset.root} has features ({features[0].name}) but no {dataset.facts_file.name}: "
            f"choose another --output-dir, or start over with --force"
        )
    for path in _owned(dataset):
        disk.remove_tree(path)
    for part in PARTS:
        for folder in ("nucleotide", "protein"):
            disk.sweep(dataset.root / f"{part}_{folder}")
    disk.sweep(dataset.root)
    disk.sweep(dataset.spool.parent)


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
