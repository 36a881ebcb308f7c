"""Measure a sample: all of it, each length, each group against the rest, with 95 % intervals.

Intervals come from resampled genomes. All slices are measured in the same resamples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from virnucpro.metrics import (
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
"""What was measured of rows together, as ``evaluation.json`` has it; a name per column of
``evaluation.tsv``, where each of the ``intervals`` (its ends, or None) has two.

``slice`` is what the sample is sliced by; ``label`` is ``virus`` or ``others`` for a group, else
empty; ``name`` is the length or the group. Of a group, rows of the other label are measured too;
``genomes`` and ``correct``, the share of the rows that are called as they are labelled, are of the
group alone. ``recall_all`` is the recall where viruses without a score are counted as missed. A
metric that is not defined is None, and so is an interval of fewer than ``FEWEST_GENOMES`` genomes,
for AUROC of either label. ``note`` is what a reader must know, in a sentence; it may be empty.
"""


def slice_title(row: SliceRow) -> str:
    """Return the name of a slice for people."""
    if row["slice"] == "length":
        return f"{row['name']} bases"
    return f"{row['label']} {row['name']}".strip()


def evaluate(
    rows: DataFrame, missed: DataFrame, threshold: float | None
) -> tuple[DataFrame, dict[str, Any]]:
    """Measure the rows and the missed viruses that ``join`` returns.

    A row is classified as viral where its score is at least ``threshold``, or, where that is None,
    as ``predict`` did.

    Returns:
        The rows, the highest score first, with a column ``virus``; and what ``evaluation.json``
        has of them: ``slices`` (the whole sample, then the lengths, then the groups), the bins of
        the ``reliability`` diagram, and ``false_discovery_rates`` (for contigs with a rate of at
        most ``stated``: ``contigs``, the number that is ``false``, and the ``realised`` rate).
    """
    # With the highest score first, every slice is sorted, and its curves are quick.
    rows = rows.sort_values("score", ascending=False, kind="stable", ignore_index=True)
    virus, scores = rows.label == "virus", rows.score.to_numpy(np.float64)
    called = rows.called if threshold is None else rows.score >= threshold
    levels, correct = score_levels(scores), called == virus
    rows = rows.assign(virus=virus, called=called, correct=correct, level=levels)
    generator, genomes = np.random.default_rng(SEED), int(rows.genome.max()) + 1
    of_labels = [np.unique(rows.genome[virus == side]) for side in (True, False)]
    resamples = [draw_genomes(generator, of_labels, genomes) for _ in range(RESAMPLES)]
    draws = np.stack(resamples, axis=1)  # [genomes, RESAMPLES]
    whole = _level_counts(rows, draws)
    return rows, {
        "slices": [_measure(rows, *part, draws, whole) for part in _slices(rows, missed)],
        "reliability": _reliability(virus.to_numpy(), scores),
        "false_discovery_rates": _false_discoveries(rows),
    }


def _slices(
    rows: DataFrame, missed: DataFrame
) -> Iterator[tuple[tuple[SliceKind, str, str], Bools, Bools, DataFrame]]:
    """Yield (slice, label, name), measured rows, own rows and missed viruses of what is known.

    A group has one label. Its rows are measured against all rows of the other label.
    """
    from pandas import MultiIndex, factorize

    whole = np.ones(len(rows), np.bool_)
    yield ("overall", "", "all"), whole, whole, missed
    if rows.length.notna().any():
        for length in rows.length.cat.categories:
            own = (rows.length == length).to_numpy()
            yield ("length", "", length), own, own, missed[missed.length == length]
    if rows.group.any():
        virus = rows.virus.to_numpy()
        codes, pairs = factorize(MultiIndex.from_frame(rows[["label", "group"]]))
        for (label, name), number in sorted(zip(pairs, range(len(pairs)), strict=True)):
            own, other = codes == number, ~virus if label == "virus" else virus
            of_group = missed[missed.group == name] if label == "virus" else missed
            yield ("group", label, name or NO_GROUP), own | other, own, of_group


def _measure(
    every: DataFrame,
    title: tuple[SliceKind, str, str],
    chosen: Bools,
    own: Bools,
    missed: DataFrame,
    draws: Floats,
    whole: Floats,
) -> SliceRow:
    """Measure a slice; ``draws``: those of each genome, and ``whole``: the counts of all rows."""
    kind, label, _ = title
    # Without the columns of text, which take long to copy for every slice.
    rows, alone = every.loc[chosen, MEASURED], every.loc[own, MEASURED]
    virus = rows.virus.to_numpy()
    metrics = call_metrics(virus, rows.called.to_numpy(np.bool_))
    metrics |= score_metrics(virus, rows.score.to_numpy(np.float64))
    if kind == "group":  # measured against an arbitrary share of the other label
        metrics |= dict.fromkeys(("brier", "ece"))
    viruses = int(virus.sum()) + len(missed)
    metrics["recall_all"] = int((rows.called & rows.virus).sum()) / viruses if viruses else None
    metrics["correct"] = float(alone.correct.mean()) if len(alone) else None
    intervals: dict[str, Interval] = {"auroc": None, "correct": None}
    by_genome, note = alone.groupby("genome").correct, ""
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
    facts: SliceRow = dict(zip(("slice", "label", "name"), title, strict=True))
    facts |= {"genomes": len(by_genome), **metrics, "note": note, "intervals": intervals}
    return facts


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
