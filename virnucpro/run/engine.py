"""The one engine: it brings the stages of a run up to date, whatever the run is for."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from virnucpro.contracts import SpannedStage, Stage, Task, TaskResult
from virnucpro.errors import OutputError
from virnucpro.events import (
    Emit,
    FileFinished,
    Notice,
    StageAhead,
    StageFinished,
    StageStarted,
)
from virnucpro.executors.executor import Executor
from virnucpro.formatting import byte_size
from virnucpro.layout import MOLECULES, Layout
from virnucpro.run.ahead import stages_ahead
from virnucpro.run.record import RunOutcome, WorkerTable
from virnucpro.run.spans import Spans
from virnucpro.run.status import write_stage_list
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger
from virnucpro.store.state import RunState, admit_run, read_state, write_state


@dataclass(frozen=True)
class Run:
    """One input through all stages; everything that the engine has to know of it.

    Attributes:
        layout: every path of the run.
        disk: what writes.
        stages: all stages, in order.
        state: what the results depend on, and the batch budgets of an earlier start.
        digests: SHA-256 (hex) of the files that are read and that no stage writes.
        command: what continues the run when it is interrupted.
        stages_before: stages of other runs that the same command counts before these.
        stages_in_all: stages that the command counts in all; 0 for those of this run.
        runs_ahead: stages of other runs that the same command has still to do after these.
    """

    layout: Layout
    disk: Disk
    stages: Sequence[Stage]
    state: RunState
    digests: Mapping[Path, str] = field(default_factory=dict)
    command: str = "predict"
    stages_before: int = 0
    stages_in_all: int = 0
    runs_ahead: tuple[StageAhead, ...] = ()


def admitted_state(
    layout: Layout, disk: Disk, state: RunState, emit: Emit, *, resume: bool, force: bool
) -> RunState:
    """Write the state of a run, with the batch budgets of an earlier start, and return it.

    Raises:
        ResumeRefusedError: the existing files were made from something else.
        UsageError: files would be overwritten that this run did not write.
    """
    admission = admit_run(layout, disk, state, resume=resume, force=force)
    if admission.notice:
        emit(Notice("info", admission.notice))
    earlier = read_state(layout)  # None where it was moved aside just now
    state = replace(state, budgets=earlier.budgets if earlier else {})
    write_state(layout, disk, state)
    return state


def execute(run: Run, executor: Executor, emit: Emit) -> RunOutcome:
    """Bring every stage of an admitted run up to date.

    Raises:
        VirNucProError: whatever ends a run; what was committed before stays valid.
    """
    layout, disk = run.layout, run.disk
    sweep(layout, disk)
    write_stage_list(layout, disk, run.command, run.stages)
    outcome = RunOutcome(Ledger(layout, disk, run.digests))
    workers = WorkerTable(
        run.state.budgets,
        lambda budgets: write_state(layout, disk, replace(run.state, budgets=budgets)),
        emit,
    )
    if outcome.ledger.has_removed_outputs and (reason := _reason_to_distrust(run, outcome.ledger)):
        text = "the intermediate files of the finished run, since removed, are needed again"
        emit(Notice("warning", f"{text}: {reason}"))
        outcome.ledger.forget_removed()
    space_checked = False
    for position, stage in enumerate(run.stages, 1):
        number = run.stages_before + position
        started = time.perf_counter()
        tasks = stage.plan(outcome.ledger)
        stale, reasons = _stale(tasks, outcome.ledger)
        stage = stage.with_tasks(tasks)
        stale = _adopt(stage, stale, outcome.ledger, emit)
        if stale and stage.disk_need(outcome.ledger) and not space_checked:
            _check_space(run, outcome.ledger, emit)
            space_checked = True
        with Spans(stage, stale, outcome.ledger, disk) as spans:
            emit(
                StageStarted(
                    stage.name,
                    number,
                    len(tasks),
                    len(spans.todo),
                    sum(task.count for task in spans.todo),
                    sum(task.weight for task in spans.todo),
                    reasons,
                    spans.files,
                    title=stage.title,
                    stages=run.stages_in_all or len(run.stages),
                    on_workers=stage.runs_on == "worker",
                    ahead=(
                        *stages_ahead(run.stages[position:], outcome.ledger),
                        *run.runs_ahead,
                    ),
                )
            )
            for result in executor.run(stage, spans.todo, workers.show):
                for task in spans.add(result):
                    emit(FileFinished(stage.name, task))
                outcome.computed[stage.name] += 1
                if isinstance(result, TaskResult) and isinstance(stage, SpannedStage):
                    waited = outcome.host_wait.get(stage.name, 0.0)
                    waited += result.figures.host_wait_seconds
                    outcome.host_wait[stage.name] = waited
            for task in spans.rest():
                emit(FileFinished(stage.name, task))
        for task in tasks:
            for notice in outcome.ledger.figures(task.receipt).notices:
                emit(Notice("warning", notice))
        outcome.seconds[stage.name] = time.perf_counter() - started
        emit(StageFinished(stage.name, number, outcome.seconds[stage.name]))
    outcome.workers, outcome.budgets = workers.rows(), workers.budgets
    return outcome


def _stale(tasks: Sequence[Task], ledger: Ledger) -> tuple[list[Task], tuple[str, ...]]:
    """Return the tasks that have to be carried out, and the most frequent reasons in words."""
    verdicts = [ledger.check(task) for task in tasks]
    stale = [task for task, verdict in zip(tasks, verdicts, strict=True) if verdict.stale]
    reasons = Counter(v.reason for v in verdicts if v.stale and v.reason != "no receipt")
    return stale, tuple(f"{reason} ({count}x)" for reason, count in reasons.most_common(3))


def _adopt(stage: Stage, stale: list[Task], ledger: Ledger, emit: Emit) -> list[Task]:
    """Commit what an earlier version of the program left; returns the tasks that remain."""
    adopted = set()
    for item in stage.adopt(stale):
        if isinstance(item, str):
            emit(Notice("warning", item))
            continue
        ledger.discard(item.task)
        ledger.commit(item, origin="legacy")
        adopted.add(item.task.receipt)
    return [task for task in stale if task.receipt not in adopted]


def _reason_to_distrust(run: Run, ledger: Ledger) -> str | None:
    """Return why the files that a finished run kept do not suffice; None where they do.

    After the intermediate files are removed, only the stages behind them can be done again, and
    only where their inputs exist.
    """
    for stage in run.stages:
        verdicts = [(task, ledger.check(task)) for task in stage.plan(ledger)]
        stale = [(task, verdict) for task, verdict in verdicts if verdict.stale]
        if stale:
            complete = all(path.exists() for task, _ in stale for path in task.inputs)
            return None if complete and not stage.intermediate else stale[0][1].reason
    return None


def _check_space(run: Run, ledger: Ledger, emit: Emit) -> None:
    """Say how much the large outputs take, and stop now if the disk cannot hold them.

    Raises:
        OutputError: there is too little space (exit 6).
    """
    needs = [need for stage in run.stages if (need := stage.disk_need(ledger))]
    total, purpose = sum(need.bytes for need in needs), needs[0].purpose
    present = sum(path.stat().st_size for path in run.layout.feature_files())
    missing = max(0, total - present)
    free = shutil.disk_usage(run.layout.root).free
    emit(Notice("info", f"{purpose} take {byte_size(total)} ({byte_size(free)} are free)"))
    if missing > free:
        raise OutputError(
            f"{run.layout.root} has {byte_size(free)} free, but {purpose} still take "
            f"{byte_size(missing)}: free some space or move the folder, then run the same command "
            f"again"
        )


def sweep(layout: Layout, disk: Disk) -> None:
    """Remove temporary files of earlier, killed processes."""
    disk.sweep(layout.root, layout.top_names())
    disk.sweep(layout.home)
    own = (layout.merged_folder, *(layout.folder(molecule) for molecule in MOLECULES))
    for folder in (*own, *layout.part_folders()):
        disk.sweep(folder)
    if layout.state.is_dir():
        for folder in (layout.state, *layout.state.rglob("*/")):
            if folder.is_dir():
                disk.sweep(folder)


def tidy_up(run: Run, outcome: RunOutcome, *, keep_intermediate: bool) -> None:
    """Remove what a run without failures does not need any more; its receipts stay as proof."""
    for folder in run.layout.part_folders():  # of files that were joined just before a kill
        run.disk.remove_tree(folder)
    if keep_intermediate:
        return
    intermediate = {stage.name for stage in run.stages if stage.intermediate}
    kept = frozenset(path for stage in run.stages for path in stage.kept_outputs)
    outcome.ledger.remove(
        [(path, r) for path, r in outcome.ledger.receipts() if r.stage in intermediate], kept
    )
    for molecule in MOLECULES:
        run.disk.remove_folder(run.layout.folder(molecule))
