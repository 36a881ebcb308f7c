"""Carry out one evaluation: find, join, measure, calibrate and write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.classifier.files import ClassifierInfo, inspect_classifier, with_temperature
from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.evaluation.calibration import Calibration, check_made_by, fit_calibration
from virnucpro.evaluation.labels import join, read_labels
from virnucpro.evaluation.measure import Evaluation, evaluate
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.predictions import Level, Predictions, find_predictions
from virnucpro.evaluation.report import as_json, as_markdown, as_terminal, as_tsv
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json
from virnucpro.store.lock import locked
from virnucpro.store.work import (
    ExistingWork,
    WorkIdentity,
    check_evaluation,
    check_work,
    foreign_files_refusal,
    read_identity,
    save_identity,
)

# In the order in which they are written.
FILES = (*PLOTS, "evaluation.tsv", "evaluation.md", "evaluation.json")


@dataclass(frozen=True)
class EvaluationRequest:
    """What the user asked for.

    Attributes:
        predictions: an output directory of ``predict``, or one of its tables.
        labels: the table of labels.
        output_dir: None for the default name.
        level: None for chunks, or for what the table holds.
        threshold: None for the calls of ``predict``.
        calibrate: the classifier to calibrate; None for none.
        output: the calibrated classifier.
        force: move aside what is there.
    """

    predictions: Path
    labels: Path
    output_dir: Path | None
    level: Level | None
    threshold: float | None
    calibrate: Path | None
    output: Path | None
    force: bool


def run_evaluation(request: EvaluationRequest, notify: Callable[[str], None]) -> str:
    """Evaluate, write all files, and return the text for the terminal.

    ``notify`` is called with a sentence whenever something begins that takes a while.

    Raises:
        VirNucProError: something is missing, damaged or in the way; see the modules called.
    """
    predictions, disk = find_predictions(request.predictions, request.level), Disk()
    threshold = request.threshold
    if threshold is None and predictions.kind.level != "contig":
        threshold = 0.5  # where predict decides about a frame and about a chunk
    if not request.labels.is_file():
        raise UsageError(f"--labels {request.labels} is not a file: check its path")
    name = f"{predictions.stem}_{predictions.kind.level}_evaluation"
    folder = request.output_dir or predictions.folder / name
    facts: dict[str, Json] = {
        "predictions": {"file": str(predictions.path), "sha256": sha256_of(predictions.path)},
        "labels": {"file": str(request.labels), "sha256": sha256_of(request.labels)},
        "level": predictions.kind.level,
        "threshold": threshold,
    }
    identity = WorkIdentity(f"the evaluation in {folder.name}", _settings(facts))
    _refuse_what_is_in_the_way(request, folder)
    source = _calibration_source(request, predictions, notify)
    output, begun = request.output, _begun_file(folder)
    with ExitStack() as stack:
        stack.enter_context(locked(lock_file(folder, FILES[-1]), "this evaluation"))
        disk.sweep(folder, FILES)
        disk.sweep(begun.parent, {begun.name})
        if output is not None:
            lock = lock_file(output.parent, output.name)
            stack.enter_context(locked(lock, "this classifier"))
            disk.sweep(output.parent, {output.name})
        # Looked at again, because another process may have worked until the lock was taken.
        existing = _existing_evaluation(folder)
        existing_classifier = _existing_classifier(request, folder)
        if notice := check_evaluation(identity, existing, disk, force=request.force):
            notify(notice)
        notify(f"reading {request.labels} and {predictions.path}; results go to {folder}")
        labels = read_labels(request.labels)
        sample = join(predictions, labels)
        notify(f"measuring {sample.counts.used:,} rows, with intervals over genomes")
        evaluation = evaluate(sample, threshold, graded=predictions.kind.graded)
        calibration = _earlier_calibration(folder)
        plots = draw_plots(evaluation, f"{predictions.kind.level}s of {predictions.stem}")
        place = None if output is None else str(output.absolute())
        begun_identity = replace(identity, settings={**identity.settings, "output": place})
        save_identity(begun, begun_identity, disk)
        for plot in PLOTS:  # a plot of an earlier evaluation may not be there now
            if plot in plots:
                disk.save(folder / plot, plots[plot])
            else:
                disk.remove(folder / plot)
        _write_tables(folder, evaluation, facts, calibration, list(plots), disk)
        if source is not None and output is not None:
            classifier, frames = source
            notify("fitting a temperature")
            rows = sample if frames is predictions else join(frames, labels)
            calibration = fit_calibration(rows, classifier.temperature or 1.0)
            content = with_temperature(classifier.file.path, calibration.temperature)
            label = f"the calibrated classifier {output.name}"
            check_work(WorkIdentity(label, {}), existing_classifier, disk, force=request.force)
            disk.save(output, content)
            _write_tables(folder, evaluation, facts, calibration, list(plots), disk)
        disk.remove(begun)
    return as_terminal(evaluation, calibration if output else None, str(output), folder)


def _write_tables(
    folder: Path,
    evaluation: Evaluation,
    facts: dict[str, Json],
    calibration: Calibration | None,
    plots: list[str],
    disk: Disk,
) -> None:
    """Write the tables and the report, ``evaluation.json`` last."""
    disk.save(folder / "evaluation.tsv", as_tsv(evaluation).encode())
    report = as_markdown(evaluation, facts, calibration, plots)
    disk.save(folder / "evaluation.md", report.encode())
    disk.save(folder / "evaluation.json", as_json(evaluation, facts, calibration).encode())


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
    if predictions.kind.level != "frame":
        if not request.predictions.is_dir():
            raise UsageError(
                f"--calibrate needs the scores of frames, but {request.predictions} has one row "
                f"per {predictions.kind.level}: name the output directory of predict, or its "
                f"prediction_results.txt"
            )
        frames = find_predictions(request.predictions, "frame")
    if not check_made_by(classifier, frames.run):
        notify(
            f"no STEM_run.json tells which classifier made {frames.path}, so this was not checked"
        )
    return classifier, frames


# --- what is there already -------------------------------------------------------------------


def _begun_file(folder: Path) -> Path:
    """Return the note that stands as long as the files are being written."""
    return checkpoint_folder(folder) / "evaluation.begun.json"


def _settings(document: Json) -> dict[str, Json]:
    """Return what decides the result. The same files may have moved."""
    return {
        "predictions": str(document["predictions"]["sha256"]),
        "labels": str(document["labels"]["sha256"]),
        "level": document["level"],
        "threshold": document["threshold"],
    }


def _refuse_what_is_in_the_way(request: EvaluationRequest, folder: Path) -> None:
    """Refuse, without force, the files of somebody else, before anything is written.

    Raises:
        UsageError: files would be overwritten that are not ours.
    """
    works = [_existing_evaluation(folder)]
    if request.output is not None:
        works.append(_existing_classifier(request, folder))
    for work in works:
        if not request.force and (refusal := foreign_files_refusal(work)):
            raise refusal


def _existing_evaluation(folder: Path) -> ExistingWork:
    """Return what the output directory holds of an earlier evaluation, or of something else."""
    files = [folder / name for name in FILES if (folder / name).exists()]
    existing = ExistingWork(folder, checkpoint_folder(folder) / "evaluation.previous")
    try:
        settings = _settings(parse_json((folder / "evaluation.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        if read_identity(_begun_file(folder)):  # it was interrupted while it wrote its files
            return replace(existing, own_files=files)
        return replace(existing, foreign_files=files)
    identity = WorkIdentity(f"the evaluation in {folder.name}", settings)
    return replace(existing, own_files=files, identity=identity, finished=True)


def _earlier_calibration(folder: Path) -> Calibration | None:
    """Return what an earlier, equal evaluation fitted, so that its classifier stays proved ours."""
    try:
        return Calibration(**parse_json((folder / "evaluation.json").read_bytes())["calibration"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _existing_classifier(request: EvaluationRequest, folder: Path) -> ExistingWork:
    """Return what stands in the place of the calibrated classifier.

    It is ours where an interrupted evaluation was about to write it, or where the classifier with
    the temperature that ``evaluation.json`` names has the same bytes.
    """
    output = request.output or Path()
    previous = checkpoint_folder(output.parent) / f"{output.name}.previous"
    existing = ExistingWork(output.parent, previous, option="--output")
    if request.output is None or request.calibrate is None or not output.exists():
        return existing
    begun = read_identity(_begun_file(folder))
    if begun is not None and begun.settings.get("output") == str(output.absolute()):
        return replace(existing, own_files=[output])
    earlier = _earlier_calibration(folder)
    if earlier and with_temperature(request.calibrate, earlier.temperature) == output.read_bytes():
        return replace(existing, own_files=[output], finished=True)
    return replace(existing, foreign_files=[output])
