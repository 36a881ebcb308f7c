"""Read what is known of the records, and give every prediction its label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.errors import InputError
from virnucpro.evaluation.predictions import Predictions, read_table
from virnucpro.io.delimited import open_table
from virnucpro.metrics.classification import Bools, Floats, Ints
from virnucpro.tables import LABELLED_FRAMES

if TYPE_CHECKING:
    from pandas import DataFrame

_WORDS = {"virus": "virus", "viral": "virus", "1": "virus"} | dict.fromkeys(
    ("others", "nonviral", "0"), "others"
)
_NONE = {"", "-", "na", "none"}
# Upper ends of the classes of length, in bases, where the labels name no chunk length. The first
# three are the lengths of the released classifiers and of half-length reads.
CHUNK_LENGTHS = (150, 300, 500)
CONTIG_LENGTHS = (500, 1000, 3000, 10000)


@dataclass(frozen=True)
class Labels:
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
    columns = open_table(path).columns
    if missing := [name for name in ("record", "label") if name not in columns]:
        raise InputError(
            f"{path} has no column {missing[0]!r}, its first line names {', '.join(columns[:12])}: "
            f"check that it is the right table, with tabs between its columns"
        )
    known = ("record", "chunk", "label", "group", "genome", "length", "part")
    try:
        table = read_table(path, tuple(name for name in known if name in columns))
    except ValueError as error:
        raise InputError(f"{path}: {error}: correct the table or make it again") from error
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


@dataclass(frozen=True)
class SampleCounts:
    """How many of the predictions and labels could be used.

    Attributes:
        rows: rows of the table of predictions.
        used: those with a label and a score.
        unlabelled: those without a label.
        unscored: labelled rows without a score, by label and status.
        absent: labelled records without a row, by label.
        missed_groups: unscored rows of viruses, by group.
        missed_lengths: the same, by the name of their length.
        trained: rows used whose record was in the training part of a data set.
        blank: rows of the table of labels without a label.
    """

    rows: int
    used: int
    unlabelled: int
    unscored: Mapping[tuple[str, str], int]
    absent: Mapping[str, int]
    trained: int
    blank: int
    missed_groups: Mapping[str, int] = field(default_factory=dict)
    missed_lengths: Mapping[str, int] = field(default_factory=dict)

    @property
    def missed(self) -> int:
        """Unscored rows of viruses."""
        return sum(self.missed_groups.values())


@dataclass(frozen=True)
class Sample:
    """Rows with a score and a label. All arrays have one entry per row.

    Attributes:
        scores: 0 to 1.
        virus: the label.
        groups: numbers of ``group_names``, which are pairs of label and group. A group
            that has both labels is two.
        clusters: numbers of genomes, which are drawn for intervals. A genome has one label.
        lengths: numbers of ``length_names``, short to long. A name is empty where nothing is
            known.
        fdr: stated false discovery rates of contigs, NaN where there are none.
        called: whether ``predict`` called a contig virus.
    """

    scores: Floats
    virus: Bools
    groups: Ints
    group_names: tuple[tuple[str, str], ...]
    clusters: Ints
    lengths: Ints
    length_names: tuple[str, ...]
    fdr: Floats
    called: Bools
    counts: SampleCounts


def join(predictions: Predictions, labels: Labels) -> Sample:
    """Give every prediction the label of its chunk, where that is known, or else of its record.

    Raises:
        InputError: the table of predictions is damaged, or no row has a label and a score.
    """
    import pandas

    rows = predictions.rows()
    known = labels.table.rename(columns={"length": "requested"})
    records = known.drop_duplicates("record").set_index("record", drop=False)
    found = records.reindex(rows.record).reset_index(drop=True)
    if (known.chunk != "").any():
        by_chunk = known.set_index("chunk").reindex(rows.chunk).reset_index(drop=True)
        found = by_chunk.where(by_chunk.label.notna(), found)
    labelled, scored = found.label.notna().to_numpy(), rows.score.notna().to_numpy()
    if not (labelled & scored).any():
        raise InputError(
            f"none of the {len(rows):,} rows of {predictions.path} has a label and a score "
            f"({(~labelled).sum():,} have no label): check that the table labels the same records, "
            f"by the first word of their headers"
        )
    names = ["record", "label", "group", "genome", "requested", "part"]
    both = pandas.concat([found[names], rows.drop(columns=["record"])], axis=1)
    used, unscored = both[labelled & scored], both[labelled & ~scored]
    missed = unscored[unscored.label == "virus"]
    # The rows without a score have a length, too, and are left out of the classes again.
    all_lengths, length_names = _length_classes(
        pandas.concat([used, missed]), contigs=predictions.kind.level == "contig"
    )
    lengths = all_lengths[: len(used)]
    groups, group_names = pandas.factorize(pandas.MultiIndex.from_frame(used[["label", "group"]]))
    clusters, _ = pandas.factorize(pandas.MultiIndex.from_frame(used[["label", "genome"]]))
    absent = records.label[~records.index.isin(both.record)]
    counts = SampleCounts(
        rows=len(rows),
        used=len(used),
        unlabelled=int((~labelled).sum()),
        unscored=Counter(zip(unscored.label, unscored.status, strict=True)),
        absent=Counter(absent),
        trained=int((used.part == "train").sum()),
        blank=labels.blank,
        missed_groups=Counter(missed.group),
        missed_lengths=Counter(length_names[n] for n in all_lengths[len(used) :].tolist()),
    )
    return Sample(
        used.score.to_numpy(np.float64),
        (used.label == "virus").to_numpy(),
        groups,
        tuple(group_names),
        clusters,
        lengths,
        length_names,
        used.fdr.to_numpy(np.float64),
        used.called.to_numpy(np.bool_),
        counts,
    )


def _length_classes(rows: Any, *, contigs: bool) -> tuple[Ints, tuple[str, ...]]:
    """Return the length class of each row: the chunk length of its label, else a range of bases."""
    requested, bases = rows.requested.to_numpy(np.int64), rows.length.to_numpy(np.int64)
    if requested.all() and not contigs:
        values, lengths = np.unique(requested, return_inverse=True)
        return lengths.astype(np.int64), tuple(str(value) for value in values)
    if not bases.all():
        return np.zeros(len(bases), np.int64), ("",)
    ends = CONTIG_LENGTHS if contigs else CHUNK_LENGTHS
    names = (*(f"<={end}" for end in ends), f">{ends[-1]}")
    classes, lengths = np.unique(np.searchsorted(ends, bases), return_inverse=True)
    return lengths.astype(np.int64), tuple(names[i] for i in classes)
