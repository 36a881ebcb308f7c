"""What is known of the records: read from a table of labels or from a data set."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from virnucpro.errors import InputError
from virnucpro.evaluation.tables import Table, open_table
from virnucpro.training.data.dataset import FRAMES_HEADER, read_frames

_VIRUS = {"virus", "viral", "1"}
_OTHERS = {"others", "nonviral", "0"}
_NONE = {"", "-", "NA", "none"}
_FRAMES = tuple(FRAMES_HEADER.rstrip("\n").split("\t"))


class Origin(NamedTuple):
    """What a record or a chunk comes from.

    ``group`` is empty where the table has none; ``length`` the chunk length that was asked for, in
    bases, 0 where it does not say; ``part`` that of a data set, empty where there is none.
    """

    record: str
    virus: bool
    group: str
    genome: str
    length: int
    part: str


@dataclass
class Labels:
    """Origins by the id of a record, and, from a table of frames, by the id of a chunk."""

    records: dict[str, Origin] = field(default_factory=dict)
    chunks: dict[str, Origin] = field(default_factory=dict)
    blank: int = 0  # rows without a label

    def add(self, origin: Origin) -> None:
        """Note a record. The first row of a record stands.

        Raises:
            InputError: an earlier row says otherwise.
        """
        first = self.records.setdefault(origin.record, origin)
        if first.virus != origin.virus:
            raise InputError(
                f"record {origin.record!r} is labelled virus and others: make its id unique, or "
                f"correct the table"
            )


def read_labels(path: Path) -> Labels:
    """Read a table with columns ``record`` and ``label``, or the table of frames of a data set.

    ``group``, ``genome`` and ``part`` are read where they are there: ``genomes.tsv`` of a data set
    is such a table. A label is virus, viral or 1; others, nonviral or 0; or blank.

    Raises:
        UsageError: the file cannot be read.
        InputError: it is no such table, a label is another word, or nothing is labelled.
    """
    table = open_table(path)
    labels = _of_frames(path) if table.columns == _FRAMES else _of_records(table)
    if not labels.records:
        raise InputError(f"{path} labels no record: fill in its column label")
    return labels


def _of_frames(path: Path) -> Labels:
    """A chunk is in the table once a frame; its origin is kept once."""
    labels, kept = Labels(), dict[Origin, Origin]()
    part = path.name.partition("_")[0]
    for frame in read_frames(path):
        origin = Origin(
            frame.record, frame.label == "virus", frame.group, frame.genome, frame.length, part
        )
        origin = kept.setdefault(origin, origin)
        labels.chunks[frame.chunk] = origin
        labels.add(origin)
    return labels


def _of_records(table: Table) -> Labels:
    labels = Labels()
    for number, (record, word, group, genome, part) in _rows(table):
        label = word.strip()
        if label in _NONE:
            labels.blank += 1
            continue
        virus = label.lower() in _VIRUS
        if not virus and label.lower() not in _OTHERS:
            raise table.fault(
                number, f"label {label!r} is none of virus, viral, 1, others, nonviral, 0"
            )
        group = sys.intern(group.strip())
        labels.add(Origin(record, virus, group, genome.strip() or record, 0, sys.intern(part)))
    return labels


def _rows(table: Table) -> Iterator[tuple[int, list[str]]]:
    """Line number and record, label, group, genome, part; empty where there is no such column."""
    wanted = ("record", "label", "group", "genome", "part")
    there = [name for name in wanted if name in table.columns or name in wanted[:2]]
    places = [there.index(name) if name in there else None for name in wanted]
    for number, row in table.rows(*there):
        yield number, ["" if place is None else row[place] for place in places]
