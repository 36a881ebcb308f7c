"""The parts of a data set: which frames are taken, their shards, their tables and their counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virnucpro.contracts import Json
from virnucpro.events import StepProgress
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.frames import FRAME_LABELS, chunk_id
from virnucpro.io.text import shortened
from virnucpro.layout import MOLECULES, Layout
from virnucpro.stages.splitting import frames_per_file
from virnucpro.store.disk import Disk
from virnucpro.tables import GENOMES, LABELLED_FRAMES
from virnucpro.training.data.dataset import LABELS, PARTS, Dataset
from virnucpro.training.data.genbank import GenomeRecord
from virnucpro.training.data.genomes import chunk_positions

if TYPE_CHECKING:
    import pandas as pd

REASONS = ("related", "elsewhere", "unused")  # why a record is in no part


def quotas(sizes: Sequence[int], target: int) -> list[int]:
    """Return how many frames of each group are taken, so that there are ``target`` in all.

    The numbers are in proportion to the square root of the ``sizes``. In proportion to the sizes
    themselves, two bacterial genomes would make up most of the class. The same number of each
    group would use little of the diverse groups and all of the poor ones. With the square root, a
    group of a hundred times the size counts ten times. A group that is smaller than its quota is
    taken whole, and the other groups share the rest.
    """
    if target >= sum(sizes):
        return list(sizes)
    remaining_target = float(target)
    roots = [float(np.sqrt(size)) for size in sizes]
    remaining_roots = sum(roots)
    exact = [0.0] * len(sizes)
    for group in sorted(range(len(sizes)), key=lambda number: sizes[number]):
        # From the smallest group on: after the first that is not taken whole, no larger one is.
        quota = remaining_target * roots[group] / remaining_roots if remaining_roots else 0.0
        exact[group] = min(float(sizes[group]), quota)
        remaining_target -= exact[group]
        remaining_roots -= roots[group]
    taken = [int(number) for number in exact]
    by_fraction = sorted(range(len(sizes)), key=lambda group: (taken[group] - exact[group], group))
    for group in by_fraction[: target - sum(taken)]:
        taken[group] += 1
    return taken


def shuffled(count: int, *seeds: int) -> npt.NDArray[np.int64]:
    """Return the numbers below ``count`` in an order that depends on ``seeds`` only: ``[count]``.

    The order is made from the raw output of PCG-64, which NumPy keeps the same between versions
    (NEP 19), unlike the output of its ``permutation``.
    """
    keys = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    return np.argsort(keys, kind="stable")


def balanced(
    virus: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64], *seeds: int
) -> npt.NDArray[np.bool_]:
    """Return which frames to take so that both classes have the same number: bool ``[n]``.

    ``virus`` says which frames are viral, ``groups`` holds the group of each frame. If a class has
    no frames, all frames are taken.
    """
    taken = np.ones(len(virus), bool)
    counts = int((~virus).sum()), int(virus.sum())
    if min(counts) == 0 or counts[0] == counts[1]:
        return taken
    larger = virus if counts[1] > counts[0] else ~virus
    members = [np.flatnonzero(larger & (groups == group)) for group in np.unique(groups[larger])]
    group_quotas = quotas([len(frames) for frames in members], min(counts))
    for number, (frames, quota) in enumerate(zip(members, group_quotas, strict=True)):
        taken[frames[shuffled(len(frames), *seeds, number)[quota:]]] = False
    return taken


def labelled(
    records: pd.DataFrame, frames: npt.NDArray[np.void], seed: int, *, balance: bool
) -> pd.DataFrame:
    """Return the frames with part, label and group of their records, and whether they are taken.

    With ``balance``, train and validation get the same number of frames of each label, for each
    length. All frames of the test part are taken.
    """
    import pandas as pd

    table = pd.DataFrame(frames)
    of_record = records.loc[table["number"]].reset_index(drop=True)
    table["part"], table["virus"] = of_record["part"], of_record["label"] == "virus"
    table["group"] = pd.factorize(records["group"])[0][table["number"]]
    table["taken"] = True
    if balance:
        for (part, length), rows in table[table["part"] != "test"].groupby(["part", "length"]):
            virus, groups = rows["virus"].to_numpy(), rows["group"].to_numpy()
            taken = balanced(virus, groups, seed, PARTS.index(part), length)
            table.loc[rows.index, "taken"] = taken
    return table


def write_frames(
    dataset: Dataset,
    records: pd.DataFrame,
    frames: pd.DataFrame,
    sequences: Path,
    shard_size: int | None,
    seed: int,
    disk: Disk,
    progress: StepProgress,
) -> dict[str, Json]:
    """Write shards and frames tables, and return ``parts`` of ``dataset.json``.

    The frames of a part are shuffled over all lengths. ``shard_size`` is the most of a shard.
    """
    progress.begin("writing shards", int(frames["taken"].sum()))
    content = np.memmap(sequences, np.uint8, "r")
    row_of = LABELLED_FRAMES.row_format(*LABELLED_FRAMES.names)
    sizes: dict[str, Json] = {}
    for part_number, part in enumerate(PARTS):
        members = frames[(frames["part"] == part) & frames["taken"]]
        if members.empty:
            continue
        members = members.iloc[shuffled(len(members), seed, part_number)]
        size = frames_per_file(len(members), proteins=True, most=shard_size)
        starts = range(0, len(members), size)
        # The description of the data set, which Dataset.layout reads, is written last.
        layout = Layout(dataset.root, part)
        with disk.create(dataset.frames_table(part)) as table:
            table.write(LABELLED_FRAMES.header.encode())
            for shard, start in enumerate(starts, 1):
                nucleotides, proteins = [], []
                rows = members.iloc[start : start + size]
                owners = records.loc[rows["number"], ["record", "genome", "group", "label"]]
                for frame, (record, *names) in zip(
                    rows.itertuples(), owners.itertuples(index=False), strict=True
                ):
                    chunk = chunk_id(f"{record}_{frame.length}bp", frame.chunk)
                    name = chunk + FRAME_LABELS[frame.label]
                    line = row_of(name, chunk, record, *names, frame.length)
                    table.write(line.encode(), 1)
                    middle = frame.offset + frame.bases
                    text = content[frame.offset : middle + frame.residues].tobytes().decode()
                    nucleotides.append((name, text[: frame.bases]))
                    proteins.append((name, text[frame.bases :]))
                for molecule, pairs in zip(MOLECULES, (nucleotides, proteins), strict=True):
                    disk.save(layout.split(molecule, shard), fasta_bytes(pairs), len(pairs))
                progress.advance(len(rows))
        virus = int(members["virus"].sum())
        numbers = {"others": len(members) - virus, "virus": virus}
        sizes[part] = {"shards": len(starts), "frames": len(members), **numbers}
    return sizes


_LETTERS = bytearray(b"N" * 256)  # what is written for each letter of a genome file
for _base in b"ACGT":
    _LETTERS[_base] = _LETTERS[_base + 32] = _base  # upper and lower case


def write_records(
    dataset: Dataset,
    records: pd.DataFrame,
    sources: Iterator[tuple[int, GenomeRecord]],
    disk: Disk,
    progress: StepProgress,
) -> dict[str, Json]:
    """Write the FASTA file of each part that has records, and return ``parts``.

    A record has two lines: its unique name, and its sequence in upper case, with ``N`` for every
    letter other than ``A``, ``C``, ``G`` and ``T``.
    """
    sizes: dict[str, Json] = {}
    with ExitStack() as stack:
        files = {}
        for part in PARTS:
            members = records[records["part"] == part]
            if not members.empty:
                counts = {label: int((members["label"] == label).sum()) for label in LABELS}
                bases = int(members["bases"].sum())
                sizes[part] = {"records": len(members), **counts, "bases": bases}
                files[part] = stack.enter_context(disk.create(dataset.records_file(part)))
        progress.begin("writing records", sum(size["bases"] for size in sizes.values()))
        for number, record in sources:
            out = files[records.at[number, "part"]]
            out.write(f">{records.at[number, 'record']}\n".encode())
            out.write(record.sequence.encode("ascii").translate(_LETTERS))
            out.write(b"\n", 1)
            progress.advance(len(record.sequence))
    return sizes


def write_genomes_table(dataset: Dataset, records: pd.DataFrame, disk: Disk) -> None:
    """Write the table that says where every record went."""
    with disk.create(dataset.genomes_table) as table:
        table.write(GENOMES.header.encode())
        for row in records[list(GENOMES.names)].to_dict("records"):
            table.write(GENOMES.line(**row).encode(), 1)


def _amounts(records: pd.DataFrame) -> dict[str, Json]:
    bases = int(records["bases"].sum())
    return {"genomes": records["genome"].nunique(), "records": len(records), "bases": bases}


def part_counts(
    records: pd.DataFrame, frames: pd.DataFrame | None, lengths: Sequence[int], stride: int | None
) -> list[dict[str, Json]]:
    """Return amounts by part and label; with ``frames`` also by length, with theirs."""
    counts: list[dict[str, Json]] = []
    for part, label in product(PARTS, LABELS):
        members = records[(records["part"] == part) & (records["label"] == label)]
        if members.empty:
            continue
        if frames is None:
            counts.append({"part": part, "label": label, **_amounts(members)})
            continue
        own = frames[(frames["part"] == part) & (frames["virus"] == (label == "virus"))]
        for length in lengths:
            taken = own.loc[own["length"] == length, "taken"]
            amounts = {
                "genomes": members["genome"].nunique(),
                "bases": int(members["bases"].sum()),
                "chunks": sum(len(chunk_positions(b, length, stride)) for b in members["bases"]),
                "open": len(taken),
                "frames": int(taken.sum()),
            }
            counts.append({"part": part, "label": label, "length": length, **amounts})
    return counts


def left_out_counts(records: pd.DataFrame) -> list[dict[str, Json]]:
    """Return the amounts that went to no part, by reason."""
    return [
        {"reason": reason, **_amounts(records[records["reason"] == reason])} for reason in REASONS
    ]


def part_notices(
    sizes: dict[str, Json], content: str, requested_parts: set[str], records: pd.DataFrame
) -> list[str]:
    """Return a sentence for each part or label that is empty, and one on divided taxa.

    ``sizes`` are ``parts`` of ``dataset.json``. A part that was not requested may be empty.
    """
    notices = []
    for part in PARTS:
        if part in sizes:
            notices += [
                f"{part} has no {content} of label {label}: nothing can be learned or measured "
                f"there"
                for label in LABELS
                if not sizes[part][label]
            ]
        elif part in requested_parts:
            notices.append(
                f"{part} has no {content}: there are few genomes, and their names decide; take "
                f"another --seed or a larger fraction, or name the part in the split column"
            )
    counts = records[records["part"].isin(PARTS)].groupby("taxon")["part"].nunique()
    if len(divided := counts.index[counts > 1]):
        notices.append(
            f"{len(divided):,} taxa are in several parts, because rows name the part of some of "
            f"their genomes: {', '.join(map(shortened, divided[:3]))}"
        )
    return notices
