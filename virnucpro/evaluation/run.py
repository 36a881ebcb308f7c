"""Carry out one evaluation: find, join, measure, calibrate and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from virnucpro.classifier.files import inspect_classifier, with_changes
from virnucpro.contracts import Json
from virnucpro.errors import InputError, UsageError
from virnucpro.evaluation.measure import evaluate
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.report import as_markdown, as_terminal, as_tsv
from virnucpro.evaluation.tables import SCORE_FORMULAS, Level, find_predictions, join, read_labels
from virnucpro.formatting import counted
from virnucpro.layout import lock_file
from virnucpro.metrics.classification import (
    HIGHEST,
    LOWEST,
    RESAMPLES,
    calibration_error,
    fit_temperature,
    log_loss,
)
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.store.work import WorkIdentity, check_same, refuse_existing
from virnucpro.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA, REPORT = 1, "evaluation.json"
FILES = (REPORT, "evaluation.tsv", "evaluation.md", *PLOTS)
NEAREST = 2.0**-53  # the distance from 0 or 1 that float64 can hold: a margin of 36.7
FEWEST_FRAMES = 100  # of either label


def run_evaluation(
    source: Path,
    labels: Path,
    *,
    output_dir: Path | None,
    level: Level | None,
    threshold: float | None,
    calibrate: Path | None,
    force: bool,
    notify: Callable[[str], None],
) -> tuple[str, bytes]:
    """Evaluate, write all files, and return the text for the terminal and the new classifier.

    ``source`` is an output directory of ``predict``, or one of its tables. ``calibrate`` is the
    classifier to calibrate: without one, the new one is empty. ``notify`` is called with a sentence
    whenever something begins that takes a while.
    """
    known = read_labels(labels)
    predictions = frames = find_predictions(source, level)
    if threshold is None and predictions.level != "contig":
        threshold = 0.5  # where predict decides about a frame and about a chunk
    name = f"{predictions.layout.stem}_{predictions.level}_evaluation"
    folder = output_dir or predictions.layout.root / name
    facts: dict[str, Json] = {
        "predictions": {"file": str(predictions.path), "sha256": hashed(predictions.path).sha256},
        "labels": {"file": str(labels), "sha256": hashed(labels).sha256},
        "level": predictions.level,
        "threshold": threshold,
    }
    classifier = inspect_classifier(calibrate) if calibrate else None
    if classifier is not None:
        if predictions.level != "frame":
            frames = find_predictions(
                source if source.is_dir() else predictions.layout.root, "frame"
            )
        made_by = None  # where no record of the run says it
        with suppress(OSError, ValueError, LookupError, TypeError):
            made_by = parse_json(frames.layout.run_json.read_bytes())["models"]["classifier"][
                "sha256"
            ]
        if made_by not in (None, classifier.file.sha256):
            raise UsageError(f"{frames.path} was made by another classifier (SHA-256 {made_by})")
    with evaluation_folder(folder / REPORT, FILES, facts, _settings, notify, force=force) as disk:
        notify(f"{predictions.path} is measured with {labels}; results go to {folder}")
        rows, missed, counts = join(predictions, known)
        notify(f"measuring {counted(len(rows), 'row')}")
        rows, measured = evaluate(rows, missed, threshold)
        calibration, calibrated = None, b""
        if classifier is not None:
            of_frames, *_ = join(frames, known)
            calibration = fit_calibration(of_frames, classifier.temperature or 1.0)
            calibrated = with_changes(classifier.file.path, temperature=calibration["temperature"])
        document: dict[str, Json] = {
            "schema": SCHEMA,
            "virnucpro": __version__,
            **facts,
            "score": SCORE_FORMULAS[predictions.level],
            "counts": counts,
            **measured,
            "calibration": calibration,
            "resamples": RESAMPLES,
        }
        plots = draw_plots(rows, measured, f"{predictions.level}s of {predictions.layout.stem}")
        contents = {
            REPORT: (json.dumps(document, indent=1) + "\n").encode(),
            "evaluation.tsv": as_tsv(measured["slices"]).encode(),
            "evaluation.md": as_markdown(document, plots).encode(),
            **plots,
        }
        for file in FILES:  # a plot of an earlier evaluation may not be there now
            if file in contents:
                disk.save(folder / file, contents[file])
            else:
                disk.remove(folder / file)
    return as_terminal(document, folder), calibrated


def fit_calibration(rows: DataFrame, before: float) -> dict[str, float]:
    """Fit a temperature to frame scores that were made at the temperature ``before``.

    The same number of frames of either label is used, because a classifier is calibrated for equal
    shares. Of the larger class, frames are taken at even distances in the order of their scores.

    Returns:
        ``frames``, the number of frames of the fit, and of these frames ``temperature``, ``loss``
        (mean negative log likelihood, in nats) and ``error`` (expected calibration error), each
        of them also with ``_before``.

    Raises:
        InputError: there are too few frames of a label, none is on the wrong side, or the scores
            are close to guessing.
    """
    from scipy.special import expit, logit

    labels = (rows.label == "virus").to_numpy()
    sides = [np.sort(rows.score.to_numpy(np.float64)[labels == side]) for side in (True, False)]
    fewer = min(map(len, sides))
    if fewer < FEWEST_FRAMES:
        raise InputError(f"calibration needs {FEWEST_FRAMES} frames of either label, not {fewer}")
    scores = np.concatenate([side[np.arange(fewer) * len(side) // fewer] for side in sides])
    margins = logit(np.clip(scores, NEAREST, 1 - NEAREST)) * before
    virus = np.arange(2 * fewer) < fewer
    if ((margins > 0) == virus).all():
        raise InputError("no frame is on the wrong side: calibrate on more, or harder, data")
    after = fit_temperature(margins, virus)
    if not LOWEST * 1.01 < after < HIGHEST * 0.99:
        raise InputError("these scores are close to guessing, or the labels are wrong")
    found: dict[str, float] = {"frames": 2 * fewer}
    for name, temperature in (("_before", before), ("", after)):
        found[f"temperature{name}"] = temperature
        found[f"loss{name}"] = log_loss(virus, margins / temperature)
        found[f"error{name}"] = calibration_error(virus, expit(margins / temperature))
    return found


def _settings(document: Json) -> dict[str, Json]:
    """Return what decides the result. The same files may have moved."""
    digests = {name: document[name]["sha256"] for name in ("predictions", "labels")}
    return digests | {name: document[name] for name in ("level", "threshold")}


@contextmanager
def evaluation_folder(
    report: Path,
    files: Sequence[str],
    document: Mapping[str, Json],
    settings_of: Callable[[Json], Mapping[str, Json]],
    notify: Callable[[str], None],
    *,
    force: bool,
) -> Iterator[Disk]:
    """Lock the folder of a report, and check that an earlier one was made with the same settings.

    ``settings_of`` returns what decides the results, of the ``document`` that will be the report or
    of an earlier one. With ``force`` it does not matter.
    """
    folder = report.parent
    disk, label = Disk(), f"the evaluation in {folder.name}"
    with locked(lock_file(folder, report.name), "this evaluation"):
        disk.sweep(folder, files)
        earlier: Mapping[str, Json] | None = None
        with suppress(OSError, ValueError, LookupError, TypeError):
            earlier = dict(settings_of(parse_json(report.read_bytes())))
        if earlier is None and not force:
            refuse_existing([folder / name for name in files])
        elif earlier is not None and not force:
            wanted = WorkIdentity(label, settings_of(document))
            check_same(wanted, WorkIdentity(label, earlier), folder)
            notify(f"{label} is made again")
        yield disk
