"""A labelled data set on disk: ``train prepare`` writes it, all other training commands read it.

::

    DATASET/
      dataset.json                 the settings it was made with, and the size of every part
      genomes.tsv                  one row per record: source, genome, group, label, part, reason

and, if its content is frames::

      train_frames.tsv             one row per frame, in the order of the shards
      train_nucleotide/output_1.fa ...   shards of at most ``shard_size`` frames
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

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from virnucpro.contracts import Json
from virnucpro.errors import InputError, ResumeRefusedError, UsageError
from virnucpro.layout import Layout, ShardLayout, checkpoint_folder, lock_file
from virnucpro.store.documents import parse_json
from virnucpro.store.migrations import upgraded
from virnucpro.tables import GENOMES, LABELLED_FRAMES

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
Content = Literal["frames", "records"]
CONTENTS: tuple[Content, ...] = ("frames", "records")
Label = Literal["others", "virus"]
LABELS: tuple[Label, Label] = ("others", "virus")  # class 0 and class 1 of every classifier
_AGAIN = "prepare the data again"  # what to do if a file of the data set is damaged
_frame_row = LABELLED_FRAMES.row_format(
    "frame", "chunk", "record", "genome", "group", "label", "length"
)


class LabelledFrame(NamedTuple):
    """An open frame whose genome is known to be viral or not.

    Attributes:
        frame: the id of the frame in the shards: the id of its chunk and the label of the frame
            (``...F1``).
        chunk: the id of its chunk, unique in the data set.
        record: the id of the record that the chunk was cut from.
        genome: the genome of the record. A genome is never divided between the parts.
        group: the name under which results are reported (a family, a source file).
        label: ``virus`` or ``others``.
        length: the requested chunk length in bases. The chunk of a short record is shorter.
    """

    frame: str
    chunk: str
    record: str
    genome: str
    group: str
    label: Label
    length: int

    def row(self) -> str:
        """Return the line of this frame in the frames table."""
        return _frame_row(*self)


class LabelledRecord(NamedTuple):
    """A whole record whose genome is known to be viral or not.

    Attributes:
        record: its id, unique in the data set.
        genome: the genome of the record. A genome is never divided between the parts.
        taxon: the taxon of the genome, or the genome where none was given. It may have genomes
            of both labels: the phages of a genus of hosts, and the hosts.
        group: the name under which results are reported (a family, a source file).
        label: ``virus`` or ``others``.
        sequence: upper-case ``A``, ``C``, ``G`` and ``T``, and ``N`` for every other letter. It
            may be empty.
    """

    record: str
    genome: str
    taxon: str
    group: str
    label: Label
    sequence: str


class Dataset:
    """The data set in the folder ``root``.

    ``dataset.json`` is read once, when it is first needed.

    Attributes:
        root: the folder.
        description_file: ``dataset.json``.
        genomes_table: the table with one row per record of the genome files.
        lock: the file that is locked while the data set is made.
        begun_file: the record that proves the files of an unfinished data set.
        sequences_file: the file that holds all open frames while the data set is made.
        previous: the folder into which ``--force`` moves an earlier data set.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.description_file = root / "dataset.json"
        self.genomes_table = root / GENOMES.path
        self.lock = lock_file(root, self.description_file.name)
        self.begun_file = checkpoint_folder(root) / "dataset.begun.json"
        self.sequences_file = checkpoint_folder(root) / "dataset.spool"
        self.previous = checkpoint_folder(root) / "dataset.previous"

    def frames_table(self, part: Part) -> Path:
        """Return the path of the table with one row per frame of ``part``."""
        return self.root / LABELLED_FRAMES.place(part)

    def records_file(self, part: Part) -> Path:
        """Return the path of the FASTA file with the records of ``part``, two lines per record."""
        return self.root / f"{part}_records.fa"

    def layout(self, part: Part) -> Layout:
        """Return the paths of shards, features and state of ``part``, as those of a run."""
        return ShardLayout(self.root, part)

    @cached_property
    def description(self) -> dict[str, Json]:
        """The content of ``dataset.json``.

        It has ``schema``, ``content``, ``lengths`` (bases), ``seed``, ``version`` of the program,
        ``command``, ``sources`` (file, sha256) and ``parts``: for each part with frames its
        ``shards``, its ``frames``, and how many of them are ``others`` and ``virus``; for each
        part with records its ``records``, how many of them are ``others`` and ``virus``, and
        its ``bases``. It also has the other settings, and ``counts``, ``left_out`` and ``notices``
        for the summary.

        Raises:
            UsageError: the folder holds no data set.
            InputError: the file is damaged or was written by a newer program.
        """
        path = self.description_file
        try:
            return upgraded("data set", parse_json(path.read_text(encoding="utf-8")), path)
        except OSError as error:
            raise UsageError(
                f"{self.root} is not a data set ({path.name}: {error.strerror}): make one with "
                f"virnucpro train prepare"
            ) from error
        except ValueError as error:
            raise InputError(f"{path} is damaged: make the data set again") from error
        except ResumeRefusedError as error:
            raise InputError(f"{path} was written by a newer virnucpro: update this one") from error

    @property
    def content(self) -> Content:
        """What the parts hold: the open ``frames`` of chunks, or whole ``records``."""
        return "records" if self.description["content"] == "records" else "frames"

    def require_content(self, content: Content) -> None:
        """Check that the parts hold what a command reads.

        Raises:
            UsageError: they hold the other content; the message says how to make a data set of it.
        """
        if self.content != content:
            raise UsageError(
                f"{self.root} is a data set of {self.content}, and this command reads {content}: "
                f"make another one with virnucpro train prepare TABLE --content {content}"
            )

    def lengths(self) -> tuple[int, ...]:
        """Return the chunk lengths in bases. The first is what a classifier expects by default."""
        return tuple(int(length) for length in self.description["lengths"])

    def shards(self, part: Part) -> int:
        """Return the number of shards of ``part``: 0 if it has no frames."""
        return int(self.description["parts"].get(part, {}).get("shards", 0))

    def frames(self, part: Part) -> Iterator[LabelledFrame]:
        """Yield the frames of ``part`` in the order of its shards.

        Raises:
            UsageError: the content of the data set is not frames.
            InputError: the table is missing or damaged.
        """
        self.require_content("frames")
        return read_frames(self.frames_table(part))

    def records(self, part: Part) -> Iterator[LabelledRecord]:
        """Yield the records of ``part`` in the order of the genome files; one is in memory.

        A part without records, which ``description["parts"]`` does not name, yields none.

        Raises:
            UsageError: the content of the data set is not records.
            InputError: a file is missing or damaged, or the files do not belong together.
        """
        self.require_content("records")
        if part not in self.description["parts"]:
            return iter(())
        return _read_labelled_records(self.genomes_table, self.records_file(part), part)

    def record_lengths(self, part: Part, label: Label) -> dict[str, int]:
        """Return the bases of the records of ``part`` that have ``label``, by the id of the record.

        Raises:
            InputError: the table of genomes is missing or damaged.
        """
        record, bases, known = (GENOMES.names.index(name) for name in ("record", "bases", "label"))
        rows = _genome_rows(self.genomes_table, part)
        try:
            return {row[record]: int(row[bases]) for row in rows if row[known] == label}
        except ValueError as error:
            raise InputError(f"{self.genomes_table} is damaged ({error}): {_AGAIN}") from error


@contextmanager
def _read_errors_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged, it is not UTF-8 text: {_AGAIN}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {_AGAIN}") from error


def _read_labelled_records(table: Path, fasta: Path, part: Part) -> Iterator[LabelledRecord]:
    """Yield the records of a FASTA file, which are those of ``part`` in the table of genomes."""
    with _read_errors_explained(fasta), fasta.open("rb", buffering=1 << 20) as stream:
        for row in _genome_rows(table, part):
            record, _, label, group, genome, taxon, _, bases, *_ = row
            yield LabelledRecord(
                record,
                genome,
                taxon,
                group,
                "virus" if label == "virus" else "others",
                _read_sequence(stream, fasta, record, bases),
            )
        if stream.read(1):
            raise InputError(f"{fasta} has more records of {part} than {table}: {_AGAIN}")


def _genome_rows(table: Path, part: Part) -> Iterator[Sequence[str]]:
    """Yield the rows of the records of ``part`` in a table of genomes."""
    places = [GENOMES.names.index(name) for name in ("label", "part")]
    with _read_errors_explained(table):
        for line_number, row in enumerate(GENOMES.read(table, *GENOMES.names), 2):
            if len(row) != len(GENOMES.names):
                raise InputError(f"{table}: line {line_number} is damaged: {_AGAIN}")
            label, row_part = (row[place] for place in places)
            if row_part == part:
                if label not in LABELS:
                    raise InputError(f"{table}: line {line_number} is damaged: {_AGAIN}")
                yield row


def _read_sequence(stream: BinaryIO, path: Path, record: str, bases: str) -> str:
    """Read the header and the sequence of ``record``, and return the sequence.

    ``bases`` is its length as the table of genomes says it.
    """
    if stream.readline() != f">{record}\n".encode():
        raise InputError(f"{path} does not have record {record!r} where it should be: {_AGAIN}")
    line = stream.readline()
    if str(len(line) - 1) != bases or line.translate(None, b"ACGTN") != b"\n":
        raise InputError(f"{path}: the sequence of record {record!r} is damaged: {_AGAIN}")
    return str(memoryview(line)[:-1], "ascii")  # without a copy: it may be a chromosome


def read_frames(path: Path) -> Iterator[LabelledFrame]:
    """Yield the rows of a frames table.

    Raises:
        InputError: the table cannot be read, or a line is not a row of such a table.
    """
    with (
        _read_errors_explained(path),
        path.open(encoding="utf-8", newline="\n") as stream,
    ):
        if next(stream, "") != LABELLED_FRAMES.header:
            raise InputError(f"{path} is not a table of frames: {_AGAIN}")
        for line_number, line in enumerate(stream, 2):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 7 or fields[5] not in LABELS or not fields[6].isdecimal():
                raise InputError(f"{path}: line {line_number} is damaged: {_AGAIN}")
            frame, chunk, record, genome, group, label_text, length = fields
            label: Label = "virus" if label_text == "virus" else "others"
            yield LabelledFrame(frame, chunk, record, genome, group, label, int(length))


def read_embedding_record(layout: Layout) -> dict[str, Json] | None:
    """Return what ``train embed`` recorded about a part (``PART_run.json``).

    The record has ``data_set`` (SHA-256 of ``dataset.json``), ``models`` (``nucleotide`` and
    ``protein``, each with family, name, path, sha256 and dim), ``truncation``, ``precision`` and
    ``counts`` (``shards``, ``frames``, ``failed``), among others. None means that there is no
    record that can be read.
    """
    try:
        document = parse_json(layout.run_json.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
