"""Measure a sample: overall, by length, by group, with intervals and notes on what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from virnucpro.evaluation.intervals import FEWEST, MOST_SLICES, Spread, spreads
from virnucpro.evaluation.metrics import (
    NO_SCORES,
    ONE_CLASS,
    Bin,
    Measures,
    measure,
    reliability,
)
from virnucpro.evaluation.sample import Sample
from virnucpro.evaluation.slices import Kind, cells_of, slices_of

STATED = (0.01, 0.05, 0.1, 0.2)  # false discovery rates that are compared with the truth
SEED = 1


@dataclass(frozen=True)
class Line:
    """A slice with its figures.

    ``correct`` is the share of its rows that are called as they are labelled; of a group, of the
    group's own rows, where ``measures`` also count the pooled rows of the other label.
    """

    kind: Kind
    label: str
    name: str
    measures: Measures
    correct: float | None
    spread: Spread
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Discoveries:
    """Contigs with an ``fdr`` of at most ``stated``, and the share of them that are no virus."""

    stated: float
    contigs: int
    false: int
    realised: float | None


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured; ``lines`` begins with the whole sample."""

    sample: Sample
    threshold: float
    graded: bool
    lines: tuple[Line, ...]
    reliability: tuple[Bin, ...]
    discoveries: tuple[Discoveries, ...]
    notes: tuple[str, ...]

    def of_kind(self, kind: Kind) -> list[Line]:
        """The lines that are slices by ``kind``."""
        return [line for line in self.lines if line.kind == kind]


def evaluate(sample: Sample, threshold: float, *, graded: bool) -> Evaluation:
    """Measure ``sample``, which has at least one row.

    Args:
        threshold: a row is called virus where its score is at least this.
        graded: False where the scores are calls.
    """
    sample = _by_score(sample)
    cells = cells_of(sample)
    slices = slices_of(sample, cells)
    right = (sample.scores >= threshold) == sample.virus
    found = spreads(sample, cells, slices, right, graded=graded, seed=SEED)
    lines = []
    for part, spread in zip(slices, found, strict=True):
        rows = part.rows[cells.of_row]
        measures = measure(sample.virus[rows], sample.scores[rows], threshold, graded=graded)
        if (
            part.kind == "group"
        ):  # the mixture of a group and a pool has an arbitrary share of virus
            measures = replace(measures, brier=None, ece=None)
        own = right[part.own[cells.of_row]]
        correct = float(own.mean()) if len(own) else None
        notes = _notes(measures, spread, len(slices))
        lines.append(
            Line(part.kind, part.label, part.name, measures, correct, spread, tuple(notes))
        )
    bins = tuple(reliability(sample.virus, sample.scores)) if graded else ()
    remarks = tuple(_remarks(sample, graded=graded))
    return Evaluation(sample, threshold, graded, tuple(lines), bins, _discoveries(sample), remarks)


def _by_score(sample: Sample) -> Sample:
    """The highest score first: so is every slice then, and curves of sorted scores are quick."""
    order = np.argsort(-sample.scores, kind="stable")
    columns = ("scores", "virus", "groups", "clusters", "lengths", "fdr")
    return replace(sample, **{name: getattr(sample, name)[order] for name in columns})


def _notes(measures: Measures, spread: Spread, slices: int) -> list[str]:
    if not measures.virus or not measures.others:
        return [ONE_CLASS]
    if slices > MOST_SLICES:
        return [f"more than {MOST_SLICES} lengths and groups: no intervals"]
    if spread.accuracy is None:
        return [f"fewer than {FEWEST} genomes of a label: no intervals"]
    return []


def _remarks(sample: Sample, *, graded: bool) -> list[str]:
    """What a reader of the figures must know, in sentences."""
    remarks = [] if graded else [NO_SCORES]
    if sample.counts.trained:
        remarks.append(
            f"{sample.counts.trained:,} of the {sample.counts.used:,} rows are of records in the "
            f"training part: a classifier trained on them looks better than it is"
        )
    return remarks


def _discoveries(sample: Sample) -> tuple[Discoveries, ...]:
    known = ~np.isnan(sample.fdr)
    if not known.any():
        return ()
    fdr, virus = sample.fdr[known], sample.virus[known]
    found = []
    for stated in STATED:
        called = fdr <= stated
        contigs, false = int(called.sum()), int((~virus[called]).sum())
        found.append(Discoveries(stated, contigs, false, false / contigs if contigs else None))
    return tuple(found)
