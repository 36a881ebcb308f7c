"""The one engine: it brings the stages of a run up to date, whatever the run is for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from virnucpro.contracts import SpannedStage, Stage, Task, TaskOutcome, TaskResult
from virnucpro.events import (
    Emit,
    FileFinished,
    Notice,
    StageAhead,
    StageFinished,
    StageStarted,
)
from virnucpro.executors.executor import Executor
from virnucpro.layout import Layout
from virnucpro.run.ahead import stages_ahead
from virnucpro.run.files import check_space, sweep
from virnucpro.run.record import RunOutcome, WorkerTable
from virnucpro.run.shared_stage import SharedStage
from virnucpro.run.spans import Spans
from virnucpro.run.status import write_stage_list
from virnucpro.run.windows import Features, FeatureWindows, feature_windows
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
        features: whether they are kept until the end, or dropped as soon as they are scored;
            ``auto`` drops them where the disk cannot hold them.
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
    features: Features = "kept"


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
    execution = Execution(run, emit)
    workers = noted_workers([execution], emit)
    embedding = embedding_positions(run.stages)
    for position in range(embedding.start):
        carry_out_stage([execution], position, executor, workers, emit)
    if embedding:
        carry_out_embedding([execution], executor, workers, emit)
    for position in range(embedding.stop, len(run.stages)):
        carry_out_stage([execution], position, executor, workers, emit)
    return execution.finished(workers)


def embedding_positions(stages: Sequence[Stage]) -> range:
    """Return the positions of the stages of the workers, which follow each other."""
    positions = [n for n, stage in enumerate(stages) if stage.runs_on == "worker"]
    return range(positions[0], positions[-1] + 1) if positions else range(0)


class Execution:
    """An admitted run on its way through its stages.

    Attributes:
        windows: the split files that are still to be scored, where features are not kept.
    """

    def __init__(self, run: Run, emit: Emit) -> None:
        """Remove what killed processes left, and see what of a finished run can be relied on."""
        self.run = run
        sweep(run.layout, run.disk)
        write_stage_list(run.layout, run.disk, run.command, run.stages)
        ledger = Ledger(run.layout, run.disk, run.digests)
        self.outcome = RunOutcome(ledger)
        self._space_checked = False
        self.windows: FeatureWindows | None = None
        begun = run.layout.score_files()  # features are gone before all files have scores
        if (
            ledger.has_removed_outputs
            and not begun
            and (reason := _reason_to_distrust(run, ledger))
        ):
            text = "the intermediate files of the finished run, since removed, are needed again"
            emit(Notice("warning", f"{text}: {reason}"))
            ledger.forget_removed()

    @property
    def ledger(self) -> Ledger:
        """The receipts of the run."""
        return self.outcome.ledger

    def plan(self, position: int, emit: Emit) -> PlannedStage:
        """Plan a stage, and find out what of it is to do."""
        stage = self.run.stages[position]
        if self.windows and self.windows.present:
            stage = stage.within(self.windows.present)
        tasks = stage.plan(self.ledger)
        stale, reasons = _stale(tasks, self.ledger)
        stage = stage.with_tasks(tasks)
        stale = _adopt(stage, stale, self.ledger, emit)
        unchecked = self.windows is None and not self._space_checked
        if stale and stage.disk_need(self.ledger) and unchecked:
            check_space(self.run.layout, self.run.stages, self.ledger, emit)
            self._space_checked = True
        return PlannedStage(
            self, stage, tasks, reasons, Spans(stage, stale, self.ledger, self.run.disk)
        )

    def ahead(self, position: int) -> tuple[StageAhead, ...]:
        """Return what is still to do behind a stage."""
        later = self.run.stages[position + 1 :]
        if self.windows and self.windows.present:
            own = self.windows.ahead(later)
        else:
            own = stages_ahead(later, self.ledger)
        return (*own, *self.run.runs_ahead)

    def finished(self, workers: WorkerTable) -> RunOutcome:
        """Return what was done, after the last stage; ``workers`` are those that did it."""
        self.outcome.workers, self.outcome.budgets = workers.rows(), workers.budgets
        return self.outcome


@dataclass(frozen=True)
class PlannedStage:
    """A stage of a run, with its tasks and the spans of those that are stale."""

    execution: Execution
    stage: Stage
    tasks: Sequence[Task]
    reasons: tuple[str, ...]
    spans: Spans

    @property
    def weight(self) -> int:
        """The weight of all that is to do."""
        return sum(task.weight for task in self.spans.todo)

    def add(self, result: TaskOutcome, emit: Emit) -> None:
        """Commit a task that was carried out, or note that it failed."""
        for task in self.spans.add(result):
            emit(FileFinished(self.stage.name, task))
        outcome = self.execution.outcome
        outcome.computed[self.stage.name] += 1
        if isinstance(result, TaskResult) and isinstance(self.stage, SpannedStage):
            waited = outcome.host_wait.get(self.stage.name, 0.0)
            waited += result.figures.host_wait_seconds
            outcome.host_wait[self.stage.name] = waited

    def end(self, seconds: float, emit: Emit) -> None:
        """Wait for the files that are still being joined, and note what the stage took."""
        for task in self.spans.rest():
            emit(FileFinished(self.stage.name, task))
        for task in self.tasks:
            for notice in self.execution.ledger.figures(task.receipt).notices:
                emit(Notice("warning", notice))
        spent = self.execution.outcome.seconds
        spent[self.stage.name] = spent.get(self.stage.name, 0.0) + seconds


def noted_workers(executions: Sequence[Execution], emit: Emit) -> WorkerTable:
    """Return what takes note of the workers of one run, or of several that share them.

    Batch budgets that are measured are kept with each of the runs.
    """

    def save(budgets: Mapping[str, int]) -> None:
        for execution in executions:
            run = execution.run
            write_state(run.layout, run.disk, replace(run.state, budgets=budgets))

    known = {name: n for e in executions for name, n in e.run.state.budgets.items()}
    return WorkerTable(known, save, emit)


def carry_out_stage(
    executions: Sequence[Execution],
    position: int,
    executor: Executor,
    workers: WorkerTable,
    emit: Emit,
) -> None:
    """Bring one stage up to date, of one run or of several runs with the same models.

    Several runs share a stage of the workers: its model is loaded once, and the last tasks of one
    run are done beside the first ones of the next.

    Raises:
        VirNucProError: whatever ends a run; what was committed before stays valid.
    """
    started = time.perf_counter()
    with ExitStack() as stack:
        planned = [execution.plan(position, emit) for execution in executions]
        for item in planned:
            stack.enter_context(item.spans)
        stage = planned[0].stage if len(planned) == 1 else _shared(planned)
        emit(_started(planned, position, stage))
        owners = {task.inputs: item for item in planned for task in item.spans.todo}
        todo = [task for item in planned for task in item.spans.todo]
        for result in executor.run(stage, todo, workers.show):
            owners[result.task.inputs].add(result, emit)
        elapsed = time.perf_counter() - started
        total = sum(item.weight for item in planned)
        for item in planned:
            share = item.weight / total if total else 1 / len(planned)
            item.end(elapsed * share, emit)
    number = executions[0].run.stages_before + position + 1
    emit(StageFinished(stage.name, number, time.perf_counter() - started))


def carry_out_embedding(
    executions: Sequence[Execution], executor: Executor, workers: WorkerTable, emit: Emit
) -> None:
    """Carry out the stages of the workers, of one run or of several with the same models.

    Where features are not kept, what reads them is done, too, for one window after the other.

    Raises:
        VirNucProError: whatever ends a run; what was committed before stays valid.
    """
    stages = executions[0].run.stages
    for execution in executions:
        run = execution.run
        execution.windows = feature_windows(
            run.layout, run.stages, run.features, execution.ledger, emit
        )
    kept = [execution for execution in executions if execution.windows is None]
    for position in embedding_positions(stages) if kept else ():
        carry_out_stage(kept, position, executor, workers, emit)
    while window := _next_window(executions, workers.budgets):
        members = [execution for execution, _ in window]
        for position, stage in enumerate(stages):
            if stage.runs_on == "worker":
                carry_out_stage(members, position, executor, workers, emit)
            elif stage.in_windows:
                for member in members:
                    carry_out_stage([member], position, executor, workers, emit)
        for _, windows in window:
            windows.end()


def _next_window(
    executions: Sequence[Execution], budgets: Mapping[str, int]
) -> list[tuple[Execution, FeatureWindows]]:
    """Return the runs that have files in the next window; none after the last one."""
    window: list[tuple[Execution, FeatureWindows]] = []
    room = 0
    for execution in executions:
        if (windows := execution.windows) is None:
            continue
        room = room if window else windows.most_frames()
        if taken := windows.begin(room, budgets, first=not window):
            window.append((execution, windows))
            room -= taken
    return window


def _shared(planned: Sequence[PlannedStage]) -> SharedStage:
    first = planned[0].stage
    owners = {}
    for item in planned:
        assert isinstance(item.stage, SpannedStage)
        owners.update({task.inputs: item.stage for task in item.tasks})
    opened = first.with_tasks([task for item in planned for task in item.tasks])
    return SharedStage(opened, owners)


def _started(planned: Sequence[PlannedStage], position: int, stage: Stage) -> StageStarted:
    """Return the event that a stage begins, with what is to do in all of its runs."""
    run = planned[0].execution.run
    todo = [task for item in planned for task in item.spans.todo]
    return StageStarted(
        stage.name,
        run.stages_before + position + 1,
        sum(len(item.tasks) for item in planned),
        len(todo),
        sum(task.count for task in todo),
        sum(task.weight for task in todo),
        tuple(dict.fromkeys(reason for item in planned for reason in item.reasons)),
        sum(item.spans.files for item in planned),
        title=stage.title,
        stages=run.stages_in_all or len(run.stages),
        on_workers=stage.runs_on == "worker",
        ahead=tuple(stage for item in planned for stage in item.execution.ahead(position)),
    )


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
