"""The report of ``rcl evaluate``: several models side by side, as tables and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.errors import InputError
from virnucpro.evaluation.plots import png_of
from virnucpro.events import Notice
from virnucpro.layout import checkpoint_folder, existing_paths, lock_file
from virnucpro.metrics.bootstrap import Interval
from virnucpro.metrics.classification import metric_text
from virnucpro.rcl.curves import COLOURS
from virnucpro.rcl.evaluation import (
    NEAR,
    RESIDUE_METRICS,
    SEQUENCE_METRICS,
    ProteinOutcome,
    RclEvaluation,
    evaluate_finder,
    missed,
)
from virnucpro.rcl.finders import RclFinder
from virnucpro.rcl.fitting import TrainingDisplay
from virnucpro.rcl.proteins import AnnotatedProtein, read_protein_table
from virnucpro.rcl.splits import split_of_table
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.lock import locked
from virnucpro.store.work import ExistingWork, WorkIdentity, check_evaluation
from virnucpro.training.data.dataset import Part
from virnucpro.version import __version__

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
TITLES = {
    "mean_iou": "mean IoU",
    "exact": f"both ends within {NEAR}",
    "f1": "F1",
    "residue_f1": "residue F1",
    "residue_mcc": "residue MCC",
    "residue_auroc": "residue AUROC",
}


@dataclass(frozen=True)
class RclEvaluationRequest:
    """What the user asked for.

    Attributes:
        serpins: table of proteins with an RCL.
        others: table of proteins without one; None for none.
        split: table of the parts; None for all proteins.
        part: the part that is measured, with ``split``.
        finders: the models.
        settings: the rule of the regions, for the report.
        folder: of the results.
        force: move aside what is there.
    """

    serpins: Path
    others: Path | None
    split: Path | None
    part: Part
    finders: Sequence[RclFinder]
    settings: dict[str, Json]
    folder: Path
    force: bool = False


def run_rcl_evaluation(
    request: RclEvaluationRequest, display: TrainingDisplay, disk: Disk | None = None
) -> list[RclEvaluation]:
    """Measure all models on the same proteins, and write the report.

    Raises:
        VirNucProError: something is missing, damaged or in the way.
    """
    disk = disk or Disk()
    proteins = _proteins(request, display)
    settings: dict[str, Json] = {
        "serpins": sha256_of(request.serpins),
        "others": sha256_of(request.others) if request.others else None,
        "split": sha256_of(request.split) if request.split else None,
        "part": request.part if request.split else None,
        "models": {finder.label: finder.sha256 for finder in request.finders},
        **request.settings,
    }
    folder = request.folder.absolute()
    label = f"the evaluation in {folder.name}"
    with ExitStack() as stack:
        stack.enter_context(locked(lock_file(folder, REPORT), "this evaluation"))
        disk.sweep(folder, EVALUATION_FILES)
        work = _existing(folder, label)
        wanted = WorkIdentity(label, settings)
        if notice := check_evaluation(wanted, work, disk, force=request.force):
            display.show(Notice("info", notice))
        evaluations = [evaluate_finder(finder, proteins, display) for finder in request.finders]
        report = {
            "producer": f"virnucpro {__version__}",
            "settings": settings,
            "proteins": len(proteins),
            "serpins": sum(protein.has_rcl for protein in proteins),
            "models": [_model_document(evaluation) for evaluation in evaluations],
        }
        contents = (
            comparison_table(evaluations).encode(),
            _proteins_table(evaluations).encode(),
            _markdown(evaluations, request).encode(),
            draw_comparison(evaluations),
            sealed(report),
        )
        for name, content in zip(EVALUATION_FILES, contents, strict=True):
            disk.save(folder / name, content)
    return evaluations


def _proteins(request: RclEvaluationRequest, display: TrainingDisplay) -> list[AnnotatedProtein]:
    """Return the proteins that are measured."""
    tables = [read_protein_table(request.serpins, with_rcl=True, max_length=LONGEST)]
    if request.others is not None:
        tables.append(read_protein_table(request.others, with_rcl=False, max_length=LONGEST))
    else:
        text = "no table of proteins without an RCL is named: precision and F1 are not defined"
        display.show(Notice("warning", text))
    for table in tables:
        if warning := table.warning():
            display.show(Notice("warning", warning))
    proteins = [protein for table in tables for protein in table.proteins]
    if request.split is None:
        return proteins
    parts = split_of_table(proteins, request.split, missing_part="train")
    chosen = [
        protein for protein, part in zip(proteins, parts, strict=True) if part == request.part
    ]
    if not chosen:
        raise InputError(f"{request.split} puts none of these proteins into part {request.part}")
    return chosen


def _existing(folder: Path, label: str) -> ExistingWork:
    """Return what stands where the report is written; a report that can be read proves all."""
    files = existing_paths(*(folder / name for name in EVALUATION_FILES))
    previous = checkpoint_folder(folder) / "rcl_evaluation.previous"
    try:
        settings = dict(unsealed((folder / REPORT).read_bytes())["settings"])
    except (OSError, ValueError, LookupError, TypeError):
        return ExistingWork(folder, previous, foreign_files=files)
    return ExistingWork(folder, previous, own_files=files, identity=WorkIdentity(label, settings))


def _model_document(evaluation: RclEvaluation) -> dict[str, Json]:
    return {
        "model": evaluation.label,
        "sha256": evaluation.sha256,
        "metrics": dict(evaluation.metrics),
        "intervals": dict(evaluation.intervals),
        "proteins_per_second": len(evaluation.outcomes) / max(evaluation.seconds, 1e-9),
    }


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
    columns = ("model", "accession", "length", "known_start", "known_end", "status", "start", "end",
               "iou")  # fmt: skip
    lines = ["\t".join(columns) + "\n"]
    for evaluation in evaluations:
        for outcome in evaluation.outcomes:
            protein, region = outcome.protein, outcome.region
            cells = (
                evaluation.label,
                protein.accession,
                len(protein.sequence),
                protein.start or "",
                protein.end or "",
                outcome.status,
                region.start if region else "",
                region.end if region else "",
                f"{outcome.iou:.4f}" if protein.has_rcl else "",
            )
            lines.append("\t".join(map(str, cells)) + "\n")
    return "".join(lines)


def text_table(evaluations: Sequence[RclEvaluation], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the rows of a table for people: a metric per row, a model per column."""
    rows = [("", *(evaluation.label for evaluation in evaluations))]
    for name in names:
        cells = [
            f"{metric_text(evaluation.metrics[name])}{_range(evaluation.intervals[name])}"
            for evaluation in evaluations
        ]
        rows.append((_title(name), *cells))
    return rows


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def _range(interval: Interval) -> str:
    return "" if interval is None else f" ({interval[0]:.4f}-{interval[1]:.4f})"


def count_rows(evaluations: Sequence[RclEvaluation]) -> list[tuple[str, ...]]:
    """Return the counts by sequence as rows for people, and the speed."""
    rows = []
    for title, has_rcl, found in (
        ("serpins found", True, True),
        ("serpins missed", True, False),
        ("others with an RCL", False, True),
        ("others without", False, False),
    ):
        counts = [f"{e.count(has_rcl=has_rcl, found=found):,}" for e in evaluations]
        rows.append((title, *counts))
    speeds = [f"{len(e.outcomes) / max(e.seconds, 1e-9):,.0f}" for e in evaluations]
    return [*rows, ("proteins per second", *speeds)]


def _markdown(evaluations: Sequence[RclEvaluation], request: RclEvaluationRequest) -> str:
    first = evaluations[0]
    serpins = sum(outcome.protein.has_rcl for outcome in first.outcomes)
    part = f", part {request.part} of {request.split.name}" if request.split else ""
    header, *rows = text_table(evaluations, (*SEQUENCE_METRICS, *RESIDUE_METRICS))
    table = [header, ("---",) * len(header), *rows, *count_rows(evaluations)]
    lines = [
        "# Evaluation of models of the RCL predictor",
        "",
        f"{serpins:,} proteins with an RCL and {len(first.outcomes) - serpins:,} without{part}. "
        f"In brackets: the middle 95 % of resampled proteins.",
        "",
        *(f"| {' | '.join(row)} |" for row in table),
        "",
    ]
    for evaluation in evaluations:
        wrong = list(missed(evaluation))
        lines += [f"## {evaluation.label}: {len(wrong):,} proteins that are not right", ""]
        lines += [f"- {_sentence(outcome)}" for outcome in wrong[:50]]
        lines += [""]
    return "\n".join(lines)


def _sentence(outcome: ProteinOutcome) -> str:
    protein, region = outcome.protein, outcome.region
    known = f"{protein.start}-{protein.end}" if protein.has_rcl else "none"
    called = f"{region.start}-{region.end}" if region else f"none ({outcome.status})"
    return f"{protein.accession}: RCL {known}, found {called}"


def draw_comparison(evaluations: Sequence[RclEvaluation]) -> bytes:
    """Return a picture of the metrics of all models with their intervals, as PNG."""
    from matplotlib.figure import Figure

    names = ("f1", "mean_iou", "exact", "residue_f1", "residue_mcc", "residue_auroc")
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(evaluations)
    for number, evaluation in enumerate(evaluations):
        for place, name in enumerate(names):
            value = evaluation.metrics[name]
            if value is None:
                continue
            low, high = evaluation.intervals[name] or (value, value)
            axes.bar(
                place + (number - (len(evaluations) - 1) / 2) * width,
                value,
                width * 0.9,
                color=COLOURS[number % len(COLOURS)],
                yerr=[[max(value - low, 0)], [max(high - value, 0)]],
                capsize=2,
                label=evaluation.label if place == 1 else None,
            )
    axes.set_xticks(range(len(names)), [_title(name) for name in names])
    axes.set_ylim(0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return png_of(figure)
