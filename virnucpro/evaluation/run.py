"""Carry out one evaluation: find, join, measure and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.evaluation.measure import evaluate
from virnucpro.evaluation.plots import PLOTS, draw_plots
from virnucpro.evaluation.report import as_markdown, as_terminal, as_tsv
from virnucpro.evaluation.tables import SCORE_FORMULAS, Level, find_predictions, join, read_labels
from virnucpro.formatting import counted
from virnucpro.layout import lock_file
from virnucpro.metrics.classification import RESAMPLES
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.store.work import WorkIdentity, check_same, refuse_existing
from virnucpro.version import __version__

SCHEMA, REPORT = 1, "evaluation.json"
FILES = (REPORT, "evaluation.tsv", "evaluation.md", *PLOTS)


def run_evaluation(
    source: Path,
    labels: Path,
    *,
    output_dir: Path | None,
    level: Level | None,
    threshold: float | None,
    force: bool,
    notify: Callable[[str], None],
) -> str:
    """Evaluate, write all files, and return the text for the terminal.

    ``source`` is an output directory of ``predict``, or one of its tables. ``notify`` is called
    with a sentence whenever something begins that takes a while.
    """
    known = read_labels(labels)
    predictions = find_predictions(source, level)
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
    with evaluation_folder(folder / REPORT, FILES, facts, _settings, notify, force=force) as disk:
        notify(f"{predictions.path} is measured with {labels}; results go to {folder}")
        rows, missed, counts = join(predictions, known)
        notify(f"measuring {counted(len(rows), 'row')}")
        rows, measured = evaluate(rows, missed, threshold)
        document: dict[str, Json] = {
            "schema": SCHEMA,
            "virnucpro": __version__,
            **facts,
            "score": SCORE_FORMULAS[predictions.level],
            "counts": counts,
            **measured,
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
    return as_terminal(document, folder)


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
