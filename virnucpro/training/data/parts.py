"""The parts of a data set: which frames are taken, their shards, their tables and their counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from typing import get_args

import numpy as np
import numpy.typing as npt

from virnucpro.contracts import Json
from virnucpro.events import StepProgress
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.text import shortened
from virnucpro.layout import MOLECULES, Layout
from virnucpro.store.disk import Disk
from virnucpro.tables import GENOMES, LABELLED_FRAMES
from virnucpro.training.data.dataset import (
    LABELS,
    PARTS,
    Content,
    Dataset,
    Label,
    Part,
)
from virnucpro.training.data.genomes import (
    CutFrames,
    GenomeSurvey,
    Reason,
    SurveyedRecord,
    chunk_positions,
    records_of_parts,
)

Indices = npt.NDArray[np.int64]


# --- which frames are taken, and in which order ----------------------------------------------


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


def shuffled(count: int, *seeds: int) -> Indices:
    """Return the numbers below ``count`` in an order that depends on ``seeds`` only: ``[count]``.

    The order is made from the raw output of PCG-64, which NumPy keeps the same between versions
    (NEP 19), unlike the output of its ``permutation``.
    """
    keys = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    return np.argsort(keys, kind="stable")


def balanced(
    virus: npt.NDArray[np.bool_], groups: npt.NDArray[np.int32], *seeds: int
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


def balance_frames(frames: CutFrames, lengths: Sequence[int], seed: int) -> None:
    """Take the same number of frames of each label in train and validation, for each length.

    All frames of the test part are taken.
    """
    rows, names = frames.rows, [r.row.group if r.row else "" for r in frames.records]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    group_of = np.array([numbers[name] for name in names], np.int32)
    for part_number, part in enumerate(PARTS):
        for length in lengths if part != "test" else ():
            candidates = np.flatnonzero((rows["part"] == part_number) & (rows["length"] == length))
            groups = group_of[rows["record"][candidates]]
            virus = rows["virus"][candidates]
            rows["taken"][candidates] = balanced(virus, groups, seed, part_number, length)


# --- writing ---------------------------------------------------------------------------------


def write_parts(
    dataset: Dataset,
    frames: CutFrames,
    shard_size: int,
    seed: int,
    disk: Disk,
    progress: StepProgress,
) -> dict[str, Json]:
    """Write shards and frames tables, and return ``parts`` of ``dataset.json``.

    The frames of a part are shuffled over all lengths. The frames of each record are counted.
    """
    rows = frames.rows
    progress.begin("writing shards", int(rows["taken"].sum()))
    for number, count in enumerate(np.bincount(rows["record"][rows["taken"]]).tolist()):
        frames.records[number].frames = count
    sizes: dict[str, Json] = {}
    for part_number, part in enumerate(PARTS):
        members = np.flatnonzero((rows["part"] == part_number) & rows["taken"])
        if not len(members):
            continue
        order = members[shuffled(len(members), seed, part_number)].tolist()
        shards = [order[start : start + shard_size] for start in range(0, len(order), shard_size)]
        # The description of the data set, which Dataset.layout reads, is written last.
        layout = Layout(dataset.root, part)
        with disk.create(dataset.frames_table(part)) as table:
            table.write(LABELLED_FRAMES.header.encode())
            for shard, numbers in enumerate(shards, 1):
                names = [frames.labelled(number) for number in numbers]
                for name in names:
                    table.write(name.row().encode(), 1)
                for molecule in MOLECULES:
                    sequences = (frames.sequence(number, molecule) for number in numbers)
                    ids = (name.frame for name in names)
                    content = fasta_bytes(zip(ids, sequences, strict=True))
                    disk.save(layout.split(molecule, shard), content, len(numbers))
                progress.advance(len(numbers))
        virus = int(rows["virus"][order].sum())
        sizes[part] = {
            "shards": len(shards),
            "frames": len(order),
            "others": len(order) - virus,
            "virus": virus,
        }
    return sizes


_LETTERS = bytearray(b"N" * 256)  # what is written for each letter of a genome file
for _base in b"ACGT":
    _LETTERS[_base] = _LETTERS[_base + 32] = _base  # upper and lower case


def write_records(
    dataset: Dataset, survey: GenomeSurvey, disk: Disk, progress: StepProgress
) -> dict[str, Json]:
    """Write the FASTA file of each part that has records, and return ``parts``.

    A record has two lines: its unique name, and its sequence in upper case, with ``N`` for every
    letter other than ``A``, ``C``, ``G`` and ``T``.

    Raises:
        InputError: a genome file changed since the survey.
        OutputError: the disk is full or unwritable.
    """
    sizes: dict[str, Json] = {}
    groups = records_by_label(survey.records)
    for part in PARTS:
        numbers = {label: len(groups[part, label]) for label in LABELS}
        if any(numbers.values()):
            bases = sum(record.bases for label in LABELS for record in groups[part, label])
            sizes[part] = {"records": sum(numbers.values()), **numbers, "bases": bases}
    progress.begin("writing records", sum(size["bases"] for size in sizes.values()))
    with ExitStack() as stack:
        files = {
            part: stack.enter_context(disk.create(dataset.records_file(part)))
            for part in PARTS
            if part in sizes
        }
        for number, record in records_of_parts(survey):
            surveyed = survey.records[number]
            assert surveyed.part is not None
            out = files[surveyed.part]
            out.write(f">{surveyed.name}\n".encode())
            out.write(record.sequence.encode("ascii").translate(_LETTERS))
            out.write(b"\n", 1)
            progress.advance(surveyed.bases)
    return sizes


def write_genomes_table(
    dataset: Dataset, content: Content, records: Sequence[SurveyedRecord], disk: Disk
) -> None:
    """Write the table that says where every record went."""
    without_frames = "none of its frames is in the data set" if content == "frames" else ""
    with disk.create(dataset.genomes_table) as table:
        table.write(GENOMES.header.encode())
        for record in records:
            line = GENOMES.line(
                record=record.name,
                source=record.source,
                label=record.row.label if record.row else "",
                group=record.row.group if record.row else "",
                genome=record.genome,
                taxon=record.taxon,
                part=record.part or ("dropped" if record.row else "unused"),
                bases=record.bases,
                chunks=record.chunks,
                frames=record.frames,
                note=record.note or ("" if record.frames else without_frames),
            )
            table.write(line.encode(), 1)


# --- counts for the summary ------------------------------------------------------------------


def count_records(records: Sequence[SurveyedRecord]) -> dict[str, Json]:
    """Return the numbers of genomes, records and bases."""
    return {
        "genomes": len({record.genome for record in records}),
        "records": len(records),
        "bases": sum(record.bases for record in records),
    }


def records_by_label(
    records: Sequence[SurveyedRecord],
) -> dict[tuple[Part, Label], list[SurveyedRecord]]:
    """Return the records of each part and label, also where there are none."""
    groups: dict[tuple[Part, Label], list[SurveyedRecord]] = {
        (part, label): [] for part in PARTS for label in LABELS
    }
    for record in records:
        if record.part and record.row:
            groups[record.part, record.row.label].append(record)
    return groups


def frame_counts(
    frames: CutFrames, lengths: Sequence[int], stride: int | None
) -> list[dict[str, Json]]:
    """Return genomes, chunks, open frames and frames taken, by part, label and length."""
    counts: list[dict[str, Json]] = []
    rows = frames.rows
    for (part, label), records in records_by_label(frames.records).items():
        members = rows[(rows["part"] == PARTS.index(part)) & (rows["virus"] == (label == "virus"))]
        sizes = count_records(records)
        for length in lengths:
            own = members[members["length"] == length]
            chunks = (len(chunk_positions(record.bases, length, stride)) for record in records)
            counts.append(
                {
                    "part": part,
                    "label": label,
                    "length": length,
                    "genomes": sizes["genomes"],
                    "bases": sizes["bases"],
                    "chunks": sum(chunks),
                    "open": len(own),
                    "frames": int(own["taken"].sum()),
                }
            )
    return counts


def record_counts(records: Sequence[SurveyedRecord]) -> list[dict[str, Json]]:
    """Return genomes, records and bases by part and label."""
    return [
        {"part": part, "label": label, **count_records(members)}
        for (part, label), members in records_by_label(records).items()
    ]


def left_out_counts(records: Sequence[SurveyedRecord]) -> list[dict[str, Json]]:
    """Return genomes, records and bases that went to no part, by reason."""
    return [
        {"reason": reason, **count_records([r for r in records if r.reason == reason])}
        for reason in get_args(Reason)
    ]


def part_notices(
    content: Content,
    sizes: dict[str, Json],
    requested_parts: set[str],
    records: Sequence[SurveyedRecord],
) -> list[str]:
    """Return a sentence for each part, and each label of a part, that is empty.

    ``sizes`` are ``parts`` of ``dataset.json``. A part that was not requested may be empty.
    Another sentence names taxa that are in several parts.
    """
    notices = []
    for part in PARTS:
        if part not in sizes:
            if part in requested_parts:
                notices.append(
                    f"{part} has no {content}: there are few genomes, and their names decide; take "
                    f"another --seed or a larger fraction, or name the part in the split column"
                )
            continue
        notices += [
            f"{part} has no {content} of label {label}: nothing can be learned or measured there"
            for label in LABELS
            if not sizes[part][label]
        ]
    parts_of: dict[str, set[Part]] = defaultdict(set)
    for record in records:
        if record.part:
            parts_of[record.taxon].add(record.part)
    if divided := [taxon for taxon, parts in parts_of.items() if len(parts) > 1]:
        notices.append(
            f"{len(divided):,} taxa are in several parts, because rows name the part of some of "
            f"their genomes: {', '.join(map(shortened, divided[:3]))}"
        )
    return notices
