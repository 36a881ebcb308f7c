"""A labelled data set on disk: what ``train prepare`` writes and all other training reads.

::

    DATASET/
      dataset.json                 how it was made, and the size of every part
      genomes.tsv                  one row a record: source, genome, group, label, part, reason
      train_frames.tsv             one row a frame, in the order of the shards
      train_nucleotide/output_1.fa ...   shards of at most ``shard_size`` frames
      train_protein/output_1.fa ...      the same frames as proteins
      validation_...  test_...

A part has the layout of stages 3 to 6 of a run whose stem is the part's name, so its shards are
embedded and merged by the stages of ``predict``; ``train_merged/output_1_merged.pt`` are features.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.contracts import Json
from virnucpro.errors import InputError, UsageError
from virnucpro.layout import Layout, ShardLayout

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
Label = Literal["others", "virus"]
LABELS: tuple[Label, Label] = ("others", "virus")  # class 0 and 1 of every classifier
SCHEMA = 1
FRAMES_HEADER = "frame\tchunk\trecord\tgenome\tgroup\tlabel\tlength\n"


@dataclass(frozen=True, slots=True)
class LabelledFrame:
    """An open frame of a chunk of known origin.

    Attributes:
        frame: its id in the shards: the chunk's id and the frame's label (``...F1``).
        chunk: id of the chunk; unique in the data set.
        record: id of the record the chunk was cut from.
        genome: what is never divided between the parts.
        group: name under which results are reported (a family, a source file).
        label: ``virus`` or ``others``.
        length: chunk length that was asked for, in bases; the chunk of a short record is shorter.
    """

    frame: str
    chunk: str
    record: str
    genome: str
    group: str
    label: Label
    length: int

    def row(self) -> str:
        """Its line of the frames table."""
        return (
            f"{self.frame}\t{self.chunk}\t{self.record}\t{self.genome}\t{self.group}\t"
            f"{self.label}\t{self.length}\n"
        )


@dataclass(frozen=True)
class Dataset:
    """The files of a data set in the folder ``root``."""

    root: Path

    @property
    def facts_file(self) -> Path:
        """How it was made."""
        return self.root / "dataset.json"

    @property
    def genomes_table(self) -> Path:
        """One row a record of the sources, with the part it went to, or why to none."""
        return self.root / "genomes.tsv"

    @property
    def lock(self) -> Path:
        """Held while the data set is made."""
        return self.root / ".checkpoints" / "dataset.locked"

    @property
    def spool(self) -> Path:
        """All open frames, while the data set is made."""
        return self.root / ".checkpoints" / "dataset.spool"

    @property
    def previous(self) -> Path:
        """An earlier data set that ``--force`` moved aside."""
        return self.root / ".checkpoints" / "dataset.previous"

    def frames_table(self, part: Part) -> Path:
        """One row a frame of ``part``, in the order of its shards."""
        return self.root / f"{part}_frames.tsv"

    def layout(self, part: Part) -> Layout:
        """Shards, features and state of ``part``, as those of a run."""
        return ShardLayout(self.root, part, self.lengths()[0])

    def facts(self) -> dict[str, Json]:
        """The content of ``dataset.json``.

        ``schema``, ``lengths`` (bases), ``shard_size``, ``seed``, ``version`` of the program,
        ``command``, ``sources`` (file, sha256) and ``parts``: for each that has frames its
        ``shards``, ``frames``, and of these ``others`` and ``virus``. Also the other settings it
        was made with, and for its summary ``counts``, ``left_out`` and ``notices``.

        Raises:
            UsageError: there is no data set here.
            InputError: the file is damaged or from a newer program.
        """
        try:
            said = json.loads(self.facts_file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(
                f"{self.root} is no data set ({self.facts_file.name}: {error.strerror}): make one "
                f"with virnucpro train prepare"
            ) from error
        except ValueError as error:
            raise InputError(f"{self.facts_file} is damaged: make the data set again") from error
        if not isinstance(said, dict) or not isinstance(said.get("schema"), int):
            raise InputError(f"{self.facts_file} is damaged: make the data set again")
        if said["schema"] > SCHEMA:
            raise InputError(f"{self.facts_file} was written by a newer virnucpro: update this one")
        return said

    def lengths(self) -> tuple[int, ...]:
        """Chunk lengths in bases, the first of them that of the finished classifier's default."""
        return tuple(int(length) for length in self.facts()["lengths"])

    def shards(self, part: Part) -> int:
        """Number of shards of ``part``; 0 where it has no frames."""
        return int(self.facts()["parts"].get(part, {}).get("shards", 0))

    def frames(self, part: Part) -> Iterator[LabelledFrame]:
        """The frames of ``part``, in the order of its shards.

        Raises:
            InputError: the table is missing or damaged.
        """
        return read_frames(self.frames_table(part))


def read_frames(path: Path) -> Iterator[LabelledFrame]:
    """The rows of a frames table.

    Raises:
        InputError: it cannot be read, or a line is not a row of such a table.
    """
    try:
        stream = path.open(encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): prepare the data again") from (
            error
        )
    with stream:
        if next(stream, "") != FRAMES_HEADER:
            raise InputError(f"{path} is no table of frames: prepare the data again")
        for number, line in enumerate(stream, 2):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 7 or fields[5] not in LABELS or not fields[6].isdecimal():
                raise InputError(f"{path}: line {number} is damaged: prepare the data again")
            frame, chunk, record, genome, group, label, length = fields
            kind: Label = "virus" if label == "virus" else "others"
            yield LabelledFrame(frame, chunk, record, genome, group, kind, int(length))
