"""Every tab-separated table of the program, declared once: its columns, their order and meaning.

What writes a table, what reads it and ``docs/files.md`` use the declaration. To add a column, add
it to the declaration and give its value in the stage that computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from virnucpro.errors import InputError

MISSING = "NA"
"""The text of a cell that has no value."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: what stands in the header.
        type: what a cell is: text, a whole number, a number, or ``True`` and ``False``.
        meaning: one sentence for the documentation.
        example: the cell of the example in the documentation.
        format: how a value is written, as for the function ``format``. A number without a format
            is given as text.
        optional: whether a cell may be ``NA``.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    meaning: str
    example: str
    format: str = ""
    optional: bool = False

    def text(self, value: object) -> str:
        """Return a cell with ``value``; ``NA`` for None in an optional column."""
        if value is None and self.optional:
            return MISSING
        return format(value, self.format)

    def parse(self, text: str) -> str | int | float | bool | None:
        """Return the value of a cell; None where it is missing.

        Raises:
            ValueError: the text is not of the column's type.
        """
        if self.optional and text == MISSING:
            return None
        if self.type is bool:
            if text not in ("True", "False"):
                raise ValueError(f"{text!r} is neither True nor False")
            return text == "True"
        return self.type(text)


@dataclass(frozen=True)
class ResultTable:
    """A table that the program writes: tab-separated, UTF-8, each line ended by a line feed.

    Attributes:
        path: where the table lies below the output directory; ``{stem}`` stands for the name of
            the run, or of the part of a data set.
        content: one sentence for the documentation: what a row is, and in which order rows come.
        columns: the columns from left to right.
        has_header: whether the first line holds the names of the columns.
    """

    path: str
    content: str
    columns: tuple[Column, ...]
    has_header: bool = True

    def place(self, stem: str) -> str:
        """Return the path of the table below the output directory for the run ``stem``."""
        return self.path.format(stem=stem)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns from left to right."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def header(self) -> str:
        """The first line of the file, with its line feed; empty where there is none."""
        return "\t".join(self.names) + "\n" if self.has_header else ""

    def column(self, name: str) -> Column:
        """Return the column ``name``.

        Raises:
            ValueError: the table has no such column.
        """
        return self.columns[self.names.index(self.select(name)[0])]

    def select(self, *names: str) -> tuple[str, ...]:
        """Return ``names``, of which each must be a column of this table.

        Raises:
            ValueError: the table has no such column.
        """
        if unknown := [name for name in names if name not in self.names]:
            raise ValueError(f"{self.path} has no column {unknown[0]!r}")
        return names

    def line(self, **values: object) -> str:
        """Format one row, with its line feed, from a value for each column.

        Raises:
            TypeError: a column has no value, or a value no column.
        """
        if len(values) != len(self.columns):
            self._check(values)
        try:
            for column in self._optional:
                values[column.name] = column.text(values[column.name])
            return self._row_by_name(**values)
        except KeyError:
            self._check(values)
            raise

    def row_format(self, *names: str) -> Callable[..., str]:
        """Return a fast function that formats one row from values in the order of ``names``.

        It costs what an f-string costs, so it is for tables with a row per chunk or frame. Give a
        value of an optional column as text.

        Raises:
            TypeError: ``names`` are not the columns of this table.
        """
        self._check(names)
        return self._format(*(names.index(name) for name in self.names))

    def read(self, path: Path, *names: str) -> Iterator[Sequence[str]]:
        """Return the cells of the columns ``names``, row by row, of a file of this program.

        The file is opened at the first row, and the rows are not checked.

        Raises:
            ValueError: the table has no such column.
            InputError: the first line is not the header of this table.
            OSError: the file cannot be read.
        """
        places = [self.names.index(name) for name in self.select(*names)]
        if names == self.names:
            return self._rows(path)
        if len(places) == 1:
            return (cells[places[0] : places[0] + 1] for cells in self._rows(path))
        return map(itemgetter(*places), self._rows(path))

    def _rows(self, path: Path) -> Iterator[list[str]]:
        # newline="\n" so that only a line feed ends a line: ids may hold any other character
        with path.open(encoding="utf-8", newline="\n") as stream:
            if self.has_header and (header := next(stream, "")) != self.header:
                raise InputError(
                    f"{path} begins with {header[:80]!r} instead of the columns "
                    f"{', '.join(self.names)}; make the table again"
                )
            for line in stream:
                yield line.rstrip("\n").split("\t")

    @cached_property
    def _optional(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.optional)

    @cached_property
    def _row_by_name(self) -> Callable[..., str]:
        return self._format(*self.names)

    def _format(self, *fields: int | str) -> Callable[..., str]:
        """Return ``str.format`` of a row; ``fields`` are the arguments of the columns in order."""
        formats = ("" if column.optional else column.format for column in self.columns)
        cells = (f"{{{field}:{form}}}" for field, form in zip(fields, formats, strict=True))
        return ("\t".join(cells) + "\n").format

    def _check(self, names: Iterable[str]) -> None:
        if wrong := set(self.names).symmetric_difference(names):
            columns = ", ".join(sorted(wrong))
            raise TypeError(f"{self.path}: the columns {columns} are missing or unknown")


# The results of a run

CONTIGS = ResultTable(
    "{stem}_contigs.tsv",
    "One row per record of the input, in the order of the input. No record is missing.",
    (
        Column("record", str, "The id: the first word of the header.", "NC_001422.1"),
        Column("length", int, "Bases of the record.", "5386", "d"),
        Column("chunks", int, "Chunks of the record.", "11", "d"),
        Column("chunks_scored", int, "Chunks with at least one scored frame.", "7", "d"),
        Column("coverage", float, "Share of the record's bases in scored chunks.", "0.6415", ".4f"),
        Column(
            "call",
            str,
            "`virus` (virus score above 0.3), `nonvirus` (below -0.3), `undecided` (between them) "
            "or `unscored` (no frame was scored).",
            "virus",
        ),
        Column(
            "virus_score",
            float,
            "From -1 (surely not a virus) to 1 (surely a virus): the mean of "
            "`max_score_1 - max_score_0` over the scored chunks, weighted by the square root of "
            "its absolute value.",
            "0.912345",
            ".6f",
            optional=True,
        ),
        Column(
            "tier",
            str,
            "`high` where the virus score is above 0.6 or below -0.6, otherwise `low`.",
            "high",
            optional=True,
        ),
        Column(
            "confident_viral",
            int,
            "Chunks with `max_score_1` above 0.8 and `max_score_0` below 0.3.",
            "6",
            "d",
        ),
        Column(
            "confident_nonviral",
            int,
            "Chunks with `max_score_0` above 0.8 and `max_score_1` below 0.3.",
            "0",
            "d",
        ),
        Column("undecided", int, "The other scored chunks.", "1", "d"),
        Column(
            "status",
            str,
            "`scored`, or the reason why no chunk was: `failed`, `no_open_frame`, `ambiguous` or "
            "`too_short`. Where chunks have several reasons, the first of this list.",
            "scored",
        ),
        Column(
            "fdr",
            float,
            "Estimated false discovery rate: the share of errors if this record and all records "
            "that are more certain were called virus. Only for a calibrated classifier; see "
            "[evaluation.md](evaluation.md).",
            "0.012345",
            ".6f",
            optional=True,
        ),
    ),
)

CHUNKS = ResultTable(
    "{stem}_chunks.tsv",
    "One row per chunk of the input, in the order of the input. No chunk is missing.",
    (
        Column("record", str, "The id of the record.", "NC_001422.1"),
        Column("chunk", str, "The id of the chunk.", "NC_001422.1_chunk_2"),
        Column("start", int, "First base in the record, counted from 1.", "490", "d"),
        Column("end", int, "Last base in the record, counted from 1.", "989", "d"),
        Column(
            "status",
            str,
            "`scored`, or the reason why not: `no_open_frame` (every frame has a stop codon), "
            "`too_short` (under 3 bases), `ambiguous` (no codon without an ambiguous letter) or "
            "`failed` (see `failed_files.txt`).",
            "scored",
        ),
        Column("frames", int, "Open frames: those without a stop codon, 0 to 6.", "2", "d"),
        Column(
            "max_score_0",
            float,
            "Highest score of class others over the frames.",
            "0.034567",
            optional=True,
        ),
        Column(
            "max_score_1",
            float,
            "Highest score of class virus over the frames.",
            "0.965433",
            optional=True,
        ),
    ),
)

PREDICTIONS = ResultTable(
    "{stem}_merged/prediction_results.txt",
    "One row per scored frame, in the order of the input. The columns are those of version 1.",
    (
        Column(
            "Sequence_ID",
            str,
            "The id of the frame: that of its chunk, then `F1` to `F3` (forward strand) or `R1` to "
            "`R3` (reverse strand).",
            "NC_001422.1_chunk_2F1",
        ),
        Column(
            "Prediction",
            str,
            "`virus` where `score2` is greater than `score1`, otherwise `others`.",
            "virus",
        ),
        Column("score1", float, "Score of class others, 0 to 1.", "0.034567"),
        Column("score2", float, "Score of class virus, 0 to 1.", "0.965433"),
    ),
)

CONSENSUS = ResultTable(
    "{stem}_merged/prediction_results_highestscore.csv",
    "One row per scored chunk, in the order of the input. The columns are those of version 1, "
    "separated by tabs in spite of the file's name.",
    (
        Column("Modified_ID", str, "The id of the chunk.", "NC_001422.1_chunk_2"),
        Column("Is_Virus", bool, "`True` where `max_score_1` is at least `max_score_0`.", "True"),
        Column("max_score_0", float, "Highest `score1` of the chunk's frames.", "0.034567"),
        Column("max_score_1", float, "Highest `score2` of the chunk's frames.", "0.965433"),
    ),
)

FAILURES = ResultTable(
    "failed_files.txt",
    "One row per failure, of all runs in the output directory. The file exists only as long as "
    "something is missing.",
    (
        Column("input", str, "The input file.", "contigs.fa"),
        Column("file", str, "The feature file that lacks sequences.", "output_3_ESM.pt"),
        Column("stage", str, "The stage that failed.", "protein_embeddings"),
        Column("error", str, "The kind of error.", "WorkerLostError"),
        Column("message", str, "What happened, in one line.", "the worker was killed"),
        Column(
            "sequences",
            str,
            "The ids of the frames that are missing, separated by commas.",
            "c7_chunk_1F2,c7_chunk_2R1",
        ),
    ),
)

# What a run keeps for itself until it is finished

RECORDS = ResultTable(
    ".checkpoints/{stem}/records.tsv",
    "One row per record of the input, in the order of the input.",
    (
        Column("record", str, "The id, after a duplicate was renamed.", "NC_001422.1"),
        Column("length", int, "Bases of the record.", "5386", "d"),
    ),
    has_header=False,
)

FRAMES = ResultTable(
    ".checkpoints/{stem}/frames.tsv",
    "One row per chunk, in the order of the input.",
    (
        Column("chunk", str, "The id of the chunk.", "NC_001422.1_chunk_2"),
        Column("frames", int, "Open frames of the chunk, 0 to 6.", "2", "d"),
        Column(
            "status",
            str,
            "`framed` where there are open frames, otherwise the reason: `no_open_frame`, "
            "`too_short` or `ambiguous`.",
            "framed",
        ),
    ),
    has_header=False,
)

# Data sets of ``train prepare``

LABELLED_FRAMES = ResultTable(
    "{stem}_frames.tsv",
    "One row per frame of the part `{stem}` (`train`, `validation` or `test`) of a data set, in "
    "the order of its shards.",
    (
        Column("frame", str, "The id of the frame in the shards.", "NC_001422.1_500bp_chunk_2F1"),
        Column("chunk", str, "The id of its chunk.", "NC_001422.1_500bp_chunk_2"),
        Column("record", str, "The id of the record.", "NC_001422.1"),
        Column("genome", str, "The genome, which is in one part only.", "NC_001422.1"),
        Column("group", str, "The group under which results are reported.", "Microviridae"),
        Column("label", str, "`virus` or `others`.", "virus"),
        Column("length", int, "The requested chunk length in bases.", "500", "d"),
    ),
)

GENOMES = ResultTable(
    "genomes.tsv",
    "One row per record of the source files of a data set, in their order.",
    (
        Column("record", str, "The id, unique in the data set.", "NC_001422.1"),
        Column("source", str, "The source file, as in the table of genomes.", "viral.1.fna.gz"),
        Column("label", str, "`virus` or `others`; empty where no row matches.", "virus"),
        Column("group", str, "The group; empty where no row matches.", "Microviridae"),
        Column("genome", str, "The genome of the record.", "NC_001422.1"),
        Column(
            "part",
            str,
            "`train`, `validation` or `test`; `dropped` or `unused` where it is in no part.",
            "train",
        ),
        Column("bases", int, "Bases of the record.", "5386", "d"),
        Column("chunks", int, "Chunks of the record, of all lengths.", "11", "d"),
        Column("frames", int, "Frames of the record in the data set.", "14", "d"),
        Column("note", str, "The reason why the record is in no part, otherwise empty.", ""),
    ),
)

# The figures of ``evaluate``


def _metric(name: str, meaning: str, example: str) -> Column:
    return Column(name, float, meaning, example, ".6f", optional=True)


EVALUATION = ResultTable(
    "evaluation.tsv",
    "One row for all rows that were evaluated, then one row per length and one per group. The "
    "figures are explained in [evaluation.md](evaluation.md).",
    (
        Column("slice", str, "`overall`, `length` or `group`.", "group"),
        Column("label", str, "The label of a group.", "virus", optional=True),
        Column("name", str, "The name of the length or group.", "Microviridae"),
        Column("genomes", int, "Genomes.", "12", "d"),
        Column("rows", int, "Rows with a label and a score.", "240", "d"),
        Column("virus", int, "Rows that are labelled virus.", "120", "d"),
        Column("others", int, "Rows that are labelled others.", "120", "d"),
        Column("tp", int, "True positives: viruses that are called virus.", "110", "d"),
        Column("fp", int, "False positives: others that are called virus.", "6", "d"),
        Column("tn", int, "True negatives: others that are called others.", "114", "d"),
        Column("fn", int, "False negatives: viruses that are called others.", "10", "d"),
        _metric("auroc", "Area under the ROC curve.", "0.980000"),
        _metric("auroc_low", "Lower end of its 95 % interval.", "0.970000"),
        _metric("auroc_high", "Upper end of its 95 % interval.", "0.990000"),
        _metric("auprc", "Average precision.", "0.975000"),
        _metric("accuracy", "Share of rows that are called as they are labelled.", "0.933333"),
        _metric("accuracy_low", "Lower end of its 95 % interval.", "0.910000"),
        _metric("accuracy_high", "Upper end of its 95 % interval.", "0.950000"),
        _metric("precision", "Share of virus among the rows called virus.", "0.948276"),
        _metric("recall", "Share of the viruses that are called virus.", "0.916667"),
        _metric("f1", "Harmonic mean of precision and recall.", "0.932203"),
        _metric("mcc", "Matthews correlation coefficient.", "0.867148"),
        _metric("brier", "Mean squared error of the score.", "0.052000"),
        _metric("ece", "Expected calibration error; not for a group.", "0.031000"),
        _metric("correct", "Share of the rows of a group that are called as labelled.", "0.916667"),
        _metric("correct_low", "Lower end of its 95 % interval.", "0.880000"),
        _metric("correct_high", "Upper end of its 95 % interval.", "0.950000"),
        Column("note", str, "Remarks, separated by `; `.", "NA", optional=True),
    ),
)

RUN_TABLES = (CONTIGS, CHUNKS, PREDICTIONS, CONSENSUS, FAILURES, RECORDS, FRAMES)
ALL_TABLES = (*RUN_TABLES, GENOMES, LABELLED_FRAMES, EVALUATION)
