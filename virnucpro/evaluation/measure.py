"""Measure a sample: all of it, each length, each group against the rest, with 95 % intervals.

Intervals come from resampled genomes. All slices are measured in the same resamples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from virnucpro.evaluation.labels import Sample
from virnucpro.metrics.classification import (
    BINS,
    LEVELS,
    RESAMPLES,
    Bools,
    Floats,
    Interval,
    Metrics,
    auroc_of_counts,
    call_metrics,
    draw_genomes,
    percentile_interval,
    ratio_or_nan,
    score_bins,
    score_levels,
    score_metrics,
)

if TYPE_CHECKING:
    from pandas import DataFrame

ONE_CLASS = "one class only: AUROC, AUPRC, precision, F1 and MCC are not defined"
STATED_RATES = (0.01, 0.05, 0.1, 0.2)  # false discovery rates that are compared with the truth
SEED = 1
SliceKind = Literal["overall", "length", "group"]
NO_GROUP = "(no group)"
FEWEST_GENOMES = 2  # of a label
MEASURED = ["virus", "called", "correct", "score", "level", "genome"]


class SliceResult(NamedTuple):
    """Rows that are measured together, with their metrics.

    Attributes:
        kind: what the sample is sliced by.
        label: ``virus`` or ``others`` for a group, else empty.
        name: the length or the group.
        rows: ``[n]``, the rows of the slice; for a group, those of the other label are among them.
        genomes: the number of genomes; for a group, of the group alone.
        metrics: by name, None where not defined; ``recall_all`` is the recall where viruses without
            a score are counted as missed; ``correct`` is the share of the rows that are called as
            they are labelled; for a group, of the rows of the group alone.
        intervals: of ``auroc`` and ``correct``; None where there are fewer than ``FEWEST_GENOMES``
            genomes, for AUROC of either label.
        note: what a reader must know, in a sentence; may be empty.
    """

    kind: SliceKind
    label: str
    name: str
    rows: Bools
    genomes: int
    metrics: Metrics
    intervals: dict[str, Interval]
    note: str

    def facts(self) -> dict[str, Any]:
        """Return what both tables of results have, by column."""
        names = {"slice": self.kind, "label": self.label, "name": self.name}
        return {**names, "genomes": self.genomes, **self.metrics, "note": self.note}

    @property
    def title(self) -> str:
        """The name of the slice for people."""
        if self.kind == "length":
            return f"{self.name} bases"
        return f"{self.label} {self.name}".strip()


class Evaluation(NamedTuple):
    """Everything that was measured.

    ``false_discoveries`` are, for contigs with a stated rate of at most ``stated``, ``contigs``,
    the number that is ``false``, and the ``realised`` rate.
    """

    sample: Sample  # the rows, the highest score first
    threshold: float | None  # None where predict made the calls
    slices: list[SliceResult]  # the whole sample, then the lengths, then the groups
    reliability: list[dict[str, Any]]  # the bins of the reliability diagram
    false_discoveries: list[dict[str, Any]]

    @property
    def overall(self) -> SliceResult:
        """The whole sample."""
        return self.slices[0]

    def of_kind(self, kind: SliceKind) -> list[SliceResult]:
        """Return the results that are slices by ``kind``."""
        return [result for result in self.slices if result.kind == kind]


def evaluate(sample: Sample, threshold: float | None) -> Evaluation:
    """Measure ``sample``, which has at least one row.

    A row is classified as viral where its score is at least ``threshold``, or, where that is None,
    as ``predict`` did.
    """
    # With the highest score first, every slice is sorted, and its curves are quick.
    rows = sample.rows.sort_values("score", ascending=False, kind="stable", ignore_index=True)
    virus, scores = rows.label == "virus", rows.score.to_numpy(np.float64)
    called = rows.called if threshold is None else rows.score >= threshold
    levels, correct = score_levels(scores), called == virus
    rows = rows.assign(virus=virus, called=called, correct=correct, level=levels)
    generator, genomes = np.random.default_rng(SEED), int(rows.genome.max()) + 1
    of_labels = [np.unique(rows.genome[virus == side]) for side in (True, False)]
    resamples = [draw_genomes(generator, of_labels, genomes) for _ in range(RESAMPLES)]
    draws = np.stack(resamples, axis=1)  # [genomes, RESAMPLES]
    sample, drawn = sample._replace(rows=rows), (draws, _level_counts(rows, draws))
    slices = [_measure(sample, *part, drawn) for part in _slices(rows)]
    reliability = _reliability(virus.to_numpy(), scores)
    return Evaluation(sample, threshold, slices, reliability, _false_discoveries(rows))


def _slices(rows: DataFrame) -> Iterator[tuple[SliceKind, str, str, Bools, Bools]]:
    """Yield kind, label, name, measured rows and own rows of each slice, where these are known.

    A group has one label. Its rows are measured against all rows of the other label.
    """
    from pandas import MultiIndex, factorize

    whole = np.ones(len(rows), np.bool_)
    yield "overall", "", "all", whole, whole
    if rows.length.notna().any():
        for length in rows.length.cat.categories:
            own = (rows.length == length).to_numpy()
            yield "length", "", length, own, own
    if rows.group.any():
        virus = rows.virus.to_numpy()
        codes, pairs = factorize(MultiIndex.from_frame(rows[["label", "group"]]))
        for (label, name), number in sorted(zip(pairs, range(len(pairs)), strict=True)):
            own, other = codes == number, ~virus if label == "virus" else virus
            yield "group", label, name or NO_GROUP, own | other, own


def _measure(
    sample: Sample,
    kind: SliceKind,
    label: str,
    name: str,
    chosen: Bools,
    own: Bools,
    drawn: tuple[Floats, Floats],
) -> SliceResult:
    """Measure a slice; ``drawn``: each genome's draws, and the counts of all rows in them."""
    # Without the columns of text, which take long to copy for every slice.
    rows, missed = sample.rows.loc[chosen, MEASURED], sample.missed
    virus = rows.virus.to_numpy()
    metrics = call_metrics(virus, rows.called.to_numpy(np.bool_))
    metrics |= score_metrics(virus, rows.score.to_numpy(np.float64))
    if kind == "length":
        missed = missed[missed.length == name]
    elif kind == "group":  # measured against an arbitrary share of the other label
        metrics |= dict.fromkeys(("brier", "ece"))
        if label == "virus":
            missed = missed[missed.group == ("" if name == NO_GROUP else name)]
    viruses = int(virus.sum()) + len(missed)
    metrics["recall_all"] = int((rows.called & rows.virus).sum()) / viruses if viruses else None
    alone = sample.rows.loc[own, MEASURED]
    metrics["correct"] = float(alone.correct.mean()) if len(alone) else None
    intervals: dict[str, Interval] = {"auroc": None, "correct": None}
    (draws, whole), by_genome, note = drawn, alone.groupby("genome").correct, ""
    if alone.groupby("virus").genome.nunique().min() >= FEWEST_GENOMES:
        resampled = draws[by_genome.sum().index].T
        shares = ratio_or_nan(resampled @ by_genome.sum(), resampled @ by_genome.count())
        intervals["correct"] = percentile_interval(shares)
    if not 0 < virus.sum() < len(virus):
        note = ONE_CLASS
    elif rows.groupby("virus").genome.nunique().min() < FEWEST_GENOMES:
        note = f"fewer than {FEWEST_GENOMES} genomes of a label: no interval of AUROC"
    else:
        counts = _level_counts(alone, draws)
        if kind == "group":
            other = slice(0, LEVELS) if label == "virus" else slice(LEVELS, None)
            counts[other] = whole[other]
        areas = auroc_of_counts(counts[LEVELS:].T, counts[:LEVELS].T)
        intervals["auroc"] = percentile_interval(areas)
    return SliceResult(kind, label, name, chosen, len(by_genome), metrics, intervals, note)


def _level_counts(rows: DataFrame, draws: Floats) -> Any:
    """Return ``[2 * LEVELS, RESAMPLES]``: the drawn rows by label (others first) and level."""
    from scipy.sparse import coo_matrix

    places = (rows.virus.to_numpy() * LEVELS + rows.level.to_numpy(), rows.genome.to_numpy())
    return coo_matrix((np.ones(len(rows)), places), (2 * LEVELS, len(draws))).tocsr() @ draws


def _reliability(virus: Bools, scores: Floats) -> list[dict[str, Any]]:
    """Sort ``[n]`` rows into the ``BINS`` bins of a reliability diagram; the last one includes 1.

    The mean score and the share of viruses are None in an empty bin.
    """
    number = score_bins(scores)
    sums = (np.bincount(number, some, BINS) for some in (virus | True, scores, virus))
    return [
        {
            "low": place / BINS,
            "high": (place + 1) / BINS,
            "rows": int(rows),
            "mean_score": float(score / rows) if rows else None,
            "share_virus": float(viruses / rows) if rows else None,
        }
        for place, (rows, score, viruses) in enumerate(zip(*sums, strict=True))
    ]


def _false_discoveries(rows: DataFrame) -> list[dict[str, Any]]:
    found = []
    for stated in STATED_RATES if rows.fdr.notna().any() else ():
        called = rows[rows.fdr <= stated]
        contigs, false = len(called), int((called.label != "virus").sum())
        realised = false / contigs if contigs else None
        found.append({"stated": stated, "contigs": contigs, "false": false, "realised": realised})
    return found
