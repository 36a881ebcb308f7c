"""The tables that are evaluated: predictions of every level, and what is known of the records."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from virnucpro.columns import MISSING, read_table
from virnucpro.errors import InputError, UsageError
from virnucpro.layout import Layout
from virnucpro.training.data.table import LABEL_WORDS

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Level = Literal["frame", "chunk", "contig"]
SCORE_FORMULAS: dict[Level, str] = {
    "frame": "score2 / (score1 + score2)",
    "chunk": "(1 + max_score_1 - max_score_0) / 2",
    "contig": "(1 + virus_score) / 2",
}

_NONE = {"", "-", "na", "none", "undecided", "unscored"}  # the last ones are calls of predict
# Upper ends of the classes of length, in bases, which belong to them. The first three of chunks are
# the lengths of the released classifiers and of half-length reads.
CHUNK_LENGTHS = (150, 300, 500)
CONTIG_LENGTHS = (500, 1000, 3000, 10000)


@dataclass(frozen=True)
class Predictions:
    """A table of predictions.

    Attributes:
        path: the file.
        level: what a row is.
        layout: the files of the run that made it; else those of one with the name of the file.
        rows: every row of the table, with ``record`` (the id of its record), ``score`` (0 to 1, or
            NaN), ``status``, ``length`` (in bases; 0 where the table does not say), ``fdr`` (or
            NaN), and ``called`` (whether ``predict`` called it virus).
    """

    path: Path
    level: Level
    layout: Layout
    rows: DataFrame


def find_predictions(path: Path, level: Level | None) -> Predictions:
    """Read the table to evaluate: of an output directory of ``predict``, or ``path`` itself.

    Raises:
        UsageError: there is none, there are several, or the table is of another level.
        InputError: the file is not a table of predictions, or it is damaged.
    """
    import pandas

    if path.is_dir():
        layout, level = Layout(path, _only_run(path)), level or "chunk"
        places = {
            "frame": [layout.predictions],
            "chunk": [layout.chunks_table, layout.consensus],  # version 1 has the second only
            "contig": [layout.contigs_table],
        }[level]
        path = next((place for place in places if place.exists()), places[0])
    elif path.parent.name.endswith("_merged"):
        layout = Layout(path.parent.parent, path.parent.name.removesuffix("_merged"))
    else:
        layout = Layout(path.parent, path.stem.removesuffix("_chunks").removesuffix("_contigs"))
    try:
        own_level, columns = _parsed(read_table(path))
    except ValueError as error:
        raise InputError(f"{path} is no table of predictions, or damaged: {error}") from error
    if level not in (None, own_level):
        raise UsageError(f"{path} has one row per {own_level}, not per {level}: leave out --level")
    others = {"status": "scored", "length": 0, "fdr": np.nan, "called": False}
    rows = pandas.DataFrame(others | columns)
    return Predictions(path, own_level, layout, rows)


def _only_run(folder: Path) -> str:
    stems = {path.name.removesuffix("_merged") for path in folder.glob("*_merged") if path.is_dir()}
    stems |= {path.name.removesuffix("_chunks.tsv") for path in folder.glob("*_chunks.tsv")}
    if len(stems) != 1:
        found = f"several runs ({', '.join(sorted(stems)[:5])})" if stems else "no finished run"
        raise UsageError(f"{folder} holds {found}: name another folder, or one of its tables")
    return stems.pop()


def _parsed(table: DataFrame) -> tuple[Level, dict[str, Any]]:
    """Return the level and the columns; ValueError for another table."""
    names = set(table.columns)
    if {"Sequence_ID", "score1", "score2"} <= names:
        others, virus = _scores(table.score1), _scores(table.score2)
        if not (others + virus).all():
            raise ValueError("both scores of a row are 0")
        chunks = table.Sequence_ID.str[:-2]  # without the label of the frame
        # Close to 1, a float32 score2 is coarse. score1 has the missing digits.
        return "frame", {"record": _record(chunks), "score": virus / (others + virus)}
    if {"max_score_0", "max_score_1"} <= names:
        score = (1 + _scores(table.max_score_1) - _scores(table.max_score_0)) / 2
        if "Modified_ID" in names:
            return "chunk", {"record": _record(table.Modified_ID), "score": score}
        if {"record", "status", "start", "end"} <= names:
            length = table.end.astype(np.int64) - table.start.astype(np.int64) + 1
            columns = {name: table[name] for name in ("record", "status")}
            return "chunk", {**columns, "score": score, "length": length}
    if {"record", "length", "status", "virus_score", "fdr", "call"} <= names:
        return "contig", {
            "record": table.record,
            "score": (1 + _scores(table.virus_score, lowest=-1)) / 2,
            "status": table.status,
            "length": table.length.astype(np.int64),
            "fdr": _scores(table.fdr),
            "called": table.call == "virus",
        }
    raise ValueError(f"its columns are {', '.join(table.columns[:6])}")


def _record(chunk: Series) -> Series:
    """Return the record of a chunk. An id in another form is taken whole."""
    return chunk.str.replace(r"_chunk_[0-9]+$", "", regex=True)


def _scores(texts: Series, lowest: float = 0) -> Any:
    """Return scores as float64, NaN for a missing one."""
    missing = (texts == MISSING).to_numpy()
    values = texts.where(~missing, "0").to_numpy(object).astype(np.float64)
    if not ((values >= lowest) & (values <= 1)).all():
        raise ValueError("a score is out of range")
    return np.where(missing, np.nan, values)


def read_labels(path: Path) -> DataFrame:
    """Read a table with the columns ``record`` and ``label``, into a row per labelled record.

    The columns ``group``, ``genome`` and ``part`` are read too where they exist, and empty where
    not: ``genomes.tsv`` of a data set is such a table. A label is one of ``LABEL_WORDS``. It may be
    blank, or a call that says neither. Of several rows of one record the first counts.

    Raises:
        UsageError: the file cannot be read.
        InputError: it is another table, a label is another word, or a record has both labels.
    """
    table = read_table(path)
    if missing := {"record", "label"} - set(table.columns):
        raise InputError(f"{path} has no column {min(missing)!r}: are tabs between columns?")
    words = table.label.str.strip().str.lower()
    blank = words.isin(_NONE)
    if len(wrong := table.label[~blank & ~words.isin(LABEL_WORDS)]):
        raise InputError(f"{path}: label {wrong.iloc[0]!r} is neither virus nor others")
    for name in ("group", "genome", "part"):
        table[name] = table[name].str.strip() if name in table else ""
    table = table.assign(
        label=words.map(LABEL_WORDS), genome=table.genome.where(table.genome != "", table.record)
    )[~blank]
    labels = table.drop_duplicates(["record", "label"])
    if len(both := labels.record[labels.record.duplicated()]):
        raise InputError(f"{path}: record {both.iloc[0]!r} has both labels: make its id unique")
    return table.drop_duplicates("record")[["record", "label", "group", "genome", "part"]]


def join(
    predictions: Predictions, labels: DataFrame
) -> tuple[DataFrame, DataFrame, dict[str, Any]]:
    """Give every prediction the label of its record.

    Returns:
        The rows with a score and a label, with the columns of both tables; ``genome`` is a number,
        and ``length`` the name of a class of lengths, ordered from short to long, or missing where
        lengths are not known. The same of viruses without a score. And the counts of what could be
        used, as ``evaluation.json`` has them.

    Raises:
        InputError: no row has a label and a score.
    """
    import pandas

    rows = predictions.rows
    both = rows.merge(labels, on="record")
    scored = both.score.notna()
    if not scored.any():
        raise InputError(f"{predictions.path} has no row with a label and a score: check the ids")
    classes = None
    if both.length.any():  # an empty record has none
        ends = CONTIG_LENGTHS if predictions.level == "contig" else CHUNK_LENGTHS
        between = (f"{low:,} to {high:,}" for low, high in pairwise(ends))
        names = (f"up to {ends[0]:,}", *between, f"over {ends[-1]:,}")
        classes = pandas.cut(both.length, [0, *ends, np.inf], labels=names)
        classes = classes.cat.remove_unused_categories()
    both = both.assign(length=classes)
    used, unscored = both[scored].reset_index(drop=True), both[~scored]
    genome, _ = pandas.factorize(pandas.MultiIndex.from_frame(used[["label", "genome"]]))
    absent = labels.label[~labels.record.isin(both.record)]
    reasons = unscored.groupby(["label", "status"]).size().reset_index(name="rows")
    counts = {
        "rows": len(rows),
        "used": len(used),
        "unlabelled": len(rows) - len(both),
        "unscored": reasons.to_dict("records"),
        "labelled_records_without_a_row": absent.value_counts().sort_index().to_dict(),
        "rows_of_the_training_part": int((used.part == "train").sum()),
    }
    return used.assign(genome=genome), unscored[unscored.label == "virus"], counts
