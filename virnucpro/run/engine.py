"""The engine: takes runs through their stages, and decides what of each stage is still to do.

Of each stage it plans the tasks, asks the ledger which have no valid receipt, has the executor
carry those out on the workers, or does so itself, and accepts each result. An interrupted run
continues exactly where it stopped. Several runs with the same models share the stages of the
workers: each model is loaded once.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from virnucpro.contracts import ReportProgress, Stage, Task, TaskResult
from virnucpro.errors import OutputError
from virnucpro.events import (
    Emit,
    Notice,
    Progressed,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
)
from virnucpro.executors.executor import Executor
from virnucpro.executors.worker import ProgressReporter, set_torch_threads
from virnucpro.formatting import byte_size, counted
from virnucpro.run.run import Run, sweep
from virnucpro.run.workers import WorkerTable
from virnucpro.stages.prediction import MergingStage
from virnucpro.store.disk import AGAIN
from virnucpro.store.ledger import UNFINISHED
from virnucpro.store.legacy import is_new_legacy_run
from virnucpro.store.work import write_state

HOST_THREAD = "host"


def execute(runs: Sequence[Run], executor: Executor, emit: Emit) -> None:
    """Bring every stage of runs with the same models up to date."""
    for run in runs:
        begin(run, executor, emit)
    embed_runs(runs, executor, emit)
    for run in runs:
        conclude(run, executor, emit)


def begin(run: Run, executor: Executor, emit: Emit) -> None:
    """Write the state of a run, and bring its stages before the embedding up to date."""
    sweep(run)
    layout, ledger = run.layout, run.ledger
    patterns = [stage.pattern for stage in run.stages]
    rows = [
        {
            "name": stage.name,
            "title": stage.title,
            "embeds": stage.runs_on == "worker",
            "reads_intermediate": stage.reads_intermediate,
            "file_pattern": pattern and pattern.relative_to(layout.root).as_posix(),
        }
        for stage, pattern in zip(run.stages, patterns, strict=True)
    ]
    run.state = replace(run.state, stages=rows)
    write_state(layout, run.disk, run.state)
    if is_new_legacy_run(layout):
        for stage in run.stages:
            for text in stage.take_over():
                emit(Notice("warning", text))
        ledger.store()  # from here on it is a run of this version
    if ledger.removed and (reason := _distrusted(run)):
        text = "the intermediate files of the finished run, since removed, are needed again"
        emit(Notice("warning", f"{text}: {reason}"))
        ledger.forget_removed()
    for position in range(run.embedding.start):
        carry_out_stage([run], position, executor, emit)


def embed_runs(runs: Sequence[Run], executor: Executor, emit: Emit) -> None:
    """Bring the stages of the workers up to date, and keep what the workers report.

    A split file is merged and scored as soon as all its features are there, in a thread of this
    process beside the workers. Features that nobody wants to keep are removed then.
    """
    if not runs:
        return
    stages = ((run, stage) for run in runs for stage in run.stages)
    merging = {run: stage for run, stage in stages if isinstance(stage, MergingStage)}
    for run, stage in merging.items():
        for task in [] if run.keeps_features else stage.plan(run.ledger):
            if not run.ledger.check(task):  # its features may be gone
                run.ledger.forgo(task.reads)
    workers, last = WorkerTable(runs, emit), runs[0].embedding[-1]
    for position in runs[0].embedding[:-1]:
        carry_out_stage(runs, position, executor, workers.show)
    with ThreadPoolExecutor(1, HOST_THREAD, set_torch_threads, (1,)) as thread:
        scored: deque[tuple[Run, Future[TaskResult]]] = deque()

        def score(run: Run, number: int) -> None:
            """Begin to score a split file, and accept what has come of others."""
            if stage := merging.get(run):
                task = stage.task(run.ledger, number)
                if run.ledger.check(task):
                    run.ledger.reopen(task)
                    scored.append((run, thread.submit(timed_run, stage, task, lambda *_: None)))
            while scored and scored[0][1].done():
                accept_scores(*scored.popleft())

        try:
            carry_out_stage(runs, last, executor, workers.show, score)
            for run, future in scored:
                accept_scores(run, future)
        finally:
            thread.shutdown(cancel_futures=True)
    for run in runs:
        run.workers = list(workers.rows.values())


def accept_scores(run: Run, future: Future[TaskResult]) -> None:
    """Accept the scores of a split file, and remove its features unless a sequence of it failed."""
    result = future.result()
    run.ledger.accept(result)
    run.computed[result.task.stage] += 1
    if not run.keeps_features and not result.task.params["failed"]:
        for path in result.task.reads:
            run.disk.remove(path)
        run.ledger.forgo(result.task.reads)


def conclude(run: Run, executor: Executor, emit: Emit) -> None:
    """Bring the stages behind the embedding up to date."""
    with run.disk.together():
        for position in range(run.embedding.stop, len(run.stages)):
            carry_out_stage([run], position, executor, emit)


def _distrusted(run: Run) -> str | None:
    """Return why the files that a finished run kept do not suffice; None where they do.

    After the intermediate files are removed, only the stages behind them can be done again,
    and only where their inputs exist.
    """
    for stage in run.stages:
        found = [(task, run.ledger.check(task)) for task in stage.plan(run.ledger)]
        stale = [(task, reason) for task, reason in found if reason]
        if stale:
            complete = all(path.exists() for task, _ in stale for path in task.inputs)
            return None if complete and not stage.intermediate else stale[0][1]
    return None


def carry_out_stage(
    runs: Sequence[Run],
    position: int,
    executor: Executor,
    emit: Emit,
    then: Callable[[Run, int], None] | None = None,
) -> None:
    """Bring one stage up to date, of one run or of several.

    The last tasks of one run are done beside the first ones of the next. ``then`` is called with
    the number, from 1, of each task that was carried out.
    """
    started = time.perf_counter()
    stages = [run.stages[position] for run in runs]
    owners: dict[Path, tuple[Run, int]] = {}
    planned, todo = list[Task](), list[Task]()
    sequences, reasons, weights = 0, Counter[str](), Counter[Run]()
    for run, stage in zip(runs, stages, strict=True):
        tasks = stage.plan(run.ledger)
        sequences += sum(task.count for task in tasks)
        found = [(task, run.ledger.check(task)) for task in tasks]
        stale = [task for task, reason in found if reason]
        reasons.update(reason for _, reason in found if reason not in ("", UNFINISHED))
        if stale and stage.runs_on == "worker" and run.bytes_per_frame:
            require_space(run)
        planned += tasks
        for task in stale:
            run.ledger.reopen(task)
        todo += stale
        owners |= {task.receipt: (run, number) for number, task in enumerate(tasks, 1)}
        weights[run] = sum(task.weight for task in stale)
    stage = stages[0]
    if stage.runs_on == "worker":
        budgets = {name: n for run in runs for name, n in run.state.budgets.items()}
        stage = stage.opened_for(sequences, budgets)
    rest = runs[0].stages[position + 1 :]
    ahead = [each.name for each in rest if each.runs_on == "worker"]
    emit(
        StageStarted(
            stage.name,
            position + 1,
            len(todo),
            sum(task.count for task in todo),
            tuple(f"{reason} ({count}x)" for reason, count in reasons.most_common(3)),
            title=stage.title,
            stages=len(runs[0].stages),
            on_workers=stage.runs_on == "worker",
            ahead=ahead,
        )
    )
    if stage.runs_on == "host":
        set_torch_threads(executor.host_threads)
        results = run_on_host(stage, todo, emit)
    else:
        results = executor.run(stage, todo, emit)
    for result in results:
        run, number = owners[result.task.receipt]
        run.ledger.accept(result, durable=stage.durable)
        run.computed[stage.name] += 1
        if waited := result.figures.host_wait_seconds:
            run.host_wait[stage.name] += waited
        if then:
            then(run, number)
    elapsed = time.perf_counter() - started
    total = weights.total()
    for run, weight in weights.items():
        run.seconds[stage.name] += elapsed * (weight / total if total else 1 / len(runs))
    for task in planned:
        for notice in owners[task.receipt][0].ledger.figures(task.receipt).notices:
            emit(Notice("warning", notice))
    emit(StageFinished(stage.name, position + 1, elapsed))


def run_on_host(stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[TaskResult]:
    """Carry out the tasks of a stage of the host one after the other. Any error ends the run."""
    for task in tasks:
        emit(TaskStarted(0, task))
        report = ProgressReporter(lambda *counts: emit(Progressed(0, *counts)))
        result = timed_run(stage, task, report)
        report.flush()
        emit(TaskFinished(0, task, result.seconds))
        yield result


def timed_run(stage: Stage, task: Task, report: ReportProgress) -> TaskResult:
    """Carry out a task of a stage of the host, and note how long that took."""
    started = time.perf_counter()
    result = stage.run(task, report)
    return replace(result, seconds=time.perf_counter() - started)


def missing_bytes(run: Run) -> int:
    """Return what the features of a run still take on the disk, those apart that are scored."""
    folders = *run.layout.folders.values(), run.layout.merged_folder
    present = sum(path.stat().st_size for folder in folders for path in folder.rglob("*.pt"))
    frames = sum(
        count
        for number, count in enumerate(run.frames, 1)
        if run.layout.features("nucleotide", number) not in run.ledger.forgone
    )
    return max(0, frames * run.bytes_per_frame - present)


def require_space(run: Run) -> None:
    """Raise OutputError where the disk does not have the bytes that features still need."""
    free, needed = shutil.disk_usage(run.layout.root).free, missing_bytes(run)
    if needed > free:
        raise OutputError(
            f"{run.layout.root} has {byte_size(free)} free, but the features of "
            f"{counted(sum(run.frames), 'frame')} need {byte_size(needed)} more: free some space "
            f"or move the folder, then {AGAIN}"
        )
