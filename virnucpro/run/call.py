"""The tables of finished runs, and the report, written again with other cuts. Nothing is computed.

Imports no torch: neither the models of the run nor its classifier have to be there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from virnucpro.classifier.contigs import ContigModel
from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Event, StepProgress
from virnucpro.io.pairs import InputFiles
from virnucpro.layout import STDIN, Layout, RunLayout
from virnucpro.report.writing import report_problem
from virnucpro.results import INCOMPLETE
from virnucpro.run.sample_list import folders_of_runs
from virnucpro.run.sample_table import renew_samples
from virnucpro.run.status import RunStatus, statuses
from virnucpro.settings import Cuts, CutSettings
from virnucpro.stages.chunking import ChunkingFigures, hashed_input
from virnucpro.stages.output import OutputStage
from virnucpro.stages.results import OutputFigures, result_counts
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.ledger import Ledger, stage_receipt
from virnucpro.store.lock import locked
from virnucpro.store.receipts import Receipt, UnusableReceiptError
from virnucpro.store.stamps import HashedFile
from virnucpro.store.state import INPUT_NAMES, INTERLEAVED, MATES, RunState, read_state
from virnucpro.version import __version__


@dataclass(frozen=True)
class CallRequest:
    """What the user asked for.

    Attributes:
        folders: output directories of ``predict``.
        stems: names of runs in them; empty for all.
        inputs: files that runs were made from, where they are not in their places any more.
        cuts: what a record needs to be called virus.
        command: the command line, for the records of the runs.
    """

    folders: Sequence[Path]
    stems: Sequence[str]
    inputs: Sequence[Path]
    cuts: CutSettings
    command: Sequence[str]


@dataclass(frozen=True)
class CalledRun:
    """A run whose tables are those of the asked cuts now; ``changed`` if they were not before.

    ``noun`` says what gets a call: ``record`` or ``pair``.
    """

    layout: RunLayout
    figures: OutputFigures
    changed: bool
    noun: str


@dataclass(frozen=True)
class FinishedRun:
    """A finished run with everything that its tables are made from."""

    layout: RunLayout
    state: RunState
    receipt: Receipt
    figures: OutputFigures
    record: dict[str, Json]

    @property
    def interleaved(self) -> bool:
        """Whether its input has both mates of each pair, one after the other."""
        return self.state.analysis.get(MATES) == INTERLEAVED

    def stage(self, disk: Disk, found: Sequence[HashedFile], cuts: Cuts) -> OutputStage:
        """Return the stage that writes the tables with ``cuts``; ``found`` are the input files."""
        model = self.figures.contig_model
        return OutputStage(
            self.layout,
            disk,
            InputFiles(*(file.path for file in found), interleaved=self.interleaved),
            found,
            self.figures.calibrated,
            ContigModel(*model) if model else None,
            cuts,
        )


class CallScreen(StepProgress, Protocol):
    """Shows how far the calling is."""

    def say(self, text: str) -> None:
        """Show a sentence."""
        ...

    def show_report(self, event: Event) -> None:
        """Count the records of a report that is written, in the current step."""
        ...


def call_again(request: CallRequest, screen: CallScreen) -> list[CalledRun]:
    """Write the tables of all runs that were asked for; one that has these cuts is left alone.

    The table and the overview of several inputs have the new counts, too. All runs are looked at
    before the first is changed. Runs that are not finished are left out, and named.

    Raises:
        UsageError: a directory holds no finished run of ``predict``, or one that was asked for by
            its name is not finished.
        InputError: the input of a run is not there, or it is another file now.
        LockedError: another process works on a run.
    """
    folders = [own for folder in request.folders for own in folders_of_runs(folder, screen.say)]
    found = [run for folder in folders for run in _finished_runs(folder, request.stems, screen.say)]
    if not found:
        names = ", ".join(request.stems)
        raise UsageError(f"none of the directories holds a run {names}: see virnucpro status")
    given = {}
    for path in request.inputs:
        if not path.is_file():
            raise UsageError(f"--input {path} is not a file: check its path")
        file = hashed_input(path.absolute())
        given[file.sha256] = file
    runs = []
    for run in found:
        screen.say(f"calling the records of {run.layout.stem} in {run.layout.root}")
        records = run.record["counts"].get("records", 0)
        screen.begin(f"calling {run.layout.stem}", records)
        with locked(run.layout.lock):
            run = _finished(run.layout)  # another process may have worked until the lock was taken
            runs.append(_called(run, request, given, screen))
            screen.begin(f"report of {run.layout.stem}", records)
            if problem := report_problem(run.layout, Disk(), screen.show_report):
                screen.say(problem)
    for folder in dict.fromkeys(run.layout.root.parent for run in runs):
        renew_samples(folder, screen.say)
    return runs


def _finished_runs(
    folder: Path, stems: Sequence[str], notify: Callable[[str], None]
) -> list[FinishedRun]:
    """Return the runs that are called; ``notify`` gets a sentence for each other one.

    Raises:
        UsageError: a run that was named cannot be called, or no run of the folder can.
    """
    chosen = [run for run in statuses(folder) if not stems or run.stem in stems]
    reasons = {run.stem: reason for run in chosen if (reason := _unfinished(run))}
    if reasons and (stems or len(reasons) == len(chosen)):
        stem, reason = next(iter(reasons.items()))
        raise UsageError(
            f"{folder}: the run {stem} {reason}; virnucpro status {folder} says what is missing, "
            f"and --stem chooses other runs"
        )
    for stem, reason in reasons.items():
        notify(f"the run {stem} in {folder} is left out: it {reason}")
    return [_finished(Layout(folder, run.stem)) for run in chosen if run.stem not in reasons]


def _unfinished(run: RunStatus) -> str:
    """Return why a run has no tables that could be written again; empty where it has."""
    if run.state.startswith("legacy"):
        return "was made by version 1: take it over with virnucpro predict --resume"
    stages = {stage.stage.name: stage for stage in run.stages}
    if "output" not in stages:
        return f"is not one of virnucpro predict, but of virnucpro {run.command}"
    if run.owner is not None:
        return f"is not finished: {run.owner} works on it"
    if any(not s.complete for s in run.stages if not s.stage.embeds and s.stage.name != "output"):
        return "is not finished: finish it with the same virnucpro predict command"
    return ""


def _finished(layout: Layout) -> FinishedRun:
    """Read what is known of a finished run.

    Raises:
        UsageError: an earlier version wrote it, or something of it is damaged.
    """
    state = read_state(layout)
    try:
        if state is None:
            raise ValueError("its state is damaged")
        run = RunLayout(layout.root, layout.stem, int(state.analysis["chunk length"]))
        receipt = stage_receipt(run, "output", OutputFigures)
        record = parse_json(run.run_json.read_bytes())
        if not isinstance(record["settings"], dict) or not isinstance(record["counts"], dict):
            raise ValueError(f"{run.run_json.name} was changed")
        assert isinstance(receipt.figures, OutputFigures)
        return FinishedRun(run, state, receipt, receipt.figures, record)
    except (UnusableReceiptError, OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(
            f"{layout.root}: the run {layout.stem} was finished by an earlier version, or was "
            f"changed since ({error}): bring it up to date with virnucpro predict --resume, which "
            f"computes only what is missing"
        ) from error


def _called(
    run: FinishedRun,
    request: CallRequest,
    given: Mapping[str, HashedFile],
    screen: CallScreen,
) -> CalledRun:
    """Write the tables of a run, unless they are those of the asked cuts.

    Its receipt is replaced when they are complete. After a kill half way, the old one still proves
    what they are made from, and the same command writes them all again.

    Raises:
        UsageError: what they are made from was changed.
        InputError: the input is not there.
    """
    cuts = request.cuts.cuts(calibrated=run.figures.calibrated)
    found = _input(run, given)
    disk, layout = Disk(), run.layout
    ledger = Ledger(layout, disk, {file.path: file.sha256 for file in found})
    try:
        ledger.load("chunking", ChunkingFigures)
        (before,) = run.stage(disk, found, run.figures.cuts).plan(ledger)
        proved = ledger.has_inputs_of(before, run.receipt)
    except (UnusableReceiptError, FileNotFoundError):
        proved = False
    if not proved:
        raise UsageError(
            f"{layout.root}: the scores of the run {layout.stem} were changed since it was "
            f"finished, or this version reads them in another way: bring it up to date with "
            f"virnucpro predict --resume"
        )
    stage = run.stage(disk, found, cuts)
    (task,) = stage.plan(ledger)
    stale = bool(ledger.check(task))
    figures = run.figures
    for place, names in ((layout.root, layout.top_names()), (layout.state, None)):
        disk.sweep(place, names)
    if stale:
        carry_out = stage.open(Device("cpu"))
        result = carry_out(ledger.identified(task), lambda records, _: screen.advance(records))
        ledger.accept(result)
        assert isinstance(result.figures, OutputFigures)
        figures = result.figures
    _update_record(run, figures, request.command, disk)
    return CalledRun(layout, figures, stale, "pair" if stage.source.paired else "record")


def _input(run: FinishedRun, given: Mapping[str, HashedFile]) -> list[HashedFile]:
    """Return the files of the input of a run, in order: one or two.

    Raises:
        InputError: a file is not there any more, or it is another file now.
    """
    files = []
    for name, place in zip(INPUT_NAMES, (run.state.source, run.state.mates), strict=True):
        if name in run.state.analysis:
            digest = str(run.state.analysis[name])
            files.append(given.get(digest) or _kept_input(run, place, digest))
    return files


def _kept_input(run: FinishedRun, place: str, digest: str) -> HashedFile:
    """Return a file of the input where the run found it.

    Raises:
        InputError: it is not there any more, or it is another file now.
    """
    piped = place == STDIN
    source = run.layout.spooled if piped else Path(place)
    what = f"the input of the run {run.layout.stem}"
    advice = "name the file that the run has read: virnucpro call DIR --input FILE"
    if not source.is_file():
        where = (
            " was read from standard input, which was not kept" if piped else f", {source}, is gone"
        )
        raise InputError(f"{what}{where}; {advice}")
    found = hashed_input(source)
    if found.sha256 != digest:
        raise InputError(f"{what}, {source}, has changed since; {advice}")
    return found


def _update_record(
    run: FinishedRun, figures: OutputFigures, command: Sequence[str], disk: Disk
) -> None:
    """Write the cuts and the new counts into ``STEM_run.json``; the rest stays."""
    cuts = asdict(figures.cuts)
    record = parse_json(run.layout.run_json.read_bytes())
    if record["settings"].get("cuts") == cuts and INCOMPLETE not in record:
        return
    record.pop(INCOMPLETE, None)
    record |= {
        "called_again": {
            "virnucpro": __version__,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": list(command),
        },
        "settings": {**record["settings"], "cuts": cuts},
        "counts": {**record["counts"], **result_counts(figures)},
    }
    disk.save(run.layout.run_json, (json.dumps(record, indent=1) + "\n").encode())
