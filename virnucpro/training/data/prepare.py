"""``train prepare``: make a labelled data set on disk from a table of genomes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from virnucpro.contracts import MOLECULES, Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Notice, Show, StepAdvanced, StepStarted
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.frames import FRAME_LABELS, chunk_id
from virnucpro.layout import existing_paths, files_inside
from virnucpro.metrics import Floats
from virnucpro.stages.splitting import frames_per_file
from virnucpro.store.disk import Disk, explain_write_errors
from virnucpro.store.documents import SCHEMAS
from virnucpro.store.hashed import HashedFile, hashed_input
from virnucpro.store.lock import locked
from virnucpro.store.work import WorkIdentity, check_same, checked_again, refuse_existing
from virnucpro.tables import GENOMES, LABELLED_FRAMES
from virnucpro.training.data.dataset import PARTS, Content, Dataset
from virnucpro.training.data.genomes import cut_genomes, survey_genomes, whole_genomes
from virnucpro.training.data.splits import assign_parts, check_genomes, drop_relatives
from virnucpro.training.data.table import SourceRow, read_genome_table
from virnucpro.version import __version__

if TYPE_CHECKING:
    import pandas as pd


def prepare_dataset(
    table: Path,
    dataset: Dataset,
    show: Show,
    *,
    genomes: Path,
    lengths: Sequence[int],
    content: Content = "frames",
    validation: float = 0.1,
    test: float = 0.1,
    relatives: float = 0.05,
    seed: int = 0,
    command: Sequence[str] = (),
    force: bool = False,
) -> dict[str, Json]:
    """Make the data set, unless the same one exists already; return ``dataset.json``.

    Args:
        table: the table of genome files, whose relative paths start from the folder ``genomes``.
        lengths: chunk lengths in bases; for records, those that models are trained for.
        content: whether the parts hold the open frames of chunks, or whole records.
        validation, test: the fractions of the genomes that go to these parts.
        relatives: the largest fraction of its 31-mers that a genome may share with held-out ones.
        seed: the seed of the parts, of the choice of frames and of their order.
    """
    disk = Disk()
    if test + validation > 1:
        raise UsageError("--test and --validation are together more than all genomes")
    if dataset.root.exists() and not dataset.root.is_dir():
        raise UsageError(f"--output-dir {dataset.root} is a file: name a folder")
    rows = read_genome_table(table, genomes)
    if not (force or dataset.lock.exists()):
        refuse_existing(_files_of(dataset))
    with locked(dataset.lock, "this data set"):
        files: dict[Path, list[SourceRow]] = {}
        for row in rows:
            files.setdefault(row.path, []).append(row)
        sources = []
        show(StepStarted("checksums of the genomes", len(files)))
        for path, of_file in files.items():
            sources.append((hashed_input(path), of_file))
            show(StepAdvanced(1))
        row_text = json.dumps([row.identity() for row in rows])
        identity: dict[str, Json] = {
            "content": content,
            "validation": validation,
            "test": test,
            "relatives": relatives,
            "seed": seed,
            "lengths": list(lengths),
            "table": hashlib.sha256(row_text.encode()).hexdigest(),
            "sources": [{"file": of[0].file, "sha256": file.sha256} for file, of in sources],
        }
        wanted = _work_identity(dataset, identity)
        if dataset.description_file.exists() and not force:
            earlier = Dataset(dataset.root).description
            values = {name: earlier.get(name) for name in identity}
            check_same(wanted, _work_identity(dataset, values), dataset.root)
            show(Notice("info", checked_again(wanted.label)))
            return earlier
        description = {
            "schema": SCHEMAS["data set"],
            "version": __version__,
            "command": list(command),
            **identity,
            **_written(table, identity, sources, dataset, disk, show),
        }
        # This file is written last: a folder without it holds no data set.
        disk.save(dataset.description_file, (json.dumps(description, indent=1) + "\n").encode())
    return description


def _written(
    table: Path,
    identity: Mapping[str, Json],
    sources: Sequence[tuple[HashedFile, Sequence[SourceRow]]],
    dataset: Dataset,
    disk: Disk,
    show: Show,
) -> dict[str, Json]:
    """Write all files except ``dataset.json``, and return what that file says about them."""
    import pandas as pd

    seed, found = identity["seed"], list[dict[str, Any]]()
    with explain_write_errors(dataset.root), tempfile.TemporaryFile(dir=dataset.root) as spool:
        chosen = survey_genomes(table, sources, found, show)
        if identity["content"] == "records":
            places = whole_genomes(chosen, spool)
        else:
            frames = cut_genomes(chosen, identity["lengths"], spool)
        records = pd.DataFrame(found)
        check_genomes(table, records)
        assign_parts(records, test=identity["test"], validation=identity["validation"], seed=seed)
        drop_relatives(records, identity["relatives"])
        if not records.loc[records["part"].isin(PARTS), "bases"].any():
            raise InputError(f"{table}: no record of the genome files has any bases")
        # What an earlier start left is made anew in minutes.
        for path in _files_of(dataset):
            disk.remove(path)
        disk.sweep(dataset.root)
        if identity["content"] == "records":
            sizes = write_records(dataset, records, places, spool, disk, show)
        else:
            owners = records.loc[frames["number"], ["part", "group", "label"]]
            frames[["part", "group"]] = owners[["part", "group"]].to_numpy()
            frames["virus"] = owners["label"].to_numpy() == "virus"
            frames = frames[frames["part"].isin(PARTS)]
            if frames.empty:
                raise InputError("no genome of the table has an open frame in a chunk")
            frames = frames[balanced(frames, seed)]
            counts = frames["number"].value_counts()
            records["frames"] = counts.reindex(records.index, fill_value=0)
            sizes = write_frames(dataset, records, frames, spool, seed, disk, show)
    columns = records[list(GENOMES.row._fields)]
    text = GENOMES.header + GENOMES.lines(**columns)
    disk.save(dataset.genomes_table, text.encode(), len(records))
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
    """Return the files of a data set that are there, ``dataset.json`` first."""
    files = [dataset.description_file, dataset.genomes_table]
    for part in PARTS:
        layout = dataset.layout(part)
        files += [dataset.records_file(part), dataset.frames_table(part)]
        files += [*layout.owned(), *files_inside(layout.folders.values())]
    return existing_paths(*files)


def random_numbers(count: int, *seeds: int) -> Floats:
    """Return ``[count]`` numbers between 0 and 1 that depend on ``seeds`` only.

    They are the raw output of PCG-64, which NumPy keeps the same between versions (NEP 19).
    """
    raw = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    return ((raw >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53


def balanced(frames: pd.DataFrame, seed: int) -> pd.Series:
    """Return which frames to take, so that either label has the same number of them.

    That is for each chunk length of train and of validation. All frames of the test part are taken,
    and all where a label has none. Of the larger label, frames are drawn without replacement, each
    by the inverse root of the size of its group (Efraimidis and Spirakis 2006,
    doi:10.1016/j.ipl.2005.11.003): a group of a hundred times the size gives about ten times as
    many. In proportion to the sizes, two bacterial genomes would make up most of the class. The
    same number of each group would use little of the diverse groups and all of the poor ones.
    """
    sides = ["part", "length", "virus"]
    sizes = frames.groupby([*sides, "group"])["number"].transform("size")
    keys = -np.log(random_numbers(len(frames), seed)) * np.sqrt(sizes)
    ranks = keys.groupby([frames[name] for name in sides]).rank(method="first")
    virus = frames.groupby(sides[:2])["virus"]
    viruses = virus.transform("sum")
    fewer = np.minimum(viruses, virus.transform("size") - viruses)
    return (ranks <= fewer) | (fewer == 0) | (frames["part"] == "test")


def write_frames(
    dataset: Dataset,
    records: pd.DataFrame,
    frames: pd.DataFrame,
    sequences: IO[bytes],
    seed: int,
    disk: Disk,
    show: Show,
) -> dict[str, Json]:
    """Write shards and frames tables, and return ``parts`` of ``dataset.json``.

    The frames of a part are shuffled over all lengths.
    """
    show(StepStarted("writing shards", len(frames)))
    content = np.memmap(sequences, np.uint8, "r")
    sizes: dict[str, Json] = {}
    for part_number, part in enumerate(PARTS):
        members = frames[frames["part"] == part]
        if members.empty:
            continue
        members = members.iloc[np.argsort(random_numbers(len(members), seed, part_number))]
        size = frames_per_file(len(members), proteins=True)
        starts, layout = range(0, len(members), size), dataset.layout(part)
        with disk.create(dataset.frames_table(part)) as table:
            table.write(LABELLED_FRAMES.header.encode())
            for shard, start in enumerate(starts, 1):
                rows = members.iloc[start : start + size]
                owners = records.loc[rows["number"], ["record", "genome", "group", "label"]]
                places = zip(owners["record"], rows["length"], rows["chunk"], strict=True)
                chunks = [chunk_id(f"{name}_{length}bp", number) for name, length, number in places]
                numbered = zip(chunks, rows["label"], strict=True)
                names = [chunk + FRAME_LABELS[label] for chunk, label in numbered]
                columns = {"frame": names, "chunk": chunks, **owners, "length": rows["length"]}
                table.write(LABELLED_FRAMES.lines(**columns).encode(), len(rows))
                first = rows["offset"]
                for molecule, letters in zip(MOLECULES, ("bases", "residues"), strict=True):
                    ends = zip(first, first + rows[letters], strict=True)
                    texts = (content[start:end].tobytes().decode() for start, end in ends)
                    fasta = fasta_bytes(zip(names, texts, strict=True))
                    disk.save(layout.split(molecule, shard), fasta, len(rows))
                    first = first + rows[letters]  # residues stand behind the bases
                show(StepAdvanced(len(rows)))
        sizes[part] = {"shards": len(starts), "frames": len(members)}
    return sizes


def write_records(
    dataset: Dataset,
    records: pd.DataFrame,
    places: Mapping[int, int],
    sequences: IO[bytes],
    disk: Disk,
    show: Show,
) -> dict[str, Json]:
    """Write the FASTA file of each part that has records, and return ``parts``.

    A record has two lines: its unique name, and its sequence.
    """
    content, sizes = np.memmap(sequences, np.uint8, "r"), dict[str, Json]()
    members = records[records["part"].isin(PARTS)]
    show(StepStarted("writing records", len(members)))
    for part, rows in members.groupby("part"):
        with disk.create(dataset.records_file(part)) as out:
            for number, name, bases in zip(rows.index, rows["record"], rows["bases"], strict=True):
                letters = content[places[number] : places[number] + bases]
                out.write(f">{name}\n".encode() + letters.tobytes() + b"\n", 1)
                show(StepAdvanced(1))
        sizes[part] = {"records": len(rows), "bases": int(rows["bases"].sum())}
    return sizes
