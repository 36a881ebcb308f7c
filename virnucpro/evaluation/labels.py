"""Read what is known of the records, and give every prediction its label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from virnucpro.errors import InputError
from virnucpro.evaluation.predictions import Predictions, read_table
from virnucpro.tables import LABELLED_FRAMES

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_WORDS = {"virus": "virus", "viral": "virus", "1": "virus"} | dict.fromkeys(
    ("others", "nonviral", "0"), "others"
)
_NONE = {"", "-", "na", "none"}
# Upper ends of the classes of length, in bases, where the labels name no chunk length. The first
# three are the lengths of the released classifiers and of half-length reads.
CHUNK_LENGTHS = (150, 300, 500)
CONTIG_LENGTHS = (500, 1000, 3000, 10000)


class Labels(NamedTuple):
    """What is known of records.

    Attributes:
        table: a row per labelled record, or per chunk of a table of frames, with the columns
            ``record``, ``chunk`` (empty for a record), ``label``, ``group`` (may be empty),
            ``genome``, ``length`` (the chunk length that was asked for; 0 where the table does not
            say) and ``part`` (of a data set; may be empty).
        blank: rows of the file without a label.
    """

    table: DataFrame
    blank: int


def read_labels(path: Path) -> Labels:
    """Read a table with the columns ``record`` and ``label``, or the table of frames of a data set.

    The columns ``group``, ``genome`` and ``part`` are read too where they exist: ``genomes.tsv`` of
    a data set is such a table. A label is virus, viral or 1, or else others, nonviral or 0. It may
    be blank. Of several rows of one record the first counts.

    Raises:
        UsageError: the file cannot be read.
        InputError: it is another table, a label is another word, nothing is labelled, or a record
            has both labels.
    """
    table = read_table(path)
    columns = tuple(table.columns)
    if missing := {"record", "label"} - set(columns):
        raise InputError(
            f"{path} has no column {min(missing)!r}, but {', '.join(columns[:12])}: check that it "
            f"is the right table, with tabs between its columns"
        )
    words = table.label.str.strip().str.lower()
    blank = words.isin(_NONE)
    if len(wrong := table.label[~blank & ~words.isin(_WORDS)]):
        raise InputError(
            f"{path}: label {wrong.iloc[0]!r} is none of virus, viral, 1, others, nonviral, 0"
        )
    if blank.all():
        raise InputError(f"{path} has no row with a label: fill in its column label")
    frames = columns == LABELLED_FRAMES.names
    texts = {name: table[name].str.strip() if name in table else "" for name in ("group", "genome")}
    table = table.assign(
        label=words.map(_WORDS),
        chunk=table.chunk if frames else "",
        length=table.length.astype(np.int64) if frames else 0,
        part=path.name.partition("_")[0] if frames else table.part if "part" in table else "",
        **texts,
    )[~blank]
    table = table.assign(genome=table.genome.where(table.genome != "", table.record))
    labels = table.drop_duplicates(["record", "label"])
    if len(both := labels.record[labels.record.duplicated()]):
        raise InputError(
            f"record {both.iloc[0]!r} is labelled virus and others: make its id unique, or "
            f"correct the table"
        )
    return Labels(table.drop_duplicates(["record", "chunk"]), int(blank.sum()))


class Sample(NamedTuple):
    """The rows with a score and a label: those of the predictions with columns of the labels.

    ``genome`` is a number. ``length`` is the name of a class of lengths, ordered from short to
    long; missing where lengths are not known.
    """

    rows: DataFrame
    missed: DataFrame  # the same of viruses without a score
    counts: dict[str, Any]  # of what could be used, for evaluation.json


def join(predictions: Predictions, labels: Labels) -> Sample:
    """Give every prediction the label of its chunk, where that is known, or else of its record.

    Raises:
        InputError: no row has a label and a score.
    """
    import pandas

    rows = predictions.rows
    known = labels.table.rename(columns={"length": "requested"})
    records = known.drop_duplicates("record").set_index("record", drop=False)
    found = records.reindex(rows.record).reset_index(drop=True)
    if (known.chunk != "").any():
        by_chunk = known.set_index("chunk").reindex(rows.chunk).reset_index(drop=True)
        found = by_chunk.where(by_chunk.label.notna(), found)
    names = ["record", "label", "group", "genome", "requested", "part"]
    both = pandas.concat([found[names], rows.drop(columns=["record"])], axis=1)
    both = both[both.label.notna()]
    scored = both.score.notna()
    if not scored.any():
        raise InputError(
            f"none of the {len(rows):,} rows of {predictions.path} has a label and a score "
            f"({len(rows) - len(both):,} have no label): check that the table labels the same "
            f"records, by the first word of their headers"
        )
    both = both.assign(length=_length_classes(both, predictions.level))
    used, unscored = both[scored].reset_index(drop=True), both[~scored]
    genome, _ = pandas.factorize(pandas.MultiIndex.from_frame(used[["label", "genome"]]))
    used = used.assign(genome=genome)
    absent = records.label[~records.index.isin(both.record)]
    counts = {
        "rows": len(rows),
        "used": len(used),
        "unlabelled": len(rows) - len(both),
        "unscored": [
            {"label": label, "status": status, "rows": int(count)}
            for (label, status), count in unscored.groupby(["label", "status"]).size().items()
        ],
        "labelled_records_without_a_row": absent.value_counts().sort_index().to_dict(),
        "rows_of_the_training_part": int((used.part == "train").sum()),
        "label_rows_without_a_label": labels.blank,
    }
    return Sample(used, unscored[unscored.label == "virus"], counts)


def _length_classes(rows: DataFrame, level: str) -> Series | None:
    """Return the length class of each row: the chunk length of its label, else a range of bases."""
    import pandas

    if rows.requested.all() and level != "contig":
        values = rows.requested.astype(np.int64)
        return values.astype("category").cat.rename_categories(str)
    if not rows.length.all():
        return None
    ends = CONTIG_LENGTHS if level == "contig" else CHUNK_LENGTHS
    names = (*(f"<={end}" for end in ends), f">{ends[-1]}")
    return pandas.cut(rows.length, [0, *ends, np.inf], labels=names).cat.remove_unused_categories()
