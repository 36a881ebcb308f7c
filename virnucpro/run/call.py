"""The last stage of finished runs carried out again, with other thresholds.

Neither the models of the run nor its classifier have to be there. torch is only imported where a
record is classified as viral, for its kind.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from virnucpro.classifier.calibration import FoundCalibration, find_calibrations
from virnucpro.contracts import Json
from virnucpro.errors import InputError, LockedError, UsageError
from virnucpro.events import Notice, Show, StepStarted
from virnucpro.io.inputs import InputFiles
from virnucpro.layout import STDIN, Layout
from virnucpro.report.page import report_problem
from virnucpro.results import INCOMPLETE, open_run
from virnucpro.run.record import facts_of_results, save_run_record
from virnucpro.run.run import Run, sweep
from virnucpro.run.sample_list import finished_runs, renew_samples
from virnucpro.settings import Thresholds, trained
from virnucpro.stages.output import OutputStage, result_stages
from virnucpro.stages.result_files import OutputFigures
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import HashedFile, hashed_input
from virnucpro.store.ledger import Ledger
from virnucpro.store.lock import locked
from virnucpro.store.work import read_state
from virnucpro.version import __version__

CalledRun = tuple[Layout, OutputFigures, bool, str]
"""A run whose tables have the asked thresholds now, and what they hold; whether they were not so
before; and what gets a call: ``record`` or ``pair``."""


def call_again(
    folders: Sequence[Path],
    stems: Sequence[str],
    inputs: Sequence[Path],
    thresholds: Thresholds,
    command: Sequence[str],
    show: Show,
) -> tuple[list[CalledRun], bool]:
    """Write the tables of all runs with other thresholds; a run that has these is left alone.

    ``stems`` are the names of runs, empty for all, and ``inputs`` files that runs were made from,
    where they are not in their places any more. The table and the overview of several inputs have
    the new counts, too. Says also whether runs were left out, and names them: not finished, in
    use, or without input. Where one was asked for by name, or there is no other, that is an error.
    """
    found: dict[tuple[Path, str], None] = {}
    for folder in folders:
        runs = [run for _, run in finished_runs(folder.absolute())]
        found |= {(run.folder, run.stem): None for run in runs if not stems or run.stem in stems}
    if missing := set(stems) - {stem for _, stem in found}:
        raise UsageError(f"no directory holds a finished run {', '.join(sorted(missing))}")
    given = {file.sha256: file for file in (hashed_input(path.absolute()) for path in inputs)}
    called, left_out = [], []
    for folder, stem in found:
        layout, disk = Layout(folder, stem), Disk()
        try:
            with locked(layout.lock):
                called.append(_called(layout, disk, thresholds, command, given, show))
                if problem := report_problem(layout, disk):
                    show(Notice("info", problem))
        except (UsageError, InputError, LockedError) as error:
            left_out.append(error)
    for folder in dict.fromkeys(layout.root.parent for layout, *_ in called):
        if problem := renew_samples(folder):
            show(Notice("info", problem))
    if left_out and (stems or not called):
        raise left_out[0]
    for refusal in left_out:
        show(Notice("warning", f"left out: {refusal}"))
    return called, bool(left_out)


def _called(
    called: Layout,
    disk: Disk,
    thresholds: Thresholds,
    command: Sequence[str],
    given: Mapping[str, HashedFile],
    show: Show,
) -> CalledRun:
    """Write the tables of a run, unless they are those of the asked thresholds.

    Its receipt is replaced when they are complete. After a kill half way, the old one still proves
    what they are made from, and the same command writes them all again.
    """
    try:
        state = read_state(called)
        if state is None:
            raise ValueError("its state is missing or damaged")
        own = state.identity
        layout = Layout(called.root, called.stem, own.chunk_length)
        record = open_run(layout.root, layout.stem).record
        found = [
            _input_file(layout, path, digest, given)
            for path, digest in zip((state.source, state.mates), own.inputs, strict=False)
        ]
        source = InputFiles(*(file.path for file in found), interleaved=own.interleaved)
        ledger = Ledger(layout, disk, found, state.decided_by)
        figures = ledger.read(layout.receipt("output"), OutputFigures).figures
        assert isinstance(figures, OutputFigures)
        calibrated, model, earlier = figures.calibrated, figures.contig_model, figures.thresholds
        for stage in result_stages(layout, disk, source, found, calibrated, model, earlier):
            task = stage.task(ledger)
            if ledger.read(task.receipt).fingerprint != ledger.fingerprint(task):
                raise ValueError("its scores were changed since")
            if stage.name == OutputStage.name:
                break  # those behind it are made from its files, which may be edited
        name = Path(record["models"]["classifier"]["path"]).name
        calibrations = find_calibrations(name, own.weights, own.precision, show)
        calibration = calibrations.get(trained(layout.chunk_length, calibrations))
        if calibration:
            calibrated, model = True, calibration.contigs
        thresholds.check(calibrated=calibrated)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(
            f"the run {called.stem} in {called.root} is not finished by this version ({error}): do "
            f"so with virnucpro predict, or choose other runs with --stem"
        ) from error
    sweep(layout, disk)
    show(StepStarted(f"calling {layout.stem}", figures.records))
    stages = result_stages(layout, disk, source, found, calibrated, model, thresholds)
    run = Run(layout, disk, stages, state, show, found)
    for stage in stages:
        run.once(stage)
    figures = run.ledger.figures(layout.receipt("output"), OutputFigures)
    settings = {**record["settings"], "thresholds": asdict(thresholds)}
    if settings != record["settings"] or INCOMPLETE in record or run.computed:
        called_again = _record_of_call(record, figures, calibration, command)
        save_run_record(layout, disk, {**called_again, "settings": settings})
    return layout, figures, bool(run.computed), "pair" if source.paired else "record"


def _record_of_call(
    record: Mapping[str, Json],
    figures: OutputFigures,
    calibration: FoundCalibration | None,
    command: Sequence[str],
) -> dict[str, Json]:
    """Return the record of a run with what its tables hold now, and which command wrote them."""
    facts, classifier = facts_of_results(figures), record["models"]["classifier"]
    if calibration:
        classifier = {**classifier, "calibrated": True, "calibration": str(calibration.path)}
    changed = {
        **facts,
        "called_again": {
            "virnucpro": __version__,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": list(command),
        },
        "models": {**record["models"], "classifier": classifier},
        "counts": {**record["counts"], **facts["counts"]},
    }
    return {name: value for name, value in {**record, **changed}.items() if name != INCOMPLETE}


def _input_file(
    layout: Layout, source: str, digest: str, given: Mapping[str, HashedFile]
) -> HashedFile:
    """Return a file of the input of a run, whose ``source`` was a path or standard input."""
    path = layout.spooled if source == STDIN else Path(source)
    file = given.get(digest) or (hashed_input(path) if path.is_file() else None)
    if file is None or file.sha256 != digest:
        piped = "standard input, which was not kept (a file of the same unpacked bytes will do),"
        what = piped if source == STDIN else f"{path},"
        raise InputError(
            f"the input of the run {layout.stem}, {what} is gone or has changed since; name the "
            f"file that the run has read: virnucpro call {layout.root} --input FILE"
        )
    return file
