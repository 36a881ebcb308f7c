"""Read what is known of the records, and give every prediction its label."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from virnucpro.errors import InputError
from virnucpro.evaluation.predictions import Predictions, read_table
from virnucpro.training.data.table import LABEL_WORDS

if TYPE_CHECKING:
    from pandas import DataFrame

_NONE = {"", "-", "na", "none"}
# Upper ends of the classes of length, in bases, which belong to them. The first three of chunks are
# the lengths of the released classifiers and of half-length reads.
CHUNK_LENGTHS = (150, 300, 500)
CONTIG_LENGTHS = (500, 1000, 3000, 10000)


def read_labels(path: Path) -> DataFrame:
    """Read a table with the columns ``record`` and ``label``, into a row per labelled record.

    The columns ``group``, ``genome`` and ``part`` are read too where they exist, and empty where
    not: ``genomes.tsv`` of a data set is such a table. A label is virus, viral or 1, or else
    others, nonviral or 0. It may be blank. Of several rows of one record the first counts.

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


class Sample(NamedTuple):
    """The rows with a score and a label: those of the predictions with columns of the labels.

    ``genome`` is a number. ``length`` is the name of a class of lengths, ordered from short to
    long; missing where lengths are not known.
    """

    rows: DataFrame
    missed: DataFrame  # the same of viruses without a score
    counts: dict[str, Any]  # of what could be used, for evaluation.json


def join(predictions: Predictions, labels: DataFrame) -> Sample:
    """Give every prediction the label of its record.

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
    return Sample(used.assign(genome=genome), unscored[unscored.label == "virus"], counts)
