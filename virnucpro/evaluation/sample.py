"""Predictions beside what is known of their records, as arrays."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.evaluation.labels import Labels, Origin
from virnucpro.evaluation.predictions import Predictions, Row

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
K = TypeVar("K", bound=Hashable)

# Upper ends of the classes of length, in bases, where the labels name no chunk length. The first
# three are those of the released classifiers and of half-length reads.
CHUNK_LENGTHS = (150, 300, 500)
CONTIG_LENGTHS = (500, 1000, 3000, 10000)


@dataclass(frozen=True)
class Counts:
    """What of the predictions and labels could be used.

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
    """Rows with a score and a label; all arrays have one entry a row.

    Attributes:
        scores: 0 to 1.
        virus: what is true.
        groups: numbers of ``group_names``, which are pairs of label and group; a group that has
            both labels is two.
        clusters: numbers of genomes, what is drawn for intervals; of one label each.
        lengths: numbers of ``length_names``, short to long; empty names where nothing is known.
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
    counts: Counts


def label_of(virus: bool) -> str:
    """``virus`` or ``others``."""
    return "virus" if virus else "others"


@dataclass
class _Numbers(Generic[K]):
    """Numbers things in the order in which they are first seen."""

    known: dict[K, int] = field(default_factory=dict)

    def __call__(self, thing: K) -> int:
        return self.known.setdefault(thing, len(self.known))


@dataclass
class _Columns:
    """The arrays of a sample while they grow: 8 bytes a row and column."""

    scores: array[float] = field(default_factory=lambda: array("d"))
    fdr: array[float] = field(default_factory=lambda: array("d"))
    origins: array[int] = field(default_factory=lambda: array("q"))
    bases: array[int] = field(default_factory=lambda: array("q"))

    def add(self, row: Row, origin: int) -> None:
        self.scores.append(row.score)
        self.fdr.append(row.fdr)
        self.origins.append(origin)
        self.bases.append(row.length)


def join(predictions: Predictions, labels: Labels) -> Sample:
    """Give every prediction its label: that of its chunk, where it is known, or of its record.

    Raises:
        InputError: the table of predictions is damaged, or no row has a label and a score.
    """
    columns, origins = _Columns(), _Numbers[Origin]()
    unscored: Counter[tuple[str, str]] = Counter()
    seen: set[str] = set()
    rows = unlabelled = 0
    for row in predictions.rows():
        rows += 1
        origin = labels.chunks.get(row.chunk) or labels.records.get(row.record)
        if origin is None:
            unlabelled += 1
            continue
        seen.add(origin.record)
        if row.score == row.score:  # not NaN
            columns.add(row, origins(origin))
        else:
            unscored[label_of(origin.virus), row.status] += 1
    if not origins.known:
        raise InputError(
            f"none of the {rows:,} rows of {predictions.table.path} has a label and a score "
            f"({unlabelled:,} have no label): check that the table labels the same records, by the "
            f"first word of their headers"
        )
    known = list(origins.known)
    number = np.array(columns.origins, np.int64)
    absent = Counter(label_of(o.virus) for o in labels.records.values() if o.record not in seen)
    trained = int(_column((o.part == "train" for o in known), number).sum())
    counts = Counts(rows, len(number), unlabelled, unscored, absent, trained, labels.blank)
    return _sample(columns, known, number, predictions.level == "contig", counts)


def _sample(
    columns: _Columns, known: list[Origin], number: Ints, contigs: bool, counts: Counts
) -> Sample:
    groups, clusters = _Numbers[tuple[str, str]](), _Numbers[tuple[str, str]]()
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
    """Values of the origins, given to every row."""
    return np.fromiter(values, np.int64)[number]


def _lengths(
    columns: _Columns, known: list[Origin], number: Ints, contigs: bool
) -> tuple[Ints, tuple[str, ...]]:
    """Classes of length: chunk lengths that the labels name, else bases in ranges."""
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
