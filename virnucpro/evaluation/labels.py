"""Read what is known of the records from a table of labels or from a data set."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from virnucpro.errors import InputError
from virnucpro.io.delimited import DelimitedTable, open_table
from virnucpro.tables import LABELLED_FRAMES
from virnucpro.training.data.dataset import read_frames

_VIRUS = {"virus", "viral", "1"}
_OTHERS = {"others", "nonviral", "0"}
_NONE = {"", "-", "NA", "none"}


class Label(NamedTuple):
    """What is known of a record or of a chunk.

    Attributes:
        record: its id.
        virus: whether it is from a virus.
        group: empty where the table has none.
        genome: the record where the table has none.
        length: the chunk length that was asked for, in bases; 0 where the table does not say.
        part: the part of a data set; empty where there is none.
    """

    record: str
    virus: bool
    group: str
    genome: str
    length: int
    part: str


@dataclass
class Labels:
    """Labels by the id of a record and, from a table of frames, by the id of a chunk."""

    records: dict[str, Label] = field(default_factory=dict)
    chunks: dict[str, Label] = field(default_factory=dict)
    blank: int = 0  # rows without a label

    def add(self, label: Label) -> None:
        """Add a record. Of several rows of one record the first counts.

        Raises:
            InputError: an earlier row has the other label.
        """
        first = self.records.setdefault(label.record, label)
        if first.virus != label.virus:
            raise InputError(
                f"record {label.record!r} is labelled virus and others: make its id unique, or "
                f"correct the table"
            )


def read_labels(path: Path) -> Labels:
    """Read a table with the columns ``record`` and ``label``, or the table of frames of a data set.

    The columns ``group``, ``genome`` and ``part`` are read too where they exist: ``genomes.tsv`` of
    a data set is such a table. A label is virus, viral or 1, or else others, nonviral or 0. It may
    be blank.

    Raises:
        UsageError: the file cannot be read.
        InputError: it is another table, a label is another word, or nothing is labelled.
    """
    table = open_table(path)
    labels = (
        _labels_of_frames(path)
        if table.columns == LABELLED_FRAMES.names
        else _labels_of_records(table)
    )
    if not labels.records:
        raise InputError(f"{path} has no row with a label: fill in its column label")
    return labels


def _labels_of_frames(path: Path) -> Labels:
    """Read a table with one row per frame. Frames of one chunk share one label object."""
    labels, known = Labels(), dict[Label, Label]()
    part = path.name.partition("_")[0]
    for frame in read_frames(path):
        label = Label(
            frame.record, frame.label == "virus", frame.group, frame.genome, frame.length, part
        )
        label = known.setdefault(label, label)
        labels.chunks[frame.chunk] = label
        labels.add(label)
    return labels


def _labels_of_records(table: DelimitedTable) -> Labels:
    labels = Labels()
    optional = [name for name in ("group", "genome", "part") if name in table.columns]
    for number, (record, text, *values) in table.rows("record", "label", *optional):
        word = text.strip()
        if word in _NONE:
            labels.blank += 1
            continue
        virus = word.lower() in _VIRUS
        if not virus and word.lower() not in _OTHERS:
            raise table.error(
                number, f"label {word!r} is none of virus, viral, 1, others, nonviral, 0"
            )
        known = dict(zip(optional, values, strict=True))
        genome = known.get("genome", "").strip() or record
        group, part = sys.intern(known.get("group", "").strip()), sys.intern(known.get("part", ""))
        labels.add(Label(record, virus, group, genome, 0, part))
    return labels
