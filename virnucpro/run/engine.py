"""The engine: takes runs through their stages, and decides what of each stage is still to do.

Of each stage it plans the tasks, asks the ledger which have no valid receipt, has the executor
carry those out, and accepts each result. An interrupted run continues exactly where it stopped.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from virnucpro.contracts import Stage, Task
from virnucpro.events import Emit, Notice, StageAhead, StageFinished, StageStarted
from virnucpro.executors.executor import Executor
from virnucpro.layout import Layout
from virnucpro.run.features import (
    Features,
    check_window,
    drop_features,
    files_to_score,
    frames_of_files,
    frames_per_window,
)
from virnucpro.run.files import check_space, sweep
from virnucpro.run.forecast import stages_ahead
from virnucpro.run.record import RunOutcome, WorkerTable
from virnucpro.run.status import write_stage_list
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger
from virnucpro.store.legacy import is_new_legacy_run
from virnucpro.store.stamps import HashedFile
from virnucpro.store.state import RunState, check_run, read_state, write_state


@dataclass(eq=False)
class Run:
    """One input on its way through all stages; everything that the engine has to know of it.

    Attributes:
        layout: every path of the run.
        disk: what writes.
        stages: all stages, in order.
        state: what the results depend on, and the batch budgets of an earlier start.
        inputs: the files that are read and that no stage writes, as they were hashed.
        command: what continues the run when it is interrupted.
        stages_before: stages of other runs that the same command counts before these.
        stages_in_all: stages that the command counts in all; 0 for those of this run.
        runs_ahead: stages of other runs that the same command has still to do after these.
        features: whether they are kept until the end, or dropped as soon as they are scored;
            ``auto`` drops them where the disk cannot hold them.
        ledger: the receipts, from :meth:`begin` on.
        outcome: what was done so far, from :meth:`begin` on.
        unscored: where features are dropped, the split files that have no scores yet.
    """

    layout: Layout
    disk: Disk
    stages: Sequence[Stage]
    state: RunState
    inputs: Sequence[HashedFile] = ()
    command: str = "predict"
    stages_before: int = 0
    stages_in_all: int = 0
    runs_ahead: tuple[StageAhead, ...] = ()
    features: Features = "kept"
    ledger: Ledger = field(init=False)
    outcome: RunOutcome = field(init=False)
    unscored: list[int] | None = field(init=False, default=None)
    _space_checked: bool = field(init=False, default=False)

    def begin(self, emit: Emit) -> None:
        """Remove what killed processes left, and see what of a finished run can be relied on."""
        sweep(self.layout, self.disk)
        write_stage_list(self.layout, self.disk, self.command, self.stages)
        digests = {file.path: file.sha256 for file in self.inputs}
        self.ledger = Ledger(self.layout, self.disk, digests)
        self.outcome = RunOutcome(self.ledger)
        if is_new_legacy_run(self.layout):
            for text in (text for stage in self.stages for text in stage.take_over()):
                emit(Notice("warning", text))
            self.ledger.store()  # from here on it is a run of this version
        begun = self.layout.score_files()  # features are gone before all files have scores
        if self.ledger.has_removed_outputs and not begun and (reason := self._distrusted()):
            text = "the intermediate files of the finished run, since removed, are needed again"
            emit(Notice("warning", f"{text}: {reason}"))
            self.ledger.forget_removed()

    def check_space_once(self, stage: Stage, emit: Emit) -> None:
        """Check the disk before the first stage that needs much of it."""
        if stage.disk_need(self.ledger) and self.unscored is None and not self._space_checked:
            check_space(self.layout, self.stages, self.ledger, emit)
            self._space_checked = True

    def _distrusted(self) -> str | None:
        """Return why the files that a finished run kept do not suffice; None where they do.

        After the intermediate files are removed, only the stages behind them can be done again,
        and only where their inputs exist.
        """
        for stage in self.stages:
            found = [(task, self.ledger.check(task)) for task in stage.plan(self.ledger)]
            stale = [(task, reason) for task, reason in found if reason]
            if stale:
                complete = all(path.exists() for task, _ in stale for path in task.inputs)
                return None if complete and not stage.intermediate else stale[0][1]
        return None


def checked_state(
    layout: Layout, disk: Disk, state: RunState, emit: Emit, *, resume: bool, force: bool
) -> RunState:
    """Write the state of a run, with the batch budgets of an earlier start, and return it.

    Raises:
        ResumeRefusedError: the existing files were made from something else.
        UsageError: files would be overwritten that this run did not write.
    """
    admission = check_run(layout, disk, state, resume=resume, force=force)
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
    run.begin(emit)
    workers = noted_workers([run], emit)
    embedding = embedding_positions(run.stages)
    for position in range(embedding.start):
        carry_out_stage([run], position, executor, workers, emit)
    if embedding:
        carry_out_embedding([run], executor, workers, emit)
    with run.disk.together():
        for position in range(embedding.stop, len(run.stages)):
            carry_out_stage([run], position, executor, workers, emit)
    run.outcome.note_workers(workers)
    return run.outcome


def embedding_positions(stages: Sequence[Stage]) -> range:
    """Return the positions of the stages of the workers, which follow each other."""
    positions = [n for n, stage in enumerate(stages) if stage.runs_on == "worker"]
    return range(positions[0], positions[-1] + 1) if positions else range(0)


def noted_workers(runs: Sequence[Run], emit: Emit) -> WorkerTable:
    """Return what takes note of the workers of one run, or of several that share them.

    Batch budgets that are measured are kept with each of the runs.
    """

    def save(budgets: Mapping[str, int]) -> None:
        for run in runs:
            write_state(run.layout, run.disk, replace(run.state, budgets=budgets))

    known = {name: n for run in runs for name, n in run.state.budgets.items()}
    return WorkerTable(known, save, emit)


def carry_out_stage(
    runs: Sequence[Run],
    position: int,
    executor: Executor,
    workers: WorkerTable,
    emit: Emit,
    files: Mapping[Run, Sequence[int]] | None = None,
) -> None:
    """Bring one stage up to date, of one run or of several runs with the same models.

    Several runs share a stage of the workers: its model is loaded once, and the last tasks of one
    run are done beside the first ones of the next. With ``files``, only the tasks of those split
    files are carried out, by the stage that works file by file.

    Raises:
        VirNucProError: whatever ends a run; what was committed before stays valid.
    """
    started = time.perf_counter()
    planned = [_planned(run, position, None if files is None else files[run], emit) for run in runs]
    stage = planned[0].stage
    if stage.runs_on == "worker":
        stage = stage.opened_for(sum(item.sequences for item in planned), workers.budgets)
    ahead = tuple(item for run in runs for item in _ahead(run, position, files))
    emit(_started(planned, position, stage, ahead))
    todo = [task for item in planned for task in item.todo]
    owners = {task.receipt: item.run for item in planned for task in item.todo}
    for result in executor.run(stage, todo, workers.show):
        run = owners[result.task.receipt]
        run.ledger.accept(result, durable=stage.durable)
        run.outcome.add(result)
    elapsed = time.perf_counter() - started
    total = sum(item.weight for item in planned)
    for item in planned:
        share = item.weight / total if total else 1 / len(planned)
        item.run.outcome.add_seconds(stage.name, elapsed * share)
        for task in item.tasks:
            for notice in item.run.ledger.figures(task.receipt).notices:
                emit(Notice("warning", notice))
    emit(StageFinished(stage.name, runs[0].stages_before + position + 1, elapsed))


@dataclass(frozen=True)
class PlannedStage:
    """A stage of a run: all of its tasks, those to do with why, and the sequences of the run."""

    run: Run
    stage: Stage
    tasks: Sequence[Task]
    todo: Sequence[Task]
    reasons: tuple[str, ...]
    sequences: int

    @property
    def weight(self) -> int:
        """The weight of all that is to do."""
        return sum(task.weight for task in self.todo)


def _planned(run: Run, position: int, files: Sequence[int] | None, emit: Emit) -> PlannedStage:
    """Plan a stage of a run, or of it the tasks of some split files; see what is to do."""
    stage = run.stages[position]
    if files is not None:
        stage = stage.by_file() or stage
    tasks = stage.plan(run.ledger)
    sequences = sum(task.count for task in tasks)
    if files is not None:
        tasks = [tasks[number - 1] for number in files]
    found = [run.ledger.check(task) for task in tasks]
    stale = [task for task, reason in zip(tasks, found, strict=True) if reason]
    reasons = Counter(reason for reason in found if reason not in ("", "no receipt"))
    texts = tuple(f"{reason} ({count}x)" for reason, count in reasons.most_common(3))
    if stale:
        run.check_space_once(stage, emit)
    todo = [run.ledger.reopened(task) for task in stale]
    return PlannedStage(run, stage, tasks, todo, texts, sequences)


def _ahead(
    run: Run, position: int, files: Mapping[Run, Sequence[int]] | None
) -> tuple[StageAhead, ...]:
    """Return what is still to do behind a stage."""
    if files is None:
        own = stages_ahead(run.stages[position + 1 :], run.ledger)
    else:
        frames = frames_of_files(run.layout, run.ledger)
        present = sum(frames[number - 1] for number in files[run])
        pending = sum(frames[number - 1] for number in run.unscored or ())
        own = [
            StageAhead(stage.name, pending + (present if number > position else 0))
            for number, stage in enumerate(run.stages)
            if stage.runs_on == "worker"
        ]
    return (*own, *run.runs_ahead)


def _started(
    planned: Sequence[PlannedStage], position: int, stage: Stage, ahead: tuple[StageAhead, ...]
) -> StageStarted:
    """Return the event that a stage begins, with what is to do in all of its runs."""
    run = planned[0].run
    todo = [task for item in planned for task in item.todo]
    return StageStarted(
        stage.name,
        run.stages_before + position + 1,
        sum(len(item.tasks) for item in planned),
        len(todo),
        sum(task.count for task in todo),
        sum(task.weight for task in todo),
        tuple(dict.fromkeys(reason for item in planned for reason in item.reasons)),
        title=stage.title,
        stages=run.stages_in_all or len(run.stages),
        on_workers=stage.runs_on == "worker",
        ahead=ahead,
    )


def carry_out_embedding(
    runs: Sequence[Run], executor: Executor, workers: WorkerTable, emit: Emit
) -> None:
    """Carry out the stages of the workers, of one run or of several with the same models.

    Where features are not kept, what reads them is done, too, for some split files after the
    other, so that the features of few files exist at the same time.

    Raises:
        VirNucProError: whatever ends a run; what was committed before stays valid.
    """
    stages = runs[0].stages
    for run in runs:
        run.unscored = files_to_score(run.layout, run.stages, run.features, run.ledger, emit)
    kept = [run for run in runs if run.unscored is None]
    for position in embedding_positions(stages) if kept else ():
        carry_out_stage(kept, position, executor, workers, emit)
    by_file = [n for n, stage in enumerate(stages) if stage.by_file() is not None]
    while window := _next_window(runs):
        for position in by_file:
            if stages[position].runs_on == "worker":
                carry_out_stage(list(window), position, executor, workers, emit, window)
                continue
            for run in window:
                carry_out_stage([run], position, executor, workers, emit, window)
        for run, files in window.items():
            drop_features(run.layout, run.ledger, files)


def _next_window(runs: Sequence[Run]) -> dict[Run, list[int]]:
    """Take the next split files to score together, by run; none after the last ones.

    Raises:
        OutputError: the disk cannot hold the features of a single file.
    """
    window: dict[Run, list[int]] = {}
    room = 0
    for run in runs:
        if not run.unscored:
            continue
        frames = frames_of_files(run.layout, run.ledger)
        if not window:
            room = frames_per_window(run.layout, run.stages, run.ledger)
        taken: list[int] = []
        while run.unscored:
            rows = frames[run.unscored[0] - 1]
            if rows > room and (window or taken):
                break
            taken.append(run.unscored.pop(0))
            room -= rows
        if taken:
            check_window(run.layout, run.stages, run.ledger, sum(frames[n - 1] for n in taken))
            window[run] = taken
    return window
