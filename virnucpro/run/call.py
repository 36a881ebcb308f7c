"""The last stage of finished runs carried out again, with other cuts.

Imports no torch: neither the models of the run nor its classifier have to be there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from virnucpro.classifier.contigs import ContigModel
from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Emit, Notice, StepProgress
from virnucpro.executors.executor import Executor, LocalPool
from virnucpro.io.pairs import InputFiles
from virnucpro.layout import STDIN, Layout, RunLayout
from virnucpro.report.writing import report_problem
from virnucpro.results import INCOMPLETE
from virnucpro.run.engine import carry_out_stage
from virnucpro.run.run import Run, sweep
from virnucpro.run.sample_list import renew_samples, samples_of
from virnucpro.run.status import layouts_in
from virnucpro.settings import CutSettings
from virnucpro.stages.chunking import ChunkingFigures, hashed_input
from virnucpro.stages.output import OutputFigures, OutputStage, result_counts
from virnucpro.store.disk import Disk, HashedFile
from virnucpro.store.documents import parse_json
from virnucpro.store.ledger import Ledger, Receipt, UnusableReceiptError
from virnucpro.store.lock import locked
from virnucpro.store.work import INPUT_NAMES, INTERLEAVED, MATES, RunState, read_state
from virnucpro.version import __version__


class CalledRun(NamedTuple):
    """A run whose tables are those of the asked cuts now; ``changed`` if they were not before.

    ``noun`` says what gets a call: ``record`` or ``pair``.
    """

    layout: RunLayout
    figures: OutputFigures
    changed: bool
    noun: str


def call_again(
    folders: Sequence[Path],
    stems: Sequence[str],
    inputs: Sequence[Path],
    cuts: CutSettings,
    command: Sequence[str],
    progress: StepProgress,
    emit: Emit,
) -> list[CalledRun]:
    """Write the tables of all runs with other cuts; a run that has these cuts is left alone.

    The table and the overview of several inputs have the new counts, too. Runs that are not
    finished are left out, and named.

    Args:
        folders: output directories of ``predict``.
        stems: names of runs in them; empty for all.
        inputs: files that runs were made from, where they are not in their places any more.
        cuts: what a record needs to be called virus.
        command: the command line, for the records of the runs.
        progress: gets a step for each run and its report.
        emit: gets what is done.

    Raises:
        UsageError: a directory holds no finished run of ``predict``, or one that was asked for by
            its name is not finished.
        InputError: the input of a run is not there, or it is another file now.
        LockedError: another process works on a run.
    """
    found = [each for folder in folders for each in _finished_runs(folder, stems, emit)]
    if not found:
        raise UsageError(f"no directory holds a run {', '.join(stems)}: see virnucpro status")
    given = {}
    for path in inputs:
        if not path.is_file():
            raise UsageError(f"--input {path} is not a file: check its path")
        file = hashed_input(path.absolute())
        given[file.sha256] = file
    runs = []
    for layout in found:
        emit(Notice("info", f"calling the records of {layout.stem} in {layout.root}"))
        with locked(layout.lock):
            runs.append(_called(layout, cuts, command, given, progress, emit))
            if problem := report_problem(layout, Disk(), emit):
                emit(Notice("info", problem))
    for folder in dict.fromkeys(run.layout.root.parent for run in runs):
        renew_samples(folder, lambda text: emit(Notice("info", text)))
    return runs


def _finished_runs(folder: Path, stems: Sequence[str], emit: Emit) -> list[Layout]:
    """Return the finished runs of a folder and of the samples in it."""
    root = folder.absolute()
    places = [*(root / name for name in samples_of(root)), root]
    runs, left_out = [], []
    for layout in (each for place in places for each in layouts_in(place)):
        if stems and layout.stem not in stems:
            continue
        try:
            _finished(layout)
            runs.append(layout)
        except UsageError as error:
            if stems:
                raise
            left_out.append(error)
    if not runs and not stems:
        raise left_out[0] if left_out else UsageError(f"{folder} holds no run of predict")
    for refusal in left_out:
        emit(Notice("info", f"left out: {refusal}"))
    return runs


def _finished(layout: Layout) -> tuple[RunLayout, RunState, Receipt, dict[str, Json]]:
    """Return the files, the state, the last receipt and the record of a finished run."""
    try:
        state = read_state(layout)
        if state is None:
            raise ValueError("its state is missing or damaged")
        run = RunLayout(layout.root, layout.stem, int(state.analysis["chunk length"]))
        receipt = Ledger(run).read(run.receipt("output"), OutputFigures)
        record = parse_json(run.run_json.read_bytes())
        if not isinstance(record["settings"], dict) or not isinstance(record["counts"], dict):
            raise ValueError(f"{run.run_json.name} was changed")
        run.consensus.stat()
        return run, state, receipt, record
    except (UnusableReceiptError, OSError, ValueError, LookupError, TypeError) as error:
        raise _unfinished(layout, str(error)) from error


def _unfinished(layout: Layout, reason: str) -> UsageError:
    return UsageError(
        f"the run {layout.stem} in {layout.root} is not finished by this version ({reason}): do so "
        f"with virnucpro predict --resume, or choose other runs with --stem"
    )


def _called(
    place: Layout,
    settings: CutSettings,
    command: Sequence[str],
    given: Mapping[str, HashedFile],
    progress: StepProgress,
    emit: Emit,
) -> CalledRun:
    """Write the tables of a run, unless they are those of the asked cuts.

    Its receipt is replaced when they are complete. After a kill half way, the old one still proves
    what they are made from, and the same command writes them all again.
    """
    layout, state, receipt, record = _finished(place)
    figures, disk = receipt.figures, Disk()
    assert isinstance(figures, OutputFigures)
    cuts = settings.cuts(calibrated=figures.calibrated)
    found = [
        _input_file(layout, place, str(state.analysis[name]), given)
        for name, place in zip(INPUT_NAMES, (state.source, state.mates), strict=True)
        if name in state.analysis
    ]
    interleaved = state.analysis.get(MATES) == INTERLEAVED
    source = InputFiles(*(file.path for file in found), interleaved=interleaved)
    model = ContigModel(*figures.contig_model) if figures.contig_model else None
    stage = OutputStage(layout, disk, source, found, figures.calibrated, model, cuts)
    run = Run(layout, disk, [stage], state, found)
    try:
        run.ledger.load("chunking", ChunkingFigures)
        (before,) = replace(stage, cuts=figures.cuts).plan(run.ledger)
        proved = run.ledger.has_inputs_of(before, receipt)
    except (UnusableReceiptError, FileNotFoundError):
        proved = False
    if not proved:
        raise _unfinished(layout, "its scores were changed since, or are read in another way")
    sweep(run)
    progress.begin(f"calling {layout.stem}", figures.records)
    carry_out_stage([run], 0, Executor(LocalPool(Device("cpu")), 1), emit)
    figures = run.ledger.figures(layout.receipt("output"))
    assert isinstance(figures, OutputFigures)
    if record["settings"].get("cuts") != asdict(cuts) or INCOMPLETE in record or run.computed:
        record.pop(INCOMPLETE, None)
        record |= {
            "called_again": {
                "virnucpro": __version__,
                "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "command": list(command),
            },
            "settings": {**record["settings"], "cuts": asdict(cuts)},
            "counts": {**record["counts"], **result_counts(figures)},
        }
        disk.save(layout.run_json, (json.dumps(record, indent=1) + "\n").encode())
    progress.begin(f"report of {layout.stem}", figures.records)
    return CalledRun(layout, figures, bool(run.computed), "pair" if source.paired else "record")


def _input_file(
    layout: Layout, place: str, digest: str, given: Mapping[str, HashedFile]
) -> HashedFile:
    """Return a file of the input of a run that it read at ``place``."""
    path = layout.spooled if place == STDIN else Path(place)
    file = given.get(digest) or (hashed_input(path) if path.is_file() else None)
    if file is None or file.sha256 != digest:
        what = "standard input, which was not kept," if place == STDIN else f"{path},"
        raise InputError(
            f"the input of the run {layout.stem}, {what} is gone or has changed since; name the "
            f"file that the run has read: virnucpro call DIR --input FILE"
        )
    return file
