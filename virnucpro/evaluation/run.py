"""One evaluation from start to end: find, join, measure, calibrate, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.classifier import ClassifierInfo, inspect, with_temperature
from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.evaluation.calibration import Calibration, check_made_by, fit_calibration
from virnucpro.evaluation.documents import Inputs, as_json, as_tsv
from virnucpro.evaluation.evaluation import Evaluation, evaluate
from virnucpro.evaluation.labels import read_labels
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.predictions import Level, Predictions, find_predictions
from virnucpro.evaluation.report import as_markdown, as_text, calibration_line, count_lines
from virnucpro.evaluation.sample import join
from virnucpro.store.disk import Disk, sha256_of

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What the user asked for; ``calibrate`` is a classifier, ``output`` the one to write."""

    predictions: Path
    labels: Path
    output_dir: Path | None
    level: Level | None
    threshold: float
    calibrate: Path | None
    output: Path | None
    force: bool


def carry_out(request: Request, say: Say) -> str:
    """Evaluate, write everything, and return the text for the terminal.

    ``say`` is called with what is being done.

    Raises:
        VirNucProError: something is missing, damaged or in the way; see the modules called.
    """
    predictions = find_predictions(request.predictions, request.level)
    folder = request.output_dir or Path(f"{predictions.stem}_{predictions.level}_evaluation")
    inputs = Inputs(
        str(predictions.table.path),
        sha256_of(predictions.table.path),
        str(request.labels),
        sha256_of(_readable(request.labels)),
        predictions.level,
    )
    _check_free(folder, inputs, request)
    source = _calibration_source(request, predictions, say)
    say(f"reading {request.labels} and {predictions.table.path}")
    labels = read_labels(request.labels)
    sample = join(predictions, labels)
    say(f"measuring {sample.counts.used:,} rows, with intervals over genomes")
    found = evaluate(sample, request.threshold, graded=predictions.graded)
    calibration, plots = None, draw_plots(found)
    _write(folder, found, inputs, calibration, plots)
    if source is not None and request.output is not None:
        info, frames = source
        say("fitting a temperature")
        rows = sample if frames is predictions else join(frames, labels)
        before = 1.0 if info.temperature is None else info.temperature
        calibration = fit_calibration(rows, before)
        Disk().save(request.output, with_temperature(info.path, calibration.temperature))
        _write(folder, found, inputs, calibration, plots)
    return "\n".join(
        [
            *count_lines(found),
            *(f"Note: {note}" for note in found.notes),
            as_text(found),
            *([] if calibration is None else [calibration_line(calibration, str(request.output))]),
            f"Report in {folder / 'evaluation.md'}, figures beside it.",
        ]
    )


def _readable(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(f"--labels {path} is no file: check its path")
    return path


def _check_free(folder: Path, inputs: Inputs, request: Request) -> None:
    """Keep an evaluation of something else; the same again may be written over.

    Raises:
        UsageError: the folder holds another evaluation.
    """
    path = folder / "evaluation.json"
    if request.force or not path.exists():
        return
    try:
        same = _key(json.loads(path.read_bytes())) == _key(inputs.document(request.threshold))
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise UsageError(
            f"{folder} holds an evaluation of something else: choose another --output-dir, or "
            f"overwrite it with --force"
        )


def _key(document: Json) -> tuple[Json, ...]:
    """What decides the figures; the same files may lie elsewhere."""
    digests = (document[name]["sha256"] for name in ("predictions", "labels"))
    return (*digests, document["level"], document["threshold"])


def _calibration_source(
    request: Request, predictions: Predictions, say: Say
) -> tuple[ClassifierInfo, Predictions] | None:
    """The classifier to calibrate and its frames, where that was asked for.

    Raises:
        ModelError: the classifier cannot be read.
        UsageError: there are no frames, or another classifier made them.
    """
    if request.calibrate is None:
        return None
    info, frames = inspect(request.calibrate), predictions
    if predictions.level != "frame":
        if not request.predictions.is_dir():
            raise UsageError(
                f"--calibrate needs the scores of frames, but {request.predictions} has one row a "
                f"{predictions.level}: name the output directory of predict, or its "
                f"prediction_results.txt"
            )
        frames = find_predictions(request.predictions, "frame")
    if not check_made_by(info, frames.run):
        say(f"no STEM_run.json tells which classifier made {frames.table.path}: not checked")
    return info, frames


def _write(
    folder: Path,
    found: Evaluation,
    inputs: Inputs,
    calibration: Calibration | None,
    plots: Mapping[str, bytes],
) -> None:
    """All files, ``evaluation.json`` last; plots of an earlier evaluation go."""
    disk = Disk()
    for name in PLOTS:
        if name in plots:
            disk.save(folder / name, plots[name])
        else:
            disk.remove(folder / name)
    disk.save(folder / "evaluation.tsv", as_tsv(found).encode())
    report = as_markdown(found, inputs, calibration, list(plots))
    disk.save(folder / "evaluation.md", report.encode())
    disk.save(folder / "evaluation.json", as_json(found, inputs, calibration).encode())
