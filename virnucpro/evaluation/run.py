"""Carry out one evaluation: find, join, measure, calibrate and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.classifier.files import ClassifierInfo, inspect_classifier, with_temperature
from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.evaluation.calibration import Calibration, check_made_by, fit_calibration
from virnucpro.evaluation.evaluation import Evaluation, evaluate
from virnucpro.evaluation.labels import read_labels
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.predictions import Level, Predictions, find_predictions
from virnucpro.evaluation.report import (
    EvaluatedFiles,
    as_json,
    as_markdown,
    as_text,
    as_tsv,
    calibration_line,
    count_lines,
)
from virnucpro.evaluation.sample import join
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json
from virnucpro.store.guard import (
    ExistingWork,
    WorkIdentity,
    admit_work,
    foreign_files_refusal,
    read_identity,
    refuse_links,
    save_identity,
)
from virnucpro.store.lock import locked

# In the order in which they are written.
FILES = (*PLOTS, "evaluation.tsv", "evaluation.md", "evaluation.json")


@dataclass(frozen=True)
class EvaluationRequest:
    """What the user asked for.

    Attributes:
        predictions: an output directory of ``predict``, or one of its tables.
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
    predictions = find_predictions(request.predictions, request.level)
    threshold = request.threshold
    if threshold is None and predictions.level != "contig":
        threshold = 0.5  # where predict decides about a frame and about a chunk
    name = f"{predictions.stem}_{predictions.level}_evaluation"
    folder = request.output_dir or predictions.folder / name
    if not request.labels.is_file():
        raise UsageError(f"--labels {request.labels} is not a file: check its path")
    files = EvaluatedFiles(
        str(predictions.table.path),
        sha256_of(predictions.table.path),
        str(request.labels),
        sha256_of(request.labels),
        predictions.level,
    )
    disk = Disk()
    identity = WorkIdentity(
        f"the evaluation in {folder.name}", _settings(files.document(threshold))
    )
    begun_file = checkpoint_folder(folder) / "evaluation.begun.json"
    existing, existing_classifier = _existing_work(request, folder, begun_file)
    refuse_links(begun_file, existing.previous)
    if request.output is not None:
        refuse_links(existing_classifier.previous)
    if not request.force:
        for work in (existing, existing_classifier):
            if refusal := foreign_files_refusal(work):
                raise refusal
    source = _calibration_source(request, predictions, notify)
    with ExitStack() as stack:
        stack.enter_context(locked(lock_file(folder, FILES[-1]), "this evaluation"))
        if request.output is not None:
            lock = lock_file(request.output.parent, request.output.name)
            stack.enter_context(locked(lock, "this classifier"))
        _sweep(request, folder, begun_file, disk)
        # Looked at again, because another process may have worked until the lock was taken.
        existing, existing_classifier = _existing_work(request, folder, begun_file)
        if notice := admit_work(identity, existing, disk, force=request.force).notice:
            notify(notice)
        notify(f"reading {request.labels} and {predictions.table.path}; results go to {folder}")
        labels = read_labels(request.labels)
        sample = join(predictions, labels)
        notify(f"measuring {sample.counts.used:,} rows, with intervals over genomes")
        evaluation = evaluate(sample, threshold, graded=predictions.graded)
        calibration, plots = (
            _earlier_calibration(folder),
            draw_plots(evaluation, f"{predictions.level}s of {predictions.stem}"),
        )
        output = None if request.output is None else str(request.output.absolute())
        begun = WorkIdentity(identity.label, {**identity.settings, "output": output})
        save_identity(begun_file, begun, disk)
        _write(folder, evaluation, files, calibration, plots, disk)
        if source is not None and request.output is not None:
            classifier, frames = source
            notify("fitting a temperature")
            rows = sample if frames is predictions else join(frames, labels)
            before = 1.0 if classifier.temperature is None else classifier.temperature
            calibration = fit_calibration(rows, before)
            content = with_temperature(classifier.path, calibration.temperature)
            label = f"the calibrated classifier {request.output.name}"
            admit_work(WorkIdentity(label, {}), existing_classifier, disk, force=request.force)
            disk.save(request.output, content)
            _write(folder, evaluation, files, calibration, plots, disk)
        disk.remove(begun_file)
    return "\n".join(
        [
            *count_lines(evaluation),
            *(f"Note: {note}" for note in evaluation.notes),
            as_text(evaluation),
            *(
                []
                if calibration is None or request.output is None
                else [calibration_line(calibration, str(request.output))]
            ),
            f"The report is {folder / 'evaluation.md'}. Tables and plots are in the same folder.",
        ]
    )


def _sweep(request: EvaluationRequest, folder: Path, begun_file: Path, disk: Disk) -> None:
    """Remove the temporary files of an evaluation that was killed."""
    disk.sweep(folder, FILES)
    disk.sweep(begun_file.parent, {begun_file.name})
    if request.output is not None:
        disk.sweep(request.output.parent, {request.output.name})


def _existing_work(
    request: EvaluationRequest, folder: Path, begun_file: Path
) -> tuple[ExistingWork, ExistingWork]:
    """Return what stands where the evaluation and the calibrated classifier are written."""
    return (
        _existing_evaluation(folder, begun_file),
        _existing_classifier(request, folder, begun_file),
    )


def _existing_evaluation(folder: Path, begun_file: Path) -> ExistingWork:
    """Return what the output directory holds of an earlier evaluation, or of something else."""
    files = [folder / name for name in FILES if (folder / name).exists()]
    existing = ExistingWork(folder, checkpoint_folder(folder) / "evaluation.previous")
    try:
        settings = _settings(parse_json((folder / "evaluation.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        if read_identity(begun_file):  # it was interrupted while it wrote its files
            return replace(existing, own_files=files)
        return replace(existing, foreign_files=files)
    identity = WorkIdentity(f"the evaluation in {folder.name}", settings)
    return replace(existing, own_files=files, identity=identity, finished=True)


def _settings(document: Json) -> dict[str, Json]:
    """Return what decides the result. The same files may have moved."""
    return {
        "predictions": str(document["predictions"]["sha256"]),
        "labels": str(document["labels"]["sha256"]),
        "level": document["level"],
        "threshold": document["threshold"],
    }


def _earlier_calibration(folder: Path) -> Calibration | None:
    """Return what an earlier, equal evaluation fitted, so that its classifier stays proved ours."""
    try:
        document = parse_json((folder / "evaluation.json").read_bytes())
        fitted = dict(document["calibration"])
        return Calibration(**{name: fitted[name] for name in Calibration.__dataclass_fields__})
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _existing_classifier(
    request: EvaluationRequest, folder: Path, begun_file: Path
) -> ExistingWork:
    """Return what stands in the place of the calibrated classifier.

    It is ours where an interrupted evaluation was about to write it, or where the classifier with
    the temperature that ``evaluation.json`` names has the same bytes.
    """
    output = request.output or Path()
    previous = checkpoint_folder(output.parent) / f"{output.name}.previous"
    existing = ExistingWork(output.parent, previous, option="--output")
    if request.output is None or request.calibrate is None or not output.exists():
        return existing
    begun = read_identity(begun_file)
    if begun is not None and begun.settings.get("output") == str(output.absolute()):
        return replace(existing, own_files=[output])
    try:
        document = parse_json((folder / "evaluation.json").read_bytes())
        temperature = float(document["calibration"]["temperature"])
        own = with_temperature(request.calibrate, temperature) == output.read_bytes()
    except (OSError, ValueError, KeyError, TypeError):
        own = False
    if own:
        return replace(existing, own_files=[output], finished=True)
    return replace(existing, foreign_files=[output])


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
    folder: Path,
    evaluation: Evaluation,
    files: EvaluatedFiles,
    calibration: Calibration | None,
    plots: Mapping[str, bytes],
    disk: Disk,
) -> None:
    """Write all files, ``evaluation.json`` last, and remove plots of an earlier evaluation."""
    for name in PLOTS:
        if name in plots:
            disk.save(folder / name, plots[name])
        else:
            disk.remove(folder / name)
    disk.save(folder / "evaluation.tsv", as_tsv(evaluation).encode())
    report = as_markdown(evaluation, files, calibration, list(plots))
    disk.save(folder / "evaluation.md", report.encode())
    disk.save(folder / "evaluation.json", as_json(evaluation, files, calibration).encode())
