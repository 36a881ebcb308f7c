"""Carry out one evaluation: find, join, measure, calibrate and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.classifier import ClassifierInfo, inspect, with_temperature
from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.evaluation.calibration import Calibration, check_made_by, fit_calibration
from virnucpro.evaluation.documents import EvaluatedFiles, as_json, as_tsv
from virnucpro.evaluation.evaluation import Evaluation, evaluate
from virnucpro.evaluation.labels import read_labels
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.predictions import Level, Predictions, find_predictions
from virnucpro.evaluation.report import as_markdown, as_text, calibration_line, count_lines
from virnucpro.evaluation.sample import join
from virnucpro.store.disk import Disk, sha256_of


@dataclass(frozen=True)
class EvaluationRequest:
    """What the user asked for.

    Attributes:
        predictions: an output directory of ``predict``, or one of its tables.
        output_dir: None for the default name.
        level: None for chunks, or for what the table holds.
        calibrate: the classifier to calibrate; None for none.
        output: the calibrated classifier.
        force: overwrite an evaluation of other files.
    """

    predictions: Path
    labels: Path
    output_dir: Path | None
    level: Level | None
    threshold: float
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
    folder = request.output_dir or Path(f"{predictions.stem}_{predictions.level}_evaluation")
    if not request.labels.is_file():
        raise UsageError(f"--labels {request.labels} is not a file: check its path")
    files = EvaluatedFiles(
        str(predictions.table.path),
        sha256_of(predictions.table.path),
        str(request.labels),
        sha256_of(request.labels),
        predictions.level,
    )
    _check_free(folder, files, request)
    source = _calibration_source(request, predictions, notify)
    notify(f"reading {request.labels} and {predictions.table.path}")
    labels = read_labels(request.labels)
    sample = join(predictions, labels)
    notify(f"measuring {sample.counts.used:,} rows, with intervals over genomes")
    evaluation = evaluate(sample, request.threshold, graded=predictions.graded)
    calibration, plots = None, draw_plots(evaluation)
    _write(folder, evaluation, files, calibration, plots)
    if source is not None and request.output is not None:
        classifier, frames = source
        notify("fitting a temperature")
        rows = sample if frames is predictions else join(frames, labels)
        before = 1.0 if classifier.temperature is None else classifier.temperature
        calibration = fit_calibration(rows, before)
        content = with_temperature(classifier.path, calibration.temperature)
        Disk().save(request.output, content)
        _write(folder, evaluation, files, calibration, plots)
    return "\n".join(
        [
            *count_lines(evaluation),
            *(f"Note: {note}" for note in evaluation.notes),
            as_text(evaluation),
            *([] if calibration is None else [calibration_line(calibration, str(request.output))]),
            f"The report is {folder / 'evaluation.md'}. Tables and plots are in the same folder.",
        ]
    )


def _check_free(folder: Path, files: EvaluatedFiles, request: EvaluationRequest) -> None:
    """Protect an evaluation of other files. The same evaluation may be written again.

    Raises:
        UsageError: the folder holds another evaluation.
    """
    path = folder / "evaluation.json"
    if request.force or not path.exists():
        return
    try:
        same = _key(json.loads(path.read_bytes())) == _key(files.document(request.threshold))
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise UsageError(
            f"{folder} holds an evaluation of something else: choose another --output-dir, or "
            f"overwrite it with --force"
        )


def _key(document: Json) -> tuple[Json, ...]:
    """Return what decides the result. The same files may have moved."""
    digests = (document[name]["sha256"] for name in ("predictions", "labels"))
    return (*digests, document["level"], document["threshold"])


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
    classifier, frames = inspect(request.calibrate), predictions
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
) -> None:
    """Write all files, ``evaluation.json`` last, and remove plots of an earlier evaluation."""
    disk = Disk()
    for name in PLOTS:
        if name in plots:
            disk.save(folder / name, plots[name])
        else:
            disk.remove(folder / name)
    disk.save(folder / "evaluation.tsv", as_tsv(evaluation).encode())
    report = as_markdown(evaluation, files, calibration, list(plots))
    disk.save(folder / "evaluation.md", report.encode())
    disk.save(folder / "evaluation.json", as_json(evaluation, files, calibration).encode())
