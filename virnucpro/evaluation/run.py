"""Carry out one evaluation: find, join, measure, calibrate and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from virnucpro.classifier.files import ClassifierInfo, inspect_classifier, with_temperature
from virnucpro.errors import UsageError
from virnucpro.evaluation.calibration import Calibration, check_made_by, fit_calibration
from virnucpro.evaluation.evaluation import Evaluation, evaluate
from virnucpro.evaluation.labels import read_labels
from virnucpro.evaluation.plan import (
    FILES,
    EvaluationRequest,
    PlannedEvaluation,
    locked_evaluation,
    plan_evaluation,
    refuse_what_is_in_the_way,
)
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.predictions import Predictions, find_predictions
from virnucpro.evaluation.report import (
    as_json,
    as_markdown,
    as_text,
    as_tsv,
    calibration_line,
    count_lines,
)
from virnucpro.evaluation.sample import Sample, join
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.work import (
    ExistingWork,
    WorkIdentity,
    check_evaluation,
    check_work,
    save_identity,
)


def run_evaluation(request: EvaluationRequest, notify: Callable[[str], None]) -> str:
    """Evaluate, write all files, and return the text for the terminal.

    ``notify`` is called with a sentence whenever something begins that takes a while.

    Raises:
        VirNucProError: something is missing, damaged or in the way; see the modules called.
    """
    plan = plan_evaluation(request)
    refuse_what_is_in_the_way(plan)
    source = _calibration_source(request, plan.predictions, notify)
    disk = Disk()
    with locked_evaluation(plan):
        _sweep(plan, disk)
        # Looked at again, because another process may have worked until the lock was taken.
        existing, existing_classifier = plan.existing()
        if notice := check_evaluation(plan.identity, existing, disk, force=request.force):
            notify(notice)
        table = plan.predictions.table.path
        notify(f"reading {request.labels} and {table}; results go to {plan.folder}")
        labels = read_labels(request.labels)
        sample = join(plan.predictions, labels)
        notify(f"measuring {sample.counts.used:,} rows, with intervals over genomes")
        evaluation = evaluate(sample, plan.threshold, graded=plan.predictions.graded)
        calibration = _earlier_calibration(plan.folder)
        plots = draw_plots(evaluation, f"{plan.predictions.level}s of {plan.predictions.stem}")
        _save_begun(plan, disk)
        _write(plan, evaluation, calibration, plots, disk)
        if source is not None and request.output is not None:
            classifier, frames = source
            notify("fitting a temperature")
            rows = sample if frames is plan.predictions else join(frames, labels)
            calibration = _calibrated(classifier, rows, request, existing_classifier, disk)
            _write(plan, evaluation, calibration, plots, disk)
        disk.remove(plan.begun_file)
    return _text(plan, evaluation, calibration)


def _sweep(plan: PlannedEvaluation, disk: Disk) -> None:
    """Remove the temporary files of an evaluation that was killed."""
    disk.sweep(plan.folder, FILES)
    disk.sweep(plan.begun_file.parent, {plan.begun_file.name})
    if plan.request.output is not None:
        disk.sweep(plan.request.output.parent, {plan.request.output.name})


def _save_begun(plan: PlannedEvaluation, disk: Disk) -> None:
    """Note that the files are about to be written, and where the classifier goes."""
    output = None if plan.request.output is None else str(plan.request.output.absolute())
    settings = {**plan.identity.settings, "output": output}
    save_identity(plan.begun_file, WorkIdentity(plan.identity.label, settings), disk)


def _calibrated(
    classifier: ClassifierInfo,
    rows: Sample,
    request: EvaluationRequest,
    existing: ExistingWork,
    disk: Disk,
) -> Calibration:
    """Fit a temperature, write the classifier with it, and return what was fitted."""
    assert request.output is not None
    before = 1.0 if classifier.temperature is None else classifier.temperature
    calibration = fit_calibration(rows, before)
    content = with_temperature(classifier.file.path, calibration.temperature)
    label = f"the calibrated classifier {request.output.name}"
    check_work(WorkIdentity(label, {}), existing, disk, force=request.force)
    disk.save(request.output, content)
    return calibration


def _text(plan: PlannedEvaluation, evaluation: Evaluation, calibration: Calibration | None) -> str:
    """Return what the terminal shows."""
    lines = [
        *count_lines(evaluation),
        *(f"Note: {note}" for note in evaluation.notes),
        as_text(evaluation),
    ]
    if calibration is not None and plan.request.output is not None:
        lines.append(calibration_line(calibration, str(plan.request.output)))
    report = plan.folder / "evaluation.md"
    return "\n".join([*lines, f"The report is {report}. Tables and plots are in the same folder."])


def _earlier_calibration(folder: Path) -> Calibration | None:
    """Return what an earlier, equal evaluation fitted, so that its classifier stays proved ours."""
    try:
        document = parse_json((folder / "evaluation.json").read_bytes())
        fitted = dict(document["calibration"])
        return Calibration(**{name: fitted[name] for name in Calibration.__dataclass_fields__})
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _calibration_source(
    request: EvaluationRequest, predictions: Predictions, notify: Callable[[str], None]
) -> tuple[ClassifierInfo, Predictions] | None:
    """Return the classifier to calibrate and its frames, where that was asked for.

    Raises:
        ModelError: the classifier cannot be read.
        UsageError: there are no frames, or another classifier made them.
    """
    if request.calibrate is None:
        return None
    classifier, frames = inspect_classifier(request.calibrate), predictions
    if predictions.level != "frame":
        if not request.predictions.is_dir():
            raise UsageError(
                f"--calibrate needs the scores of frames, but {request.predictions} has one row "
                f"per {predictions.level}: name the output directory of predict, or its "
                f"prediction_results.txt"
            )
        frames = find_predictions(request.predictions, "frame")
    if not check_made_by(classifier, frames.run):
        notify(
            f"no STEM_run.json tells which classifier made {frames.table.path}, so this was not "
            f"checked"
        )
    return classifier, frames


def _write(
    plan: PlannedEvaluation,
    evaluation: Evaluation,
    calibration: Calibration | None,
    plots: Mapping[str, bytes],
    disk: Disk,
) -> None:
    """Write all files, ``evaluation.json`` last, and remove plots of an earlier evaluation."""
    folder, files = plan.folder, plan.files
    for name in PLOTS:
        if name in plots:
            disk.save(folder / name, plots[name])
        else:
            disk.remove(folder / name)
    disk.save(folder / "evaluation.tsv", as_tsv(evaluation).encode())
    report = as_markdown(evaluation, files, calibration, list(plots))
    disk.save(folder / "evaluation.md", report.encode())
    disk.save(folder / "evaluation.json", as_json(evaluation, files, calibration).encode())
