"""Join predictions and labels into arrays."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from virnucpro.errors import InputError
from virnucpro.evaluation.labels import Label, Labels
from virnucpro.evaluation.predictions import Predictions
from virnucpro.metrics.classification import Bools, Floats, Ints

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


def label_of(virus: bool) -> str:
    """Return ``virus`` or ``others``."""
    return "virus" if virus else "others"


def join(predictions: Predictions, labels: Labels) -> Sample:
    """Give every prediction the label of its chunk, where that is known, or else of its record.

    Raises:
        InputError: the table of predictions is damaged, or no row has a label and a score.
    """
    rows = _labelled_rows(predictions, labels)
    groups: dict[tuple[str, str], int] = {}
    genomes: dict[tuple[str, str], int] = {}
    lengths, length_names, missed_lengths = rows.length_classes(
        contigs=predictions.level == "contig"
    )
    absent = (label for label in labels.records.values() if label.record not in rows.records)
    counts = SampleCounts(
        rows=rows.read,
        used=len(rows.scores),
        unlabelled=rows.unlabelled,
        unscored=rows.unscored,
        absent=Counter(label_of(label.virus) for label in absent),
        trained=int(rows.spread(label.part == "train" for label in rows.known).sum()),
        blank=labels.blank,
        missed_groups=Counter(label.group for label, _ in rows.missed),
        missed_lengths=missed_lengths,
    )
    return Sample(
        scores=np.array(rows.scores),
        virus=rows.spread(label.virus for label in rows.known).astype(bool),
        groups=rows.spread(
            groups.setdefault((label_of(label.virus), label.group), len(groups))
            for label in rows.known
        ),
        group_names=tuple(groups),
        clusters=rows.spread(
            genomes.setdefault((label_of(label.virus), label.genome), len(genomes))
            for label in rows.known
        ),
        lengths=lengths,
        length_names=length_names,
        fdr=np.array(rows.rates),
        called=np.array(rows.called, np.bool_),
        counts=counts,
    )


@dataclass(frozen=True)
class _LabelledRows:
    """The rows of a table of predictions, with their labels.

    Attributes:
        scores: of the rows with a label and a score, as the next four.
        rates: stated false discovery rates.
        called: whether ``predict`` called the row virus.
        bases: lengths.
        numbers: which of ``known`` is the label.
        known: the labels in the order of their first rows.
        missed: the labels of viruses without a score, with their bases.
        unscored: labelled rows without a score, by label and status.
        records: the labelled records that have a row.
        read: all rows of the table.
        unlabelled: those without a label.
    """

    scores: array[float]
    rates: array[float]
    called: array[int]
    bases: array[int]
    numbers: array[int]
    known: Sequence[Label]
    missed: Sequence[tuple[Label, int]]
    unscored: Mapping[tuple[str, str], int]
    records: Collection[str]
    read: int
    unlabelled: int

    def spread(self, values: Iterable[int]) -> Ints:
        """Spread one value per known label over the rows."""
        return np.fromiter(values, np.int64)[np.array(self.numbers, np.int64)]

    def length_classes(self, *, contigs: bool) -> tuple[Ints, tuple[str, ...], Counter[str]]:
        """Return the length class of each row, the names of the classes, and what each missed."""
        requested = self.spread(label.length for label in self.known)
        # The rows without a score have a length, too, and are left out of the classes again.
        lengths, names = _length_classes(
            np.append(requested, [label.length for label, _ in self.missed]).astype(np.int64),
            np.append(self.bases, [length for _, length in self.missed]).astype(np.int64),
            contigs=contigs,
        )
        scored = len(self.bases)
        return lengths[:scored], names, Counter(names[n] for n in lengths[scored:].tolist())


def _labelled_rows(predictions: Predictions, labels: Labels) -> _LabelledRows:
    scores, rates = array("d"), array("d")  # 8 bytes per row and array
    bases, numbers, called = array("q"), array("q"), array("b")
    missed: list[tuple[Label, int]] = []
    known: dict[Label, int] = {}
    unscored: Counter[tuple[str, str]] = Counter()
    records: set[str] = set()
    read = unlabelled = 0
    for row in predictions.rows():
        read += 1
        label = labels.chunks.get(row.chunk) or labels.records.get(row.record)
        if label is None:
            unlabelled += 1
            continue
        records.add(label.record)
        if row.score != row.score:  # NaN
            unscored[label_of(label.virus), row.status] += 1
            if label.virus:
                missed.append((label, row.length))
            continue
        scores.append(row.score)
        rates.append(row.fdr)
        called.append(row.called)
        bases.append(row.length)
        numbers.append(known.setdefault(label, len(known)))
    if not known:
        raise InputError(
            f"none of the {read:,} rows of {predictions.table.path} has a label and a score "
            f"({unlabelled:,} have no label): check that the table labels the same records, by the "
            f"first word of their headers"
        )
    return _LabelledRows(
        scores,
        rates,
        called,
        bases,
        numbers,
        tuple(known),
        missed,
        unscored,
        records,
        read,
        unlabelled,
    )


def _length_classes(requested: Ints, bases: Ints, *, contigs: bool) -> tuple[Ints, tuple[str, ...]]:
    """Return the length class of each row: the chunk length of its label, else a range of bases."""
    if requested.all() and not contigs:
        values, lengths = np.unique(requested, return_inverse=True)
        return lengths.astype(np.int64), tuple(str(value) for value in values)
    if not bases.all():
        return np.zeros(len(bases), np.int64), ("",)
    ends = CONTIG_LENGTHS if contigs else CHUNK_LENGTHS
    names = (*(f"<={end}" for end in ends), f">{ends[-1]}")
    classes, lengths = np.unique(np.searchsorted(ends, bases), return_inverse=True)
    return lengths.astype(np.int64), tuple(names[i] for i in classes)
