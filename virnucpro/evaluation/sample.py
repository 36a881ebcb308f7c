"""Join predictions and labels into arrays."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from virnucpro.errors import InputError
from virnucpro.evaluation.labels import Label, Labels
from virnucpro.evaluation.predictions import PredictionRow, Predictions
from virnucpro.metrics.classification import Bools, Floats, Ints

K = TypeVar("K", bound=Hashable)

# Upper ends of the classes of length, in bases, where the labels name no chunk length. The first
# three are those of the released classifiers and of half-length reads.
CHUNK_LENGTHS = (150, 300, 500)
CONTIG_LENGTHS = (500, 1000, 3000, 10000)


@dataclass(frozen=True)
class SampleCounts:
    """How many of the predictions and labels could be used.

    Attributes:
        rows: rows of the table of predictions.
        used: those with a label and a score.
        unlabelled: those without a label.
        unscored: labelled rows without a score, by label and status.
        absent: labelled records without a row, by label.
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
    """

    scores: Floats
    virus: Bools
    groups: Ints
    group_names: tuple[tuple[str, str], ...]
    clusters: Ints
    lengths: Ints
    length_names: tuple[str, ...]
    fdr: Floats
    counts: SampleCounts


def label_of(virus: bool) -> str:
    """Return ``virus`` or ``others``."""
    return "virus" if virus else "others"


@dataclass
class _Numbering(Generic[K]):
    """Number things in the order in which they are first seen."""

    known: dict[K, int] = field(default_factory=dict)

    def __call__(self, thing: K) -> int:
        return self.known.setdefault(thing, len(self.known))


@dataclass
class _Columns:
    """The arrays of a sample while they grow. They take 8 bytes per row and column."""

    scores: array[float] = field(default_factory=lambda: array("d"))
    fdr: array[float] = field(default_factory=lambda: array("d"))
    labels: array[int] = field(default_factory=lambda: array("q"))
    bases: array[int] = field(default_factory=lambda: array("q"))

    def add(self, row: PredictionRow, label: int) -> None:
        self.scores.append(row.score)
        self.fdr.append(row.fdr)
        self.labels.append(label)
        self.bases.append(row.length)


def join(predictions: Predictions, labels: Labels) -> Sample:
    """Give every prediction the label of its chunk, where that is known, or else of its record.

    Raises:
        InputError: the table of predictions is damaged, or no row has a label and a score.
    """
    columns, label_numbers = _Columns(), _Numbering[Label]()
    unscored: Counter[tuple[str, str]] = Counter()
    seen: set[str] = set()
    rows = unlabelled = 0
    for row in predictions.rows():
        rows += 1
        label = labels.chunks.get(row.chunk) or labels.records.get(row.record)
        if label is None:
            unlabelled += 1
            continue
        seen.add(label.record)
        if row.score == row.score:  # the score is not NaN
            columns.add(row, label_numbers(label))
        else:
            unscored[label_of(label.virus), row.status] += 1
    if not label_numbers.known:
        raise InputError(
            f"none of the {rows:,} rows of {predictions.table.path} has a label and a score "
            f"({unlabelled:,} have no label): check that the table labels the same records, by the "
            f"first word of their headers"
        )
    known = list(label_numbers.known)
    number = np.array(columns.labels, np.int64)
    absent = Counter(label_of(o.virus) for o in labels.records.values() if o.record not in seen)
    trained = int(_column((o.part == "train" for o in known), number).sum())
    counts = SampleCounts(rows, len(number), unlabelled, unscored, absent, trained, labels.blank)
    return _sample(columns, known, number, predictions.level == "contig", counts)


def _sample(
    columns: _Columns, known: list[Label], number: Ints, contigs: bool, counts: SampleCounts
) -> Sample:
    groups, clusters = _Numbering[tuple[str, str]](), _Numbering[tuple[str, str]]()
    lengths, length_names = _lengths(columns, known, number, contigs)
    group = [groups((label_of(o.virus), o.group)) for o in known]
    cluster = [clusters((label_of(o.virus), o.genome)) for o in known]
    return Sample(
        scores=np.array(columns.scores),
        virus=_column((o.virus for o in known), number).astype(bool),
        groups=_column(group, number),
        group_names=tuple(groups.known),
        clusters=_column(cluster, number),
        lengths=lengths,
        length_names=length_names,
        fdr=np.array(columns.fdr),
        counts=counts,
    )


def _column(values: Iterable[int], number: Ints) -> Ints:
    """Spread one value per label over the rows."""
    return np.fromiter(values, np.int64)[number]


def _lengths(
    columns: _Columns, known: list[Label], number: Ints, contigs: bool
) -> tuple[Ints, tuple[str, ...]]:
    """Return the length class of each row: the chunk length of its label, else a range of bases."""
    asked = _column((o.length for o in known), number)
    if asked.all() and not contigs:
        values, lengths = np.unique(asked, return_inverse=True)
        return lengths.astype(np.int64), tuple(str(value) for value in values)
    bases = np.array(columns.bases, np.int64)
    if not bases.all():
        return np.zeros(len(bases), np.int64), ("",)
    ends = CONTIG_LENGTHS if contigs else CHUNK_LENGTHS
    names = (*(f"<={end}" for end in ends), f">{ends[-1]}")
    classes, lengths = np.unique(np.searchsorted(ends, bases), return_inverse=True)
    return lengths.astype(np.int64), tuple(names[i] for i in classes)
