"""Measure a sample: all of it, each length, each group against the rest, with 95 % intervals.

Intervals come from resampled genomes. All slices are measured in the same resamples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from virnucpro.evaluation.tables import Sample
from virnucpro.metrics.classification import (
    BINS,
    LEVELS,
    RESAMPLES,
    Bools,
    Floats,
    Interval,
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


SliceRow = dict[str, Any]
"""What was measured of rows together: a value for each column of ``evaluation.tsv``.

``slice`` is what the sample is sliced by; ``label`` is ``virus`` or ``others`` for a group, else
empty; ``name`` is the length or the group. Of a group, rows of the other label are measured too;
``genomes`` and ``correct``, the share of the rows that are called as they are labelled, are of the
group alone. ``recall_all`` is the recall where viruses without a score are counted as missed. A
metric that is not defined is None, and so are the ends of an interval of fewer than
``FEWEST_GENOMES`` genomes, for AUROC of either label. ``note`` is what a reader must know, in a
sentence; it may be empty.
"""


class Evaluation(NamedTuple):
    """Everything that was measured.

    ``false_discoveries`` are, for contigs with a stated rate of at most ``stated``, ``contigs``,
    the number that is ``false``, and the ``realised`` rate.
    """

    sample: Sample  # the rows, the highest score first
    slices: list[SliceRow]  # the whole sample, then the lengths, then the groups
    reliability: list[dict[str, Any]]  # the bins of the reliability diagram
    false_discoveries: list[dict[str, Any]]

    def of_kind(self, kind: SliceKind) -> list[SliceRow]:
        """Return the slices by ``kind``."""
        return [row for row in self.slices if row["slice"] == kind]


def slice_title(row: SliceRow) -> str:
    """Return the name of a slice for people."""
    if row["slice"] == "length":
        return f"{row['name']} bases"
    return f"{row['label']} {row['name']}".strip()


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
    return Evaluation(sample, slices, reliability, _false_discoveries(rows))


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
) -> SliceRow:
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
    ends = {
        f"{metric}_{end}": interval and interval[place]
        for metric, interval in intervals.items()
        for place, end in enumerate(("low", "high"))
    }
    facts = {"slice": kind, "label": label, "name": name, "genomes": len(by_genome)}
    return {**facts, **metrics, **ends, "note": note}


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
