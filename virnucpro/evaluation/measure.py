"""Measure a sample: all of it, each length, each group against the rest, with 95 % intervals.

Intervals come from resampled genomes. All slices are measured in the same resamples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from virnucpro.evaluation.labels import Sample
from virnucpro.metrics.bootstrap import (
    LEVELS,
    RESAMPLES,
    Interval,
    auroc_of_counts,
    draw_genomes,
    percentile_interval,
    score_levels,
)
from virnucpro.metrics.classification import (
    BINS,
    Bools,
    Floats,
    Metrics,
    call_metrics,
    ratio_or_nan,
    score_bins,
    score_metrics,
)

if TYPE_CHECKING:
    from pandas import DataFrame

ONE_CLASS = "one class only: AUROC, AUPRC, precision, F1 and MCC are not defined"
NO_SCORES = "calls without scores: AUROC, AUPRC, Brier score and calibration are not defined"
STATED_RATES = (0.01, 0.05, 0.1, 0.2)  # false discovery rates that are compared with the truth
SEED = 1
SliceKind = Literal["overall", "length", "group"]
NO_GROUP = "(no group)"
MOST_SLICES = 200  # with more, the intervals would take minutes
FEWEST_GENOMES = 2  # of a label


@dataclass(frozen=True)
class SliceResult:
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
        intervals: of ``auroc``, ``accuracy`` and ``correct``; None where a label has fewer than
            ``FEWEST_GENOMES`` genomes.
        notes: what a reader must know, in sentences.
    """

    kind: SliceKind
    label: str
    name: str
    rows: Bools
    genomes: int
    metrics: Metrics
    intervals: dict[str, Interval]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """The name of the slice for people."""
        if self.kind == "length":
            return f"{self.name} bases"
        return f"{self.label} {self.name}".strip()


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured.

    ``false_discoveries`` are, for contigs with a stated rate of at most ``stated``, ``contigs``,
    the number that is ``false``, and the ``realised`` rate.
    """

    sample: Sample  # the rows, the highest score first
    threshold: float | None  # None where predict made the calls
    graded: bool  # scores are more than calls
    slices: tuple[SliceResult, ...]  # the whole sample, then the lengths, then the groups
    reliability: list[dict[str, Any]]  # the bins of the reliability diagram
    false_discoveries: list[dict[str, Any]]
    notes: list[str]  # what a reader of the metrics must know, in sentences

    @property
    def overall(self) -> SliceResult:
        """The whole sample."""
        return self.slices[0]

    def of_kind(self, kind: SliceKind) -> list[SliceResult]:
        """Return the results that are slices by ``kind``."""
        return [result for result in self.slices if result.kind == kind]


def evaluate(sample: Sample, threshold: float | None, *, graded: bool) -> Evaluation:
    """Measure ``sample``, which has at least one row.

    A row is called virus where its score is at least ``threshold``, or where ``predict`` called it
    so if that is None. Scores that are not ``graded`` are calls.
    """
    # With the highest score first, every slice is sorted, and its curves are quick.
    rows = sample.rows.sort_values("score", ascending=False, kind="stable", ignore_index=True)
    virus, scores = rows.label == "virus", rows.score.to_numpy(np.float64)
    called = rows.called if threshold is None else rows.score >= threshold
    levels, correct = score_levels(scores), called == virus
    rows = rows.assign(virus=virus, called=called, correct=correct, level=levels)
    sample, slices = sample._replace(rows=rows), list(_slices(rows))
    drawn = None
    if len(slices) <= MOST_SLICES:
        draws = _draws(rows)
        drawn = draws, _level_counts(rows, draws)
    notes = [] if graded else [NO_SCORES]
    if trained := sample.counts["rows_of_the_training_part"]:
        notes.append(
            f"{trained:,} of the {len(rows):,} rows are of records in the training part: a "
            f"classifier trained on them looks better than it is"
        )
    return Evaluation(
        sample,
        threshold,
        graded,
        tuple(_measure(sample, *part, drawn, graded=graded) for part in slices),
        _reliability(virus.to_numpy(), scores) if graded else [],
        _false_discoveries(rows),
        notes,
    )


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
    drawn: tuple[Floats, Floats] | None,
    *,
    graded: bool,
) -> SliceResult:
    """Measure one of the slices.

    ``drawn`` are how often each genome is drawn, and the counts of all rows by label and level;
    None where there are to be no intervals.
    """
    rows, missed = sample.rows[chosen], sample.missed
    virus = rows.virus.to_numpy()
    metrics = call_metrics(virus, rows.called.to_numpy(np.bool_))
    found = score_metrics(virus, rows.score.to_numpy(np.float64))
    # A group and the pool of others have an arbitrary share of virus.
    undefined = () if graded and kind != "group" else ("brier", "ece") if graded else tuple(found)
    metrics |= found | dict.fromkeys(undefined)
    if kind == "length":
        missed = missed[missed.length == name]
    elif kind == "group" and label == "virus":  # others are measured against all viruses
        missed = missed[missed.group == ("" if name == NO_GROUP else name)]
    viruses = int(virus.sum()) + len(missed)
    metrics["recall_all"] = int((rows.called & rows.virus).sum()) / viruses if viruses else None
    alone = sample.rows[own]
    metrics["correct"] = float(alone.correct.mean()) if len(alone) else None
    both_classes = 0 < virus.sum() < len(virus)
    enough = both_classes and rows.groupby("virus").genome.nunique().min() >= FEWEST_GENOMES
    intervals: dict[str, Interval] = dict.fromkeys(("auroc", "accuracy", "correct"))
    genomes = int(alone.genome.nunique())
    if drawn is not None:
        draws, whole = drawn
        if enough and graded:
            counts = _level_counts(alone, draws)
            if kind == "group":
                other = slice(0, LEVELS) if label == "virus" else slice(LEVELS, None)
                counts[other] = whole[other]
            areas = auroc_of_counts(counts[LEVELS:].T, counts[:LEVELS].T)
            intervals["auroc"] = percentile_interval(areas)
        if enough:
            intervals["accuracy"] = _share_interval(rows, draws)
        if genomes >= FEWEST_GENOMES:
            intervals["correct"] = _share_interval(alone, draws)
    notes: tuple[str, ...] = ()
    if not both_classes:
        notes = (ONE_CLASS,)
    elif drawn is None:
        notes = (f"more than {MOST_SLICES} lengths and groups: no intervals",)
    elif intervals["accuracy"] is None:
        notes = (f"fewer than {FEWEST_GENOMES} genomes of a label: no intervals",)
    return SliceResult(kind, label, name, chosen, genomes, metrics, intervals, notes)


def _draws(rows: DataFrame) -> Floats:
    """Return ``[genomes, RESAMPLES]``: how often each genome is drawn."""
    generator, count = np.random.default_rng(SEED), int(rows.genome.max()) + 1
    of_labels = [np.unique(rows.genome[rows.virus == side]) for side in (True, False)]
    return np.stack([draw_genomes(generator, of_labels, count) for _ in range(RESAMPLES)], axis=1)


def _level_counts(rows: DataFrame, draws: Floats) -> Any:
    """Return ``[2 * LEVELS, RESAMPLES]``: the drawn rows by label (others first) and level."""
    from scipy.sparse import coo_matrix

    places = (rows.virus.to_numpy() * LEVELS + rows.level.to_numpy(), rows.genome.to_numpy())
    return coo_matrix((np.ones(len(rows)), places), (2 * LEVELS, len(draws))).tocsr() @ draws


def _share_interval(rows: DataFrame, draws: Floats) -> Interval:
    """Return the interval of the share of rows that are called as they are labelled."""
    by_genome = rows.groupby("genome").correct
    drawn = draws[by_genome.sum().index].T
    return percentile_interval(ratio_or_nan(drawn @ by_genome.sum(), drawn @ by_genome.count()))


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
