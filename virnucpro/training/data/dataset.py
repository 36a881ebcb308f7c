"""A labelled data set on disk: ``train prepare`` writes it, all other training commands read it.

::

    DATASET/
      dataset.json                 the settings it was made with, and the size of every part
      genomes.tsv                  one row per record: source, genome, group, label, part, reason

and, if its content is frames::

      train_frames.tsv             one row per frame, in the order of the shards
      train_nucleotide/output_1.fa ...   shards, as large as the split files of ``predict``
      train_protein/output_1.fa ...      the same frames as proteins
      validation_...  test_...

or, if its content is records::

      train_records.fa             whole records, in the order of genomes.tsv
      validation_records.fa  test_records.fa

A part of frames has the layout of stages 3 to 6 of a run whose stem is the name of the part. Its
shards are therefore embedded and merged by the stages of ``predict``, and
``train_merged/output_1_merged.pt`` holds the features of the first shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from virnucpro.columns import ResultTable
from virnucpro.contracts import Json
from virnucpro.errors import InputError, ResumeRefusedError, UsageError
from virnucpro.layout import Layout, ShardLayout, lock_file
from virnucpro.store.documents import in_schema, parse_json
from virnucpro.tables import GENOMES, LABELLED_FRAMES, LabelledFrameRow

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
Content = Literal["frames", "records"]
Label = Literal["others", "virus"]
LABELS: tuple[Label, Label] = ("others", "virus")  # class 0 and class 1 of every classifier
_AGAIN = "prepare the data again"  # what to do if a file of the data set is damaged


class LabelledRecord(NamedTuple):
    """A whole record of a known label; a ``taxon`` may have genomes of both labels.

    ``sequence`` has upper-case ``A``, ``C``, ``G`` and ``T``, and ``N`` for every other letter. It
    may be empty.
    """

    record: str
    genome: str
    taxon: str
    group: str
    label: Label
    sequence: str


class Dataset:
    """The data set in the folder ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.description_file = root / "dataset.json"
        self.genomes_table = root / GENOMES.path
        self.lock = lock_file(root, self.description_file.name)

    def frames_table(self, part: Part) -> Path:
        """Return the path of the table with one row per frame of ``part``."""
        return self.root / LABELLED_FRAMES.path.format(stem=part)

    def records_file(self, part: Part) -> Path:
        """Return the path of the FASTA file with the records of ``part``, two lines per record."""
        return self.root / f"{part}_records.fa"

    def layout(self, part: Part) -> Layout:
        """Return the paths of shards, features and state of ``part``, as those of a run."""
        return ShardLayout(self.root, part)

    @cached_property
    def description(self) -> dict[str, Json]:
        """The content of ``dataset.json``.

        It has the settings, ``version`` of the program, ``command``, ``sources`` (file, sha256) and
        ``parts``: for each part that is not empty its ``shards`` and ``frames``, or its ``records``
        and ``bases``. ``counts`` are for the summary.
        """
        path = self.description_file
        try:
            return in_schema("data set", parse_json(path.read_text(encoding="utf-8")), path)
        except OSError as error:
            raise UsageError(f"{path} is not there: virnucpro train prepare makes it") from error
        except (ValueError, ResumeRefusedError) as error:
            raise InputError(f"{path} is damaged, or newer than this program: {error}") from error

    @property
    def content(self) -> Content:
        """What the parts hold: the open ``frames`` of chunks, or whole ``records``."""
        return "records" if self.description["content"] == "records" else "frames"

    def require_content(self, content: Content) -> None:
        """Check that the parts hold what a command reads."""
        if self.content != content:
            raise UsageError(f"{self.root} has {self.content}: prepare it with --content {content}")

    def lengths(self) -> tuple[int, ...]:
        """Return the chunk lengths in bases. The first is what a classifier expects by default."""
        return tuple(int(length) for length in self.description["lengths"])

    def shards(self, part: Part) -> int:
        """Return the number of shards of ``part``: 0 if it has no frames."""
        return int(self.description["parts"].get(part, {}).get("shards", 0))

    def frames(self, part: Part) -> Iterator[LabelledFrameRow]:
        """Yield the frames of ``part`` in the order of its shards."""
        self.require_content("frames")
        table = self.frames_table(part)
        for *names, label, length in _rows(LABELLED_FRAMES, table, *LABELLED_FRAMES.row._fields):
            if label not in LABELS or not length.isdecimal():
                raise InputError(f"{table}: a label or a length is damaged: {_AGAIN}")
            yield LabelledFrameRow(*names, label, int(length))  # type: ignore[call-arg, arg-type]

    def records(self, part: Part) -> Iterator[LabelledRecord]:
        """Yield the records of ``part`` in the order of the genome files; one is in memory.

        A part without records, which ``description["parts"]`` does not name, yields none.
        """
        self.require_content("records")
        if part not in self.description["parts"]:
            return
        path = self.records_file(part)
        try:
            stream = path.open("rb", buffering=1 << 20)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): {_AGAIN}") from error
        with stream:
            for record, label, group, genome, taxon, bases in self.genomes(part):
                header, sequence = stream.readline(), stream.readline()
                letters = sequence.translate(None, b"ACGTN")
                if (header, len(sequence), letters) != (f">{record}\n".encode(), bases + 1, b"\n"):
                    raise InputError(f"{path} is damaged at the record {record!r}: {_AGAIN}")
                # Without a copy: it may be a chromosome.
                text = str(memoryview(sequence)[:-1], "ascii")
                yield LabelledRecord(record, genome, taxon, group, label, text)
            if stream.read(1):
                raise InputError(f"{path} has more records than the table of genomes: {_AGAIN}")

    def genomes(self, part: Part) -> Iterator[tuple[str, Label, str, str, str, int]]:
        """Yield record, label, group, genome, taxon and bases of the records of ``part``."""
        table = self.genomes_table
        names = ("part", "bases", "record", "label", "group", "genome", "taxon")
        for own_part, bases, record, label, *others in _rows(GENOMES, table, *names):
            if own_part != part:
                continue
            if label not in LABELS or not bases.isdecimal():
                raise InputError(f"{table}: a label or a number of bases is damaged: {_AGAIN}")
            yield record, label, *others, int(bases)  # type: ignore[misc]


def _rows(kind: ResultTable, path: Path, *names: str) -> Iterator[list[str]]:
    """Yield the cells of columns of a table; raises InputError where it cannot be read."""
    try:
        yield from kind.read(path, *names)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): {_AGAIN}") from error
