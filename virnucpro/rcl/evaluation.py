"""``rcl evaluate``: how well models find the RCL, by sequence and by residue, and the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virnucpro.contracts import Json
from virnucpro.errors import InputError
from virnucpro.events import Notice, StepProgress
from virnucpro.layout import checkpoint_folder, existing_paths, lock_file
from virnucpro.metrics.bootstrap import (
    LEVELS,
    RESAMPLES,
    Interval,
    auroc_of_counts,
    draw_genomes,
    percentile_interval,
    ratio_or_nan,
)
from virnucpro.metrics.classification import Floats, metric_text
from virnucpro.metrics.plots import BLACK, OTHERS, png_of
from virnucpro.rcl.finders import RclFinder
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins
from virnucpro.rcl.rule import RclRegion
from virnucpro.rcl.splits import split_of_table
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.lock import locked
from virnucpro.store.work import ExistingWork, WorkIdentity, check_evaluation
from virnucpro.training.data.dataset import Part
from virnucpro.version import __version__

NEAR = 2  # residues: an RCL whose ends are both that near to the annotated ones counts as exact
BLOCK = 128  # proteins that a model gets at once
SEED = 0  # of the resampling
SEQUENCE_METRICS = ("accuracy", "precision", "recall", "f1", "mean_iou", "exact")
RESIDUE_METRICS = (
    "residue_accuracy",
    "residue_precision",
    "residue_recall",
    "residue_f1",
    "residue_mcc",
    "residue_auroc",
)
REPORT = "rcl_evaluation.json"
# In the order in which they are written: the report proves the others, so it comes last.
EVALUATION_FILES = (
    "rcl_evaluation.tsv",
    "rcl_evaluation_proteins.tsv",
    "rcl_evaluation.md",
    "rcl_evaluation.png",
    REPORT,
)
LONGEST = 1 << 20  # residues of a protein; models take longer ones in windows
LISTED = 50  # proteins that are not right that the report lists per model
# The metrics of the picture, with what people call them.
TITLES = {
    "f1": "F1",
    "mean_iou": "mean IoU",
    "exact": f"both ends within {NEAR}",
    "residue_f1": "residue F1",
    "residue_mcc": "residue MCC",
    "residue_auroc": "residue AUROC",
}
PROTEIN_COLUMNS = "model accession length known_start known_end status start end iou"


@dataclass(frozen=True)
class ProteinOutcome:
    """What a model says about a protein: the status and the region of an ``RclResult``."""

    protein: AnnotatedProtein
    status: str
    region: RclRegion | None

    @property
    def iou(self) -> float:
        """Residues in both regions divided by residues in one of them; 0 without a region."""
        if self.region is None:
            return 0.0
        start, end = self.protein.start, self.protein.end
        shared = max(min(self.region.end, end) - max(self.region.start, start) + 1, 0)
        return shared / (end - start + 1 + self.region.length - shared)

    @property
    def exact(self) -> bool:
        """Whether both ends are within ``NEAR`` residues of the annotated ones."""
        if self.region is None or not self.protein.has_rcl:
            return False
        starts, ends = (self.region.start, self.protein.start), (self.region.end, self.protein.end)
        return max(abs(starts[0] - starts[1]), abs(ends[0] - ends[1])) <= NEAR

    @property
    def missed(self) -> bool:
        """Whether it is not right: not found, not exact, or found where there is none."""
        return not self.exact if self.protein.has_rcl else self.region is not None


@dataclass(frozen=True)
class RclEvaluation:
    """The metrics of a model.

    Attributes:
        label: the model.
        sha256: of its file.
        outcomes: of each protein.
        metrics: by name; a metric that these proteins do not define is None.
        intervals: the middle 95 % of the metrics of resampled proteins, by name.
        rate: proteins per second.
    """

    label: str
    sha256: str
    outcomes: Sequence[ProteinOutcome]
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval]
    rate: float

    def count(self, *, has_rcl: bool, found: bool) -> int:
        """Return how many proteins have an RCL, or not, and get one, or not."""
        return sum(
            outcome.protein.has_rcl == has_rcl and (outcome.region is not None) == found
            for outcome in self.outcomes
        )


def evaluate_finder(
    finder: RclFinder, proteins: Sequence[AnnotatedProtein], progress: StepProgress
) -> RclEvaluation:
    """Apply a model to proteins, and measure it.

    A residue is called where its probability is above the threshold; for a profile, where it lies
    in the region. Intervals come from resampled proteins, as many with an RCL, and as many
    without, as there are (a bootstrap that is stratified by class).
    """
    outcomes: list[ProteinOutcome] = []
    counts = np.zeros((len(proteins), 4))  # residues: tp, fp, tn, fn
    levels = np.zeros((2, len(proteins), LEVELS))  # others and RCL, by probability
    progress.begin(f"measuring {finder.label}", len(proteins))
    started = time.perf_counter()
    for start in range(0, len(proteins), BLOCK):
        block = proteins[start : start + BLOCK]
        results = finder.find([protein.sequence for protein in block])
        for number, (protein, result) in enumerate(zip(block, results, strict=True), start):
            outcomes.append(ProteinOutcome(protein, result.status, result.region))
            truth = protein.labels() == 1
            called = result.probabilities > finder.rule.threshold
            if finder.encoding == "hmm":
                called[:] = False
                if result.region is not None:
                    called[result.region.start - 1 : result.region.end] = True
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
    whole = _metrics(np.ones((1, len(proteins))), outcomes, counts, levels)
    has_rcl = np.array([protein.has_rcl for protein in proteins])
    random = np.random.default_rng(SEED)
    strata = [np.flatnonzero(has_rcl), np.flatnonzero(~has_rcl)]
    draws = np.stack([draw_genomes(random, strata, len(proteins)) for _ in range(RESAMPLES)])
    resampled = _metrics(draws, outcomes, counts, levels)
    metrics = {
        name: None if np.isnan(values[0]) else float(values[0]) for name, values in whole.items()
    }
    intervals = {name: percentile_interval(values) for name, values in resampled.items()}
    return RclEvaluation(finder.label, finder.sha256, outcomes, metrics, intervals, rate)


def _metrics(
    draws: Floats, outcomes: Sequence[ProteinOutcome], counts: Floats, levels: Floats
) -> dict[str, Floats]:
    """Return every metric for each row of ``draws`` ``[n, proteins]``: how often a protein counts.

    A metric that is not defined is NaN.
    """
    truth = np.array([outcome.protein.has_rcl for outcome in outcomes], np.float64)
    found = np.array([outcome.region is not None for outcome in outcomes], np.float64)
    cells = [found * truth, found * (1 - truth), (1 - found) * (1 - truth), (1 - found) * truth]
    tp, fp, tn, fn = (draws @ np.stack(cells, axis=1)).T
    iou = np.array([outcome.iou for outcome in outcomes])
    exact = np.array([float(outcome.exact) for outcome in outcomes])
    both_classes = np.where((tp + fn > 0) & (fp + tn > 0), 1.0, np.nan)
    values = _rates(tp, fp, tn, fn)
    values["precision"] = values["precision"] * both_classes
    values["f1"] = values["f1"] * both_classes
    values["mean_iou"] = ratio_or_nan(draws @ iou, tp + fn)
    values["exact"] = ratio_or_nan(draws @ exact, tp + fn)
    tp, fp, tn, fn = (draws @ counts).T
    product = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    values |= {f"residue_{name}": rate for name, rate in _rates(tp, fp, tn, fn).items()}
    values["residue_mcc"] = ratio_or_nan(tp * tn - fp * fn, product)
    values["residue_auroc"] = auroc_of_counts(draws @ levels[1], draws @ levels[0])
    return values


def _rates(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> dict[str, Floats]:
    return {
        "accuracy": ratio_or_nan(tp + tn, tp + fp + tn + fn),
        "precision": ratio_or_nan(tp, tp + fp),
        "recall": ratio_or_nan(tp, tp + fn),
        "f1": ratio_or_nan(2 * tp, 2 * tp + fp + fn),
    }


def run_rcl_evaluation(
    finders: Sequence[RclFinder],
    serpins: Path,
    others: Path | None,
    split: Path | None,
    part: Part,
    folder: Path,
    notify: Callable[[Notice], None],
    progress: StepProgress,
    *,
    rule: Mapping[str, Json],
    force: bool = False,
) -> list[RclEvaluation]:
    """Measure all models on the same proteins, and write the report to ``folder``.

    The proteins come from the tables ``serpins`` and ``others``. With a ``split``, a table of
    parts, only the proteins of ``part`` are measured. ``rule`` is what was said about the regions,
    for the report.

    Raises:
        VirNucProError: something is missing, damaged or in the way.
    """
    disk, folder = Disk(), folder.absolute()
    proteins, warnings = read_proteins(serpins, others, LONGEST)
    if others is None:
        text = "no table of proteins without an RCL is named: precision and F1 are not defined"
        warnings.append(text)
    for warning in warnings:
        notify(Notice("warning", warning))
    if split is not None:
        parts = split_of_table(proteins, split, missing_part="train")
        pairs = zip(proteins, parts, strict=True)
        proteins = [protein for protein, own in pairs if own == part]
        if not proteins:
            raise InputError(f"{split} puts none of these proteins into part {part}")
    settings: dict[str, Json] = {
        "serpins": sha256_of(serpins),
        "others": sha256_of(others) if others else None,
        "split": sha256_of(split) if split else None,
        "part": part if split else None,
        "models": {finder.label: finder.sha256 for finder in finders},
        **{name.replace("_", " "): value for name, value in rule.items()},
    }
    wanted = WorkIdentity(f"the evaluation in {folder.name}", settings)
    with locked(lock_file(folder, REPORT), "this evaluation"):
        disk.sweep(folder, EVALUATION_FILES)
        work = _existing(folder, wanted.label)
        if notice := check_evaluation(wanted, work, disk, force=force):
            notify(Notice("info", notice))
        evaluations = [evaluate_finder(finder, proteins, progress) for finder in finders]
        report = {
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
            comparison_table(evaluations).encode(),
            _proteins_table(evaluations).encode(),
            _markdown(evaluations, f", part {part} of {split.name}" if split else "").encode(),
            draw_comparison(evaluations),
            sealed(report),
        )
        for name, content in zip(EVALUATION_FILES, contents, strict=True):
            disk.save(folder / name, content)
    return evaluations


def _existing(folder: Path, label: str) -> ExistingWork:
    """Return what stands where the report is written; a report that can be read proves all."""
    files = existing_paths(*(folder / name for name in EVALUATION_FILES))
    previous = checkpoint_folder(folder) / "rcl_evaluation.previous"
    try:
        settings = dict(unsealed((folder / REPORT).read_bytes())["settings"])
    except (OSError, ValueError, LookupError, TypeError):
        return ExistingWork(folder, previous, foreign_files=files)
    return ExistingWork(folder, previous, own_files=files, identity=WorkIdentity(label, settings))


def comparison_table(evaluations: Sequence[RclEvaluation]) -> str:
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
    rows: list[tuple[object, ...]] = [tuple(PROTEIN_COLUMNS.split())]
    for evaluation in evaluations:
        for outcome in evaluation.outcomes:
            protein, region = outcome.protein, outcome.region
            known = (protein.start, protein.end) if protein.has_rcl else ("", "")
            called = (region.start, region.end) if region else ("", "")
            iou = f"{outcome.iou:.4f}" if protein.has_rcl else ""
            first = (evaluation.label, protein.accession, len(protein.sequence))
            rows.append((*first, *known, outcome.status, *called, iou))
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def text_table(evaluations: Sequence[RclEvaluation], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a table for people: a row per metric, then counts by sequence and the speed."""
    rows = [("", *(evaluation.label for evaluation in evaluations))]
    for name in names:
        cells = []
        for evaluation in evaluations:
            interval = evaluation.intervals[name]
            middle = f" ({interval[0]:.4f}-{interval[1]:.4f})" if interval else ""
            cells.append(f"{metric_text(evaluation.metrics[name])}{middle}")
        rows.append((_title(name), *cells))
    for title, has_rcl, found in (
        ("serpins found", True, True),
        ("serpins missed", True, False),
        ("others with an RCL", False, True),
        ("others without", False, False),
    ):
        counts = (evaluation.count(has_rcl=has_rcl, found=found) for evaluation in evaluations)
        rows.append((title, *(f"{count:,}" for count in counts)))
    return [*rows, ("proteins per second", *(f"{e.rate:,.0f}" for e in evaluations))]


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def _markdown(evaluations: Sequence[RclEvaluation], part: str) -> str:
    outcomes = evaluations[0].outcomes
    serpins = sum(outcome.protein.has_rcl for outcome in outcomes)
    header, *rows = text_table(evaluations, (*SEQUENCE_METRICS, *RESIDUE_METRICS))
    lines = [
        "# Evaluation of models of the RCL predictor",
        "",
        f"{serpins:,} proteins with an RCL and {len(outcomes) - serpins:,} without{part}. "
        f"In brackets: the middle 95 % of resampled proteins.",
        "",
        *(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows)),
        "",
    ]
    for evaluation in evaluations:
        wrong = [outcome for outcome in evaluation.outcomes if outcome.missed]
        lines += [f"## {evaluation.label}: {len(wrong):,} proteins that are not right", ""]
        for outcome in wrong[:LISTED]:
            protein, region = outcome.protein, outcome.region
            known = f"{protein.start}-{protein.end}" if protein.has_rcl else "none"
            called = f"{region.start}-{region.end}" if region else f"none ({outcome.status})"
            lines.append(f"- {protein.accession}: RCL {known}, found {called}")
        lines.append("")
    return "\n".join(lines)


def draw_comparison(evaluations: Sequence[RclEvaluation]) -> bytes:
    """Return a picture of the metrics of all models with their intervals, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    width, colours = 0.8 / len(evaluations), (*OTHERS, BLACK)
    for number, evaluation in enumerate(evaluations):
        colour, label = colours[number % len(colours)], evaluation.label
        shift = (number - (len(evaluations) - 1) / 2) * width
        for place, name in enumerate(TITLES):
            value = evaluation.metrics[name]
            if value is not None:
                low, high = evaluation.intervals[name] or (value, value)
                ends = [[max(value - low, 0)], [max(high - value, 0)]]
                axes.bar(place + shift, value, width * 0.9, color=colour, yerr=ends, label=label)
                label = ""
    axes.set_xticks(range(len(TITLES)), list(TITLES.values()))
    axes.set_ylim(0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return png_of(figure)
