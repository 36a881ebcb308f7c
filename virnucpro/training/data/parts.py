"""Writing the parts of a data set: which frames are taken, their shards and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.contracts import Json
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.frames import FRAME_LABELS
from virnucpro.layout import MOLECULES, Layout
from virnucpro.store.disk import Disk
from virnucpro.training.data.balance import balanced, shuffled
from virnucpro.training.data.cutting import Frames, frame_chunk, spans
from virnucpro.training.data.dataset import (
    FRAMES_HEADER,
    LABELS,
    PARTS,
    Dataset,
    LabelledFrame,
    Part,
)
from virnucpro.training.data.survey import Origin, Watch

GENOMES_HEADER = "record\tsource\tlabel\tgroup\tgenome\tpart\tbases\tchunks\tframes\tnote\n"
_NO_PART = len(PARTS)


@dataclass(frozen=True)
class Selection:
    """The frames of all records, and which of them are taken.

    Arrays ``[n]``, one entry a frame: ``parts`` is a place in ``PARTS``, ``virus`` its label.
    """

    origins: Sequence[Origin]
    lengths: Sequence[int]
    frames: Frames
    parts: npt.NDArray[np.int8]
    virus: npt.NDArray[np.bool_]
    taken: npt.NDArray[np.bool_]


def select(
    origins: Sequence[Origin], lengths: Sequence[int], frames: Frames, *, balance: bool, seed: int
) -> Selection:
    """Take all frames of test, and as many of each label in train and validation, by length."""
    part_of = np.array([PARTS.index(o.part) if o.part else _NO_PART for o in origins], np.int8)
    virus_of = np.array([o.row is not None and o.row.label == "virus" for o in origins], bool)
    names: dict[str, int] = {}
    group_of = np.array(
        [names.setdefault(o.row.group if o.row else "", len(names)) for o in origins], np.int32
    )
    parts, virus = part_of[frames.origins], virus_of[frames.origins]
    taken = np.ones(len(parts), bool)
    for number, part in enumerate(PARTS):
        if not balance or part == "test":
            continue
        for place, length in enumerate(lengths):
            own = np.flatnonzero((parts == number) & (frames.lengths == place))
            groups = group_of[frames.origins[own]]
            taken[own] = balanced(virus[own], groups, seed, number, length)
    return Selection(origins, lengths, frames, parts, virus, taken)


def write_parts(
    root: Dataset, chosen: Selection, shard_size: int, seed: int, disk: Disk, watch: Watch
) -> dict[str, Json]:
    """Write shards and frames tables; returns ``parts`` of ``dataset.json``.

    The frames of a part are shuffled over all lengths; counts those of each origin.
    """
    watch.begin("writing shards", int(chosen.taken.sum()))
    for number, count in enumerate(np.bincount(chosen.frames.origins[chosen.taken]).tolist()):
        chosen.origins[number].frames = count
    facts: dict[str, Json] = {}
    for number, part in enumerate(PARTS):
        own = np.flatnonzero((chosen.parts == number) & chosen.taken)
        if not len(own):
            continue
        order = own[shuffled(len(own), seed, number)]
        layout = Layout(root.root, part, chosen.lengths[0])
        shards = _write_shards(layout, chosen, order, shard_size, disk, watch)
        _write_table(root, part, chosen, order, disk)
        virus = int(chosen.virus[order].sum())
        facts[part] = {
            "shards": shards,
            "frames": len(order),
            "others": len(order) - virus,
            "virus": virus,
        }
    return facts


def _write_shards(
    layout: Layout,
    chosen: Selection,
    order: npt.NDArray[np.int64],
    shard_size: int,
    disk: Disk,
    watch: Watch,
) -> int:
    number = 0
    with chosen.frames.sequences() as sequences:
        for start in range(0, len(order), shard_size):
            number += 1
            rows = order[start : start + shard_size].tolist()
            names = [_labelled(chosen, row).frame for row in rows]
            for molecule in MOLECULES:
                pairs = ((n, sequences(r, molecule)) for n, r in zip(names, rows, strict=True))
                disk.save(layout.split(molecule, number), fasta_bytes(pairs), len(rows))
            watch.advance(len(rows))
    return number


def _write_table(
    root: Dataset, part: Part, chosen: Selection, order: npt.NDArray[np.int64], disk: Disk
) -> None:
    with disk.create(root.frames_table(part)) as table:
        table.write(FRAMES_HEADER.encode())
        for row in order.tolist():
            table.write(_labelled(chosen, row).row().encode(), 1)


def _labelled(chosen: Selection, frame: int) -> LabelledFrame:
    origin = chosen.origins[int(chosen.frames.origins[frame])]
    assert origin.row is not None
    length = chosen.lengths[int(chosen.frames.lengths[frame])]
    chunk = frame_chunk(origin.name, length, int(chosen.frames.chunks[frame]))
    label = FRAME_LABELS[int(chosen.frames.labels[frame])]
    row = origin.row
    return LabelledFrame(
        chunk + label, chunk, origin.name, origin.genome, row.group, row.label, length
    )


def write_genomes(root: Dataset, origins: Sequence[Origin], disk: Disk) -> None:
    """Write what became of every record."""
    with disk.create(root.genomes_table) as table:
        table.write(GENOMES_HEADER.encode())
        for o in origins:
            label, group = (o.row.label, o.row.group) if o.row else ("", "")
            part = o.part or ("dropped" if o.row else "unused")
            note = o.note or ("" if o.frames else "none of its frames is in the data set")
            fields = (o.name, o.source, label, group, o.genome, part, o.bases, o.chunks, o.frames)
            table.write(("\t".join(map(str, (*fields, note))) + "\n").encode(), 1)


def counts(chosen: Selection, stride: int | None) -> list[dict[str, Json]]:
    """Genomes, chunks, open frames and frames taken of each part, label and length."""
    rows: list[dict[str, Json]] = []
    by: dict[tuple[str, str], list[Origin]] = {}
    for o in chosen.origins:
        if o.part and o.row:
            by.setdefault((o.part, o.row.label), []).append(o)
    for number, part in enumerate(PARTS):
        for kind, label in enumerate(LABELS):
            own = by.get((part, label), [])
            for place, length in enumerate(chosen.lengths):
                frames = (
                    (chosen.parts == number)
                    & (chosen.virus == bool(kind))
                    & (chosen.frames.lengths == place)
                )
                rows.append(
                    {
                        "part": part,
                        "label": label,
                        "length": length,
                        "genomes": len({o.genome for o in own}),
                        "bases": sum(o.bases for o in own),
                        "chunks": sum(len(spans(o.bases, length, stride)) for o in own),
                        "open": int(frames.sum()),
                        "frames": int((frames & chosen.taken).sum()),
                    }
                )
    return rows
