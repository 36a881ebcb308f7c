"""``rcl evaluate``: how well models find the RCL, by sequence and by residue, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from virnucpro.contracts import Json
from virnucpro.errors import InputError
from virnucpro.evaluation.run import evaluation_folder
from virnucpro.events import Show, StepAdvanced, StepStarted
from virnucpro.metrics import (
    LEVELS,
    RESAMPLES,
    Floats,
    auroc,
    auroc_of_counts,
    draw_genomes,
    percentile_interval,
    rates_of_counts,
    ratio_or_nan,
    score_levels,
)
from virnucpro.rcl.finders import RclFinder
from virnucpro.rcl.proteins import AnnotatedProtein, RclResult, read_proteins
from virnucpro.rcl.splits import split_of_table
from virnucpro.store.documents import sealed
from virnucpro.store.hashed import hashed
from virnucpro.training.data.dataset import Part
from virnucpro.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame

NEAR = 2  # residues: an RCL whose ends are both that near to the annotated ones counts as exact
BLOCK = 128  # proteins that a model gets at once
SEED = 0  # of the resampling
RATES = ("accuracy", "precision", "recall", "f1")
SEQUENCE_METRICS = (*RATES, "mean_iou", "exact")
RESIDUE_METRICS = tuple(f"residue_{name}" for name in (*RATES, "mcc", "auroc"))
REPORT = "rcl_evaluation.json"
# In the order in which they are written: the report proves that the others are ours.
EVALUATION_FILES = (REPORT, "rcl_evaluation.tsv", "rcl_evaluation_proteins.tsv")


def evaluate_finder(
    finder: RclFinder, proteins: Sequence[AnnotatedProtein], show: Show
) -> tuple[DataFrame, DataFrame]:
    """Apply a model to proteins, and return tables of the proteins and of its metrics.

    Of each protein there are the annotated and the found region (NaN for none), the status, ``iou``
    of serpins (residues in both regions divided by residues in one of them), and whether it is
    ``right``: both ends are within ``NEAR`` residues, or none was found where there is none. Of
    each metric there is the ``value``, with ``low`` and ``high``, between which the middle 95 % of
    resampled proteins lie; NaN where these proteins do not define it.

    A residue is called where its probability is above the threshold; for a profile, where it lies
    in the region. Intervals come from resampled proteins, as many with an RCL, and as many
    without, as there are (a bootstrap that is stratified by class).
    """
    import pandas

    results: list[RclResult] = []
    show(StepStarted(f"measuring {finder.label}", len(proteins)))
    for start in range(0, len(proteins), BLOCK):
        block = proteins[start : start + BLOCK]
        results += finder.find([protein.sequence for protein in block])
        show(StepAdvanced(len(block)))
    rows = [
        (
            protein.accession,
            len(protein.sequence),
            *((protein.start, protein.end) if protein.has_rcl else (np.nan, np.nan)),
            result.status,
            *(result.region or (np.nan, np.nan))[:2],
        )
        for protein, result in zip(proteins, results, strict=True)
    ]
    names = ["accession", "length", "known_start", "known_end", "status", "start", "end"]
    table = pandas.DataFrame(rows, columns=names)
    last, first = np.fmin(table.end, table.known_end), np.fmax(table.start, table.known_start)
    shared = (last - first + 1).clip(lower=0)
    lengths = (table.end - table.start + 1) + (table.known_end - table.known_start + 1)
    has_rcl = table.known_start.notna()
    table["iou"] = (shared / (lengths - shared)).fillna(0).where(has_rcl)
    distances = table[["start", "end"]].values - table[["known_start", "known_end"]].values
    exact = (np.abs(distances) <= NEAR).all(axis=1)  # NaN is not near
    table["right"] = np.where(has_rcl, exact, table.start.isna())
    # The residues of all proteins: tp, fp, tn, fn of each protein, and both classes by score.
    count, owner = len(proteins), np.repeat(np.arange(len(proteins)), table.length)
    truth = np.concatenate([protein.labels() for protein in proteins]) == 1
    scores = np.concatenate([result.probabilities for result in results]).astype(np.float64)
    called = scores > (0 if finder.model.encoding == "hmm" else finder.threshold)
    cells = (called & truth, called & ~truth, ~called & ~truth, ~called & truth)
    counts = np.stack([np.bincount(owner, cell, count) for cell in cells], axis=1).astype(float)
    place, size = owner * LEVELS + score_levels(scores), count * LEVELS
    both = (np.bincount(place[kind], minlength=size) for kind in (truth, ~truth))
    levels = [numbers.reshape(count, LEVELS).astype(np.float64) for numbers in both]
    whole = _metrics(np.ones((1, count)), table, counts, levels)
    random = np.random.default_rng(SEED)
    strata = [np.flatnonzero(has_rcl), np.flatnonzero(~has_rcl)]
    draws = np.stack([draw_genomes(random, strata, count) for _ in range(RESAMPLES)])
    resampled = _metrics(draws, table, counts, levels)
    metrics = pandas.DataFrame(
        {
            name: (whole[name][0], *(percentile_interval(values) or (np.nan, np.nan)))
            for name, values in resampled.items()
        },
        index=["value", "low", "high"],
    ).T
    metrics.loc["residue_auroc", "value"] = auroc(truth, scores)
    return table, metrics


def _metrics(
    draws: Floats, table: DataFrame, counts: Floats, levels: Sequence[Floats]
) -> dict[str, Floats]:
    """Return metrics, NaN where not defined, for each row of ``draws`` ``[n, proteins]``."""
    truth, found = (table[name].notna().to_numpy(float) for name in ("known_start", "start"))
    cells = [found * truth, found * (1 - truth), (1 - found) * (1 - truth), (1 - found) * truth]
    tp, fp, tn, fn = (draws @ np.stack(cells, axis=1)).T
    rates = rates_of_counts(tp, fp, tn, fn)
    values = {name: rates[name] for name in RATES}
    values["mean_iou"] = ratio_or_nan(draws @ table.iou.fillna(0).to_numpy(), tp + fn)
    values["exact"] = ratio_or_nan(draws @ (table.right.to_numpy() * truth), tp + fn)
    rates = rates_of_counts(*(draws @ counts).T)
    values |= {f"residue_{name}": rate for name, rate in rates.items()}
    values["residue_auroc"] = auroc_of_counts(*(draws @ numbers for numbers in levels))
    return values


def proteins_to_measure(
    serpins: Path, others: Path | None, split: Path | None, part: Part
) -> tuple[list[AnnotatedProtein], dict[str, Json], list[str]]:
    """Return the proteins of two tables, what decides them, and warnings.

    With a ``split``, a table of parts, they are only those of ``part``.
    """
    proteins, warnings = read_proteins(serpins, others)
    if others is None:
        warnings.append("there is no table of --others: precision and F1 are not defined")
    settings: dict[str, Json] = {
        "serpins": hashed(serpins).sha256,
        "others": hashed(others).sha256 if others else None,
        "split": hashed(split).sha256 if split else None,
        "part": part if split else None,
    }
    if split is not None:
        parts = split_of_table(proteins, split, missing_part="train")
        proteins = [p for p, own in zip(proteins, parts, strict=True) if own == part]
        if not proteins:
            raise InputError(f"{split} puts none of these proteins into part {part}")
    return proteins, settings, warnings


def run_rcl_evaluation(
    finders: Sequence[RclFinder],
    proteins: Sequence[AnnotatedProtein],
    settings: Mapping[str, Json],
    folder: Path,
    show: Show,
    *,
    force: bool = False,
) -> DataFrame:
    """Measure all models on the same proteins, write the tables to ``folder``; return the metrics.

    ``settings`` are what decides the proteins, and the rule of the regions.
    """
    import pandas

    report, models = folder.absolute() / REPORT, {finder.label: finder.sha256 for finder in finders}
    document = {
        "producer": f"virnucpro {__version__}",
        "settings": {**settings, "models": models},
    }
    with evaluation_folder(
        report, EVALUATION_FILES, document, itemgetter("settings"), show, force=force
    ) as disk:
        measured = {finder.label: evaluate_finder(finder, proteins, show) for finder in finders}
        tables = {label: table.drop(columns="right") for label, (table, _) in measured.items()}
        places = dict.fromkeys(("known_start", "known_end", "start", "end"), "Int64")
        found = pandas.concat(tables, names=["model"]).reset_index(level="model").astype(places)
        values = {label: metrics for label, (_, metrics) in measured.items()}
        metrics = pandas.concat(values, names=["model", "metric"])
        form: dict[str, Any] = {"sep": "\t", "index": False, "float_format": "%.4f"}
        contents = (
            sealed(document),
            metrics.reset_index().to_csv(na_rep="NA", **form).encode(),
            found.to_csv(**form).encode(),
        )
        for name, content in zip(EVALUATION_FILES, contents, strict=True):
            disk.save(report.with_name(name), content)
    return metrics
