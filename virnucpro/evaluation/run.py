"""Carry out one evaluation: find, join, measure, calibrate and write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from virnucpro.classifier.files import ClassifierInfo, inspect_classifier, with_temperature
from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.evaluation.calibration import check_made_by, fit_calibration
from virnucpro.evaluation.folder import evaluation_folder
from virnucpro.evaluation.labels import join, read_labels
from virnucpro.evaluation.measure import evaluate
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.predictions import Level, Predictions, find_predictions
from virnucpro.evaluation.report import as_json, as_markdown, as_terminal, as_tsv
from virnucpro.layout import checkpoint_folder, existing_paths, lock_file
from virnucpro.store.disk import sha256_of
from virnucpro.store.lock import locked
from virnucpro.store.work import ExistingWork, WorkIdentity, check_work

REPORT = "evaluation.json"
# In the order in which they are written: the first one proves that the others are ours.
FILES = (REPORT, "evaluation.tsv", "evaluation.md", *PLOTS)


def run_evaluation(
    source: Path,
    labels: Path,
    *,
    output_dir: Path | None,
    level: Level | None,
    threshold: float | None,
    calibrate: Path | None,
    output: Path | None,
    force: bool,
    notify: Callable[[str], None],
) -> str:
    """Evaluate, write all files, and return the text for the terminal.

    ``source`` is an output directory of ``predict``, or one of its tables. ``calibrate`` is the
    classifier to calibrate, and ``output`` the calibrated one. ``notify`` is called with a sentence
    whenever something begins that takes a while.
    """
    if not labels.is_file():
        raise UsageError(f"--labels {labels} is not a file: check its path")
    predictions = find_predictions(source, level)
    if threshold is None and predictions.level != "contig":
        threshold = 0.5  # where predict decides about a frame and about a chunk
    name = f"{predictions.stem}_{predictions.level}_evaluation"
    folder = output_dir or predictions.folder / name
    facts: dict[str, Json] = {
        "predictions": {"file": str(predictions.path), "sha256": sha256_of(predictions.path)},
        "labels": {"file": str(labels), "sha256": sha256_of(labels)},
        "level": predictions.level,
        "threshold": threshold,
    }
    classifier = None
    if calibrate is not None:
        classifier, frames = _calibration_source(calibrate, source, predictions, notify)
    with ExitStack() as stack:
        own = (folder / REPORT, FILES, _settings(facts), _settings)
        disk = stack.enter_context(evaluation_folder(*own, notify, force=force))
        if output is not None:
            lock = lock_file(output.parent, output.name)
            stack.enter_context(locked(lock, "this classifier"))
            disk.sweep(output.parent, {output.name})
        notify(f"reading {labels} and {predictions.path}; results go to {folder}")
        known = read_labels(labels)
        sample = join(predictions, known)
        notify(f"measuring {len(sample.rows):,} rows, with intervals over genomes")
        evaluation = evaluate(sample, threshold, graded=predictions.graded)
        calibration = None
        if classifier is not None and output is not None:
            notify("fitting a temperature")
            rows = sample if frames is predictions else join(frames, known)
            calibration = fit_calibration(rows.rows, classifier.temperature or 1.0)
            content = with_temperature(classifier.file.path, calibration["temperature"])
            if not (output.exists() and output.read_bytes() == content):
                previous = checkpoint_folder(output.parent) / f"{output.name}.previous"
                files = existing_paths(output)
                there = ExistingWork(output.parent, previous, (), files, option="--output")
                check_work(WorkIdentity(output.name, {}), there, disk, force=force)
                disk.save(output, content)
        plots = draw_plots(evaluation, f"{predictions.level}s of {predictions.stem}")
        contents = {
            REPORT: as_json(evaluation, facts, calibration).encode(),
            "evaluation.tsv": as_tsv(evaluation).encode(),
            "evaluation.md": as_markdown(evaluation, facts, calibration, plots).encode(),
            **plots,
        }
        for file in FILES:  # a plot of an earlier evaluation may not be there now
            if file in contents:
                disk.save(folder / file, contents[file])
            else:
                disk.remove(folder / file)
    return as_terminal(evaluation, calibration, folder)


def _calibration_source(
    calibrate: Path, source: Path, predictions: Predictions, notify: Callable[[str], None]
) -> tuple[ClassifierInfo, Predictions]:
    """Return the classifier to calibrate and its frames; UsageError where there are none."""
    classifier, frames = inspect_classifier(calibrate), predictions
    if predictions.level != "frame":
        if not source.is_dir():
            raise UsageError(
                f"--calibrate needs the scores of frames, but {source} has one row per "
                f"{predictions.level}: name the output directory of predict, or its "
                f"prediction_results.txt"
            )
        frames = find_predictions(source, "frame")
    if not check_made_by(classifier, frames.run):
        notify(
            f"no STEM_run.json tells which classifier made {frames.path}, so this was not checked"
        )
    return classifier, frames


def _settings(document: Json) -> dict[str, Json]:
    """Return what decides the result. The same files may have moved."""
    digests = {name: document[name]["sha256"] for name in ("predictions", "labels")}
    return digests | {name: document[name] for name in ("level", "threshold")}
