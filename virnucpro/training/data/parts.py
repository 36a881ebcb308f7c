"""The parts of a data set: which frames are taken, and the files of frames or of records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

import numpy as np

from virnucpro.contracts import MOLECULES, Json
from virnucpro.events import StepProgress
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.frames import FRAME_LABELS, chunk_id
from virnucpro.metrics.classification import Floats
from virnucpro.stages.splitting import frames_per_file
from virnucpro.store.disk import Disk
from virnucpro.tables import LABELLED_FRAMES
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.training.data.genbank import GenomeRecord

if TYPE_CHECKING:
    import pandas as pd


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
    progress: StepProgress,
) -> dict[str, Json]:
    """Write shards and frames tables, and return ``parts`` of ``dataset.json``.

    The frames of a part are shuffled over all lengths.
    """
    progress.begin("writing shards", len(frames))
    content = np.memmap(sequences, np.uint8, "r")
    sizes: dict[str, Json] = {}
    for part_number, part in enumerate(PARTS):
        members = frames[frames["part"] == part]
        if members.empty:
            continue
        members = members.iloc[np.argsort(random_numbers(len(members), seed, part_number))]
        size = frames_per_file(len(members), proteins=True)
        starts = range(0, len(members), size)
        layout = dataset.layout(part)
        with disk.create(dataset.frames_table(part)) as table:
            table.write(LABELLED_FRAMES.header.encode())
            for shard, start in enumerate(starts, 1):
                lines, nucleotides, proteins = [], [], []
                rows = members.iloc[start : start + size]
                owners = records.loc[rows["number"], ["record", "genome", "group", "label"]]
                for frame, (record, *names) in zip(
                    rows.itertuples(), owners.itertuples(index=False), strict=True
                ):
                    chunk = chunk_id(f"{record}_{frame.length}bp", frame.chunk)
                    name = chunk + FRAME_LABELS[frame.label]
                    lines.append((name, chunk, record, *names, frame.length))
                    middle = frame.offset + frame.bases
                    text = content[frame.offset : middle + frame.residues].tobytes().decode()
                    nucleotides.append((name, text[: frame.bases]))
                    proteins.append((name, text[frame.bases :]))
                columns = dict(
                    zip(LABELLED_FRAMES.row._fields, zip(*lines, strict=True), strict=True)
                )
                table.write(LABELLED_FRAMES.lines(**columns).encode(), len(lines))
                for molecule, pairs in zip(MOLECULES, (nucleotides, proteins), strict=True):
                    disk.save(layout.split(molecule, shard), fasta_bytes(pairs), len(pairs))
                progress.advance(len(rows))
        sizes[part] = {"shards": len(starts), "frames": len(members)}
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
    members = records[records["part"].isin(PARTS)].groupby("part")["bases"]
    sizes = {p: {"records": len(b), "bases": int(b.sum())} for p, b in members}
    progress.begin("writing records", sum(size["bases"] for size in sizes.values()))
    with ExitStack() as stack:
        files = {p: stack.enter_context(disk.create(dataset.records_file(p))) for p in sizes}
        for number, record in sources:
            out = files[records.at[number, "part"]]
            out.write(f">{records.at[number, 'record']}\n".encode())
            out.write(record.sequence.encode("ascii").translate(_LETTERS))
            out.write(b"\n", 1)
            progress.advance(len(record.sequence))
    return sizes
