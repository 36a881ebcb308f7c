"""The engine: takes runs through their stages, and decides what of each stage is still to do.

Of each stage it plans the tasks, asks the ledger which have no valid receipt, has the executor
carry those out, and accepts each result. An interrupted run continues exactly where it stopped.
Several runs with the same models share the stages of the workers: each model is loaded once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from virnucpro.contracts import SPLITTING, Task
from virnucpro.events import Emit, Notice, StageAhead, StageFinished, StageStarted
from virnucpro.executors.executor import Executor
from virnucpro.run.features import (
    drop_features,
    files_to_score,
    missing_bytes,
    next_window,
    require_space,
)
from virnucpro.run.run import Run, sweep
from virnucpro.run.workers import WorkerTable
from virnucpro.store.documents import sealed
from virnucpro.store.ledger import UNFINISHED
from virnucpro.store.legacy import is_new_legacy_run

# What later stages of the host take of the time that translation took in this run, measured with
# model type lite on two cores of a shared machine. Embedding takes much longer than all of them.
SHARES_OF_TRANSLATION = {"merging": 1.25, "prediction": 1.1, "consensus": 0.15, "output": 0.4}

Files = Mapping[Run, Sequence[int]]
"""The numbers of split files that are embedded and scored together, by run."""


def execute(runs: Sequence[Run], executor: Executor, emit: Emit) -> None:
    """Bring every stage of runs with the same models up to date."""
    for run in runs:
        begin(run, executor, emit)
    embed(runs, executor, emit)
    for run in runs:
        conclude(run, executor, emit)


def begin(run: Run, executor: Executor, emit: Emit) -> None:
    """Bring the stages before the embedding up to date."""
    sweep(run)
    root, ledger = run.layout.root, run.ledger
    rows = [
        {
            "name": stage.name,
            "title": stage.title,
            "embeds": stage.runs_on == "worker",
            "reads_intermediate": stage.reads_intermediate,
            "file_pattern": stage.file_pattern and stage.file_pattern.relative_to(root).as_posix(),
        }
        for stage in run.stages
    ]
    listed = sealed({"command": run.command, "stages": rows})  # for ``virnucpro status``
    run.disk.save(run.layout.stage_list, listed, durable=False)
    if is_new_legacy_run(run.layout):
        for text in (text for stage in run.stages for text in stage.take_over()):
            emit(Notice("warning", text))
        ledger.store()  # from here on it is a run of this version
    begun = run.layout.score_files()  # features are gone before all files have scores
    if ledger.removed and not begun and (reason := _distrusted(run)):
        text = "the intermediate files of the finished run, since removed, are needed again"
        emit(Notice("warning", f"{text}: {reason}"))
        ledger.forget_removed()
    for position in range(_embedding(run).start):
        carry_out_stage([run], position, executor, emit)


def embed(runs: Sequence[Run], executor: Executor, emit: Emit) -> None:
    """Bring the stages of the workers up to date, and keep what the workers report.

    Where features are not kept, what reads them is done, too, for some split files after the
    other, so that the features of few files exist at the same time.
    """
    if not runs:
        return
    workers = WorkerTable(runs, emit)
    stages = runs[0].stages
    for run in runs:
        run.unscored = files_to_score(run, emit)
    if kept := [run for run in runs if run.unscored is None]:
        for position in _embedding(runs[0]):
            carry_out_stage(kept, position, executor, workers.show)
    by_file = [n for n, stage in enumerate(stages) if stage.by_file() is not None]
    while window := next_window(runs):
        for position in by_file:
            if stages[position].runs_on == "worker":
                carry_out_stage(list(window), position, executor, workers.show, window)
                continue
            for run in window:
                carry_out_stage([run], position, executor, workers.show, window)
        for run, files in window.items():
            drop_features(run, files)
    for run in runs:
        run.workers = list(workers.rows.values())


def conclude(run: Run, executor: Executor, emit: Emit) -> None:
    """Bring the stages behind the embedding up to date."""
    with run.disk.together():
        for position in range(_embedding(run).stop, len(run.stages)):
            carry_out_stage([run], position, executor, emit)


def _embedding(run: Run) -> range:
    """Return the positions of the stages of the workers, which follow each other."""
    positions = [n for n, stage in enumerate(run.stages) if stage.runs_on == "worker"]
    return range(positions[0], positions[-1] + 1)


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
    files: Files | None = None,
) -> None:
    """Bring one stage up to date, of one run or of several; of ``files`` only, where given.

    The last tasks of one run are done beside the first ones of the next.
    """
    started = time.perf_counter()
    stages = [run.stages[position] for run in runs]
    if files is not None:
        stages = [stage.by_file() or stage for stage in stages]
    planned: list[Task] = []
    owners: dict[Path, Run] = {}
    todo: list[Task] = []
    reasons: Counter[str] = Counter()
    weights: dict[Run, int] = {}
    sequences = 0
    for run, stage in zip(runs, stages, strict=True):
        tasks = stage.plan(run.ledger)
        sequences += sum(task.count for task in tasks)
        if files is not None:
            tasks = [tasks[number - 1] for number in files[run]]
        found = [(task, run.ledger.check(task)) for task in tasks]
        stale = [task for task, reason in found if reason]
        reasons.update(reason for _, reason in found if reason not in ("", UNFINISHED))
        if stale and run.unscored is None and stage.bytes_per_frame:
            require_space(run, missing_bytes(run), sum(run.frames))
        planned += tasks
        for task in stale:
            run.ledger.reopen(task)
        todo += stale
        owners |= {task.receipt: run for task in tasks}
        weights[run] = sum(task.weight for task in stale)
    stage = stages[0]
    if stage.runs_on == "worker":
        budgets = {name: n for run in runs for name, n in run.state.budgets.items()}
        stage = stage.opened_for(sequences, budgets)
    first = runs[0]
    emit(
        StageStarted(
            stage.name,
            position + 1,
            len(planned),
            len(todo),
            sum(task.count for task in todo),
            sum(task.weight for task in todo),
            tuple(f"{reason} ({count}x)" for reason, count in reasons.most_common(3)),
            title=stage.title,
            stages=len(first.stages),
            on_workers=stage.runs_on == "worker",
            ahead=tuple(
                item
                for run in runs
                for item in stages_ahead(run, position, None if files is None else files[run])
            ),
        )
    )
    for result in executor.run(stage, todo, emit):
        run = owners[result.task.receipt]
        run.ledger.accept(result, durable=stage.durable)
        run.computed[stage.name] += 1
        if waited := result.figures.host_wait_seconds:
            run.host_wait[stage.name] += waited
    elapsed = time.perf_counter() - started
    total = sum(weights.values())
    for run, weight in weights.items():
        run.seconds[stage.name] += elapsed * (weight / total if total else 1 / len(runs))
    for task in planned:
        for notice in owners[task.receipt].ledger.figures(task.receipt).notices:
            emit(Notice("warning", notice))
    emit(StageFinished(stage.name, position + 1, elapsed))


def stages_ahead(run: Run, position: int, files: Sequence[int] | None) -> list[StageAhead]:
    """Return what is to do behind the stage at ``position``, or behind its part for ``files``.

    Of an embedding stage that is the number of sequences, of a stage of the host the seconds.
    Before the frames are counted, nothing is known.
    """
    receipts = {receipt.stage: receipt for _, receipt in run.ledger.receipts()}
    frames = run.frames if SPLITTING in receipts else []
    translation = receipts.get("translation")
    seconds = translation.seconds if translation else 0.0  # there is none without a prediction
    ahead = []
    for number, stage in enumerate(run.stages):
        if files is not None and stage.runs_on == "worker":
            left = [*(run.unscored or ()), *(files if number > position else ())]
            ahead.append(StageAhead(stage.name, sum(frames[each - 1] for each in left)))
        elif files is not None or number <= position:
            continue
        elif SPLITTING not in receipts:
            ahead.append(StageAhead(stage.name))
        elif stage.runs_on == "worker":
            tasks = (task for task in stage.plan(run.ledger) if not task.receipt.exists())
            ahead.append(StageAhead(stage.name, sum(task.count for task in tasks)))
        else:
            share = SHARES_OF_TRANSLATION.get(stage.name)
            ahead.append(StageAhead(stage.name, seconds=share and share * seconds))
    return [*ahead, *run.others_ahead]
