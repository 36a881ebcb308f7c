"""``rcl evaluate``: how well models find the RCL, by sequence and by residue, and the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from virnucpro.contracts import Json
from virnucpro.errors import InputError
from virnucpro.evaluation.folder import evaluation_folder
from virnucpro.events import Notice, StepProgress
from virnucpro.metrics.bootstrap import (
    LEVELS,
    RESAMPLES,
    Interval,
    auroc_of_counts,
    draw_genomes,
    percentile_interval,
)
from virnucpro.metrics.classification import (
    Floats,
    metric_text,
    rates_of_counts,
    ratio_or_nan,
)
from virnucpro.metrics.plots import BLACK, OTHERS, png_of
from virnucpro.rcl.finders import RclFinder
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins
from virnucpro.rcl.splits import split_of_table
from virnucpro.store.disk import sha256_of
from virnucpro.store.documents import sealed
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
EVALUATION_FILES = (
    REPORT,
    "rcl_evaluation.tsv",
    "rcl_evaluation_proteins.tsv",
    "rcl_evaluation.md",
    "rcl_evaluation.png",
)
LONGEST = 1 << 20  # residues of a protein; models take longer ones in windows
# The metrics of the picture, with what people call them.
TITLES = {
    "f1": "F1",
    "mean_iou": "mean IoU",
    "exact": f"both ends within {NEAR}",
    "residue_f1": "residue F1",
    "residue_mcc": "residue MCC",
    "residue_auroc": "residue AUROC",
}
CELLS = {
    "serpins found": (True, True),
    "serpins missed": (True, False),
    "others with an RCL": (False, True),
    "others without": (False, False),
}


@dataclass(frozen=True)
class RclEvaluation:
    """The metrics of a model.

    Attributes:
        label: the model.
        sha256: of its file.
        proteins: of each protein its annotated and found region (NaN for none), the status,
            ``iou`` of serpins (residues in both regions divided by residues in one of them), and
            whether it is ``right``: both ends are within ``NEAR`` residues, or none was found
            where there is none.
        metrics: by name; a metric that these proteins do not define is None.
        intervals: the middle 95 % of the metrics of resampled proteins, by name.
        rate: proteins per second.
    """

    label: str
    sha256: str
    proteins: DataFrame
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval]
    rate: float


def evaluate_finder(
    finder: RclFinder, proteins: Sequence[AnnotatedProtein], progress: StepProgress
) -> RclEvaluation:
    """Apply a model to proteins, and measure it.

    A residue is called where its probability is above the threshold; for a profile, where it lies
    in the region. Intervals come from resampled proteins, as many with an RCL, and as many
    without, as there are (a bootstrap that is stratified by class).
    """
    import pandas

    rows: list[tuple[object, ...]] = []
    counts = np.zeros((len(proteins), 4))  # residues: tp, fp, tn, fn
    levels = np.zeros((2, len(proteins), LEVELS))  # others and RCL, by probability
    progress.begin(f"measuring {finder.label}", len(proteins))
    started = time.perf_counter()
    for start in range(0, len(proteins), BLOCK):
        block = proteins[start : start + BLOCK]
        results = finder.find([protein.sequence for protein in block])
        for number, (protein, result) in enumerate(zip(block, results, strict=True), start):
            known = (protein.start, protein.end) if protein.has_rcl else (np.nan, np.nan)
            region, truth = result.region, protein.labels() == 1
            ends = (region.start, region.end) if region else (np.nan, np.nan)
            rows.append((protein.accession, len(truth), *known, result.status, *ends))
            called = result.probabilities > finder.rule.threshold
            if finder.encoding == "hmm":
                called[:] = False
                if region is not None:
                    called[region.start - 1 : region.end] = True
            both = (called & truth, called & ~truth, ~called & ~truth, ~called & truth)
            counts[number] = [cells.sum() for cells in both]
            # Levels are finer near 0 and 1, where the probabilities of most residues lie.
            margin = np.clip(result.probabilities.astype(np.float64), 1e-7, 1 - 1e-7)
            place = (np.log(margin / (1 - margin)) / 33 + 0.5) * LEVELS
            level = np.clip(place.astype(np.int64), 0, LEVELS - 1)
            for kind in (0, 1):
                levels[kind, number] = np.bincount(level[truth == kind], minlength=LEVELS)
        progress.advance(len(block))
    rate = len(proteins) / max(time.perf_counter() - started, 1e-9)
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
    whole = _metrics(np.ones((1, len(proteins))), table, counts, levels)
    random = np.random.default_rng(SEED)
    strata = [np.flatnonzero(has_rcl), np.flatnonzero(~has_rcl)]
    draws = np.stack([draw_genomes(random, strata, len(proteins)) for _ in range(RESAMPLES)])
    metrics = {
        name: None if np.isnan(values[0]) else float(values[0]) for name, values in whole.items()
    }
    resampled = _metrics(draws, table, counts, levels)
    intervals = {name: percentile_interval(values) for name, values in resampled.items()}
    return RclEvaluation(finder.label, finder.sha256, table, metrics, intervals, rate)


def _metrics(draws: Floats, table: DataFrame, counts: Floats, levels: Floats) -> dict[str, Floats]:
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
    values["residue_auroc"] = auroc_of_counts(draws @ levels[1], draws @ levels[0])
    return values


def proteins_to_measure(
    serpins: Path, others: Path | None, split: Path | None, part: Part
) -> tuple[list[AnnotatedProtein], dict[str, Json], list[str]]:
    """Return the proteins of two tables, what decides them, and warnings.

    With a ``split``, a table of parts, they are only those of ``part``.
    """
    proteins, warnings = read_proteins(serpins, others, LONGEST)
    if others is None:
        warnings.append("there is no table of --others: precision and F1 are not defined")
    settings: dict[str, Json] = {
        "serpins": sha256_of(serpins),
        "others": sha256_of(others) if others else None,
        "split": sha256_of(split) if split else None,
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
    notify: Callable[[Notice], None],
    progress: StepProgress,
    *,
    force: bool = False,
) -> list[RclEvaluation]:
    """Measure all models on the same proteins, and write the report to ``folder``.

    ``settings`` are what decides the proteins, and the rule of the regions.
    """
    report, models = folder.absolute() / REPORT, {finder.label: finder.sha256 for finder in finders}
    settings = {**settings, "models": models}

    def info(text: str) -> None:
        notify(Notice("info", text))

    def settings_of(document: Json) -> Mapping[str, Json]:
        return dict(document["settings"])

    writing = (report, EVALUATION_FILES, settings, settings_of, info)
    with evaluation_folder(*writing, force=force) as disk:
        evaluations = [evaluate_finder(finder, proteins, progress) for finder in finders]
        document = {
            "producer": f"virnucpro {__version__}",
            "settings": settings,
            "proteins": len(proteins),
            "serpins": sum(protein.has_rcl for protein in proteins),
            "models": [
                {
                    "model": evaluation.label,
                    "sha256": evaluation.sha256,
                    "metrics": dict(evaluation.metrics),
                    "intervals": dict(evaluation.intervals),
                    "proteins_per_second": evaluation.rate,
                }
                for evaluation in evaluations
            ],
        }
        contents = (
            sealed(document),
            _comparison_table(evaluations).encode(),
            _proteins_table(evaluations).encode(),
            _markdown(evaluations).encode(),
            _draw_comparison(evaluations),
        )
        for name, content in zip(EVALUATION_FILES, contents, strict=True):
            disk.save(report.with_name(name), content)
    return evaluations


def _comparison_table(evaluations: Sequence[RclEvaluation]) -> str:
    """Return a tab-separated table: one row per model and metric."""
    lines = ["model\tmetric\tvalue\tlow\thigh\n"]
    for evaluation in evaluations:
        for name, value in evaluation.metrics.items():
            low, high = evaluation.intervals[name] or (None, None)
            values = "\t".join(metric_text(number) for number in (value, low, high))
            lines.append(f"{evaluation.label}\t{name}\t{values}\n")
    return "".join(lines)


def _proteins_table(evaluations: Sequence[RclEvaluation]) -> str:
    """Return a tab-separated table: one row per model and protein."""
    import pandas

    tables = {evaluation.label: evaluation.proteins for evaluation in evaluations}
    whole = pandas.concat(tables, names=["model"]).reset_index(level="model").drop(columns="right")
    whole["iou"] = whole.iou.map("{:.4f}".format, na_action="ignore")
    text: str = whole.convert_dtypes().to_csv(sep="\t", index=False, lineterminator="\n")
    return text


def text_table(evaluations: Sequence[RclEvaluation], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a table for people: a row per metric, then counts by sequence and the speed."""
    rows = [("", *(evaluation.label for evaluation in evaluations))]
    for name in names:
        cells = []
        for evaluation in evaluations:
            interval = evaluation.intervals[name]
            middle = f" ({interval[0]:.4f}-{interval[1]:.4f})" if interval else ""
            cells.append(f"{metric_text(evaluation.metrics[name])}{middle}")
        rows.append((TITLES.get(name, name.replace("_", " ")), *cells))
    for title, (has_rcl, found) in CELLS.items():
        places = [(e.proteins.known_start.notna(), e.proteins.start.notna()) for e in evaluations]
        counts = (((known == has_rcl) & (called == found)).sum() for known, called in places)
        rows.append((title, *(f"{count:,}" for count in counts)))
    return [*rows, ("proteins per second", *(f"{e.rate:,.0f}" for e in evaluations))]


def _markdown(evaluations: Sequence[RclEvaluation]) -> str:
    proteins = evaluations[0].proteins
    serpins = int(proteins.known_start.notna().sum())
    header, *rows = text_table(evaluations, (*SEQUENCE_METRICS, *RESIDUE_METRICS))
    lines = [
        "# Evaluation of models of the RCL predictor",
        "",
        f"{serpins:,} proteins with an RCL and {len(proteins) - serpins:,} without. "
        f"In brackets: the middle 95 % of resampled proteins.",
        "",
        *(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows)),
        "",
        "What each model says of each protein is in `rcl_evaluation_proteins.tsv`.",
        "",
    ]
    return "\n".join(lines)


def _draw_comparison(evaluations: Sequence[RclEvaluation]) -> bytes:
    """Return a picture of the metrics of all models with their intervals, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    width, colours, places = 0.8 / len(evaluations), (*OTHERS, BLACK), np.arange(len(TITLES))
    for number, evaluation in enumerate(evaluations):
        shift = (number - (len(evaluations) - 1) / 2) * width
        values = np.array([evaluation.metrics[name] for name in TITLES], float)
        ends = np.array([evaluation.intervals[name] or (np.nan, np.nan) for name in TITLES])
        colour = colours[number % len(colours)]
        errors = np.maximum([values - ends[:, 0], ends[:, 1] - values], 0)
        axes.bar(
            places + shift, values, width * 0.9, yerr=errors, color=colour, label=evaluation.label
        )
    axes.set_xticks(range(len(TITLES)), list(TITLES.values()))
    axes.set_ylim(0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return png_of(figure)
