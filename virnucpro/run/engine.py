"""The engine: takes runs through their stages, and decides what of each stage is still to do.

Of each stage it plans the tasks, asks the ledger which have no valid receipt, has the executor
carry those out, and accepts each result. An interrupted run continues exactly where it stopped.
Several runs with the same models share the stages of the workers: each model is loaded once.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from virnucpro.contracts import SPLITTING, Task
from virnucpro.errors import OutputError
from virnucpro.events import Emit, Notice, StageAhead, StageFinished, StageStarted
from virnucpro.executors.executor import Executor
from virnucpro.formatting import byte_size, counted
from virnucpro.layout import MOLECULES, Layout, receipt_beside
from virnucpro.run.run import Run, sweep
from virnucpro.run.workers import WorkerTable
from virnucpro.store.disk import AGAIN
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
    layout, ledger = run.layout, run.ledger
    patterns = [layout.features(s.kind, "{number}") if s.kind else s.pattern for s in run.stages]
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
    listed = sealed({"command": run.command, "stages": rows})  # for ``virnucpro status``
    run.disk.save(layout.stage_list, listed, durable=False)
    if is_new_legacy_run(layout):
        for stage in run.stages:
            for text in stage.take_over():
                emit(Notice("warning", text))
        ledger.store()  # from here on it is a run of this version
    # Features are gone before all files have scores.
    if ledger.removed and not layout.has_scores() and (reason := _distrusted(run)):
        text = "the intermediate files of the finished run, since removed, are needed again"
        emit(Notice("warning", f"{text}: {reason}"))
        ledger.forget_removed()
    for position in range(run.embedding.start):
        carry_out_stage([run], position, executor, emit)


def embed(runs: Sequence[Run], executor: Executor, emit: Emit) -> None:
    """Bring the stages of the workers up to date, and keep what the workers report.

    Where features are not kept, what reads them is done, too, for some split files after the
    other, so that the features of few files exist at the same time.
    """
    if not runs:
        return
    workers = WorkerTable(runs, emit)
    for run in runs:
        run.unscored = files_to_score(run, emit)
    if kept := [run for run in runs if run.unscored is None]:
        for position in runs[0].embedding:
            carry_out_stage(kept, position, executor, workers.show)
    by_file = [n for n, stage in enumerate(runs[0].stages) if stage.by_file() is not None]
    while window := next_window(runs):
        for position in by_file:
            carry_out_stage(list(window), position, executor, workers.show, window)
        for run, files in window.items():
            drop_features(run, files)
    for run in runs:
        run.workers = list(workers.rows.values())


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
    runs: Sequence[Run], position: int, executor: Executor, emit: Emit, files: Files | None = None
) -> None:
    """Bring one stage up to date, of one run or of several; of ``files`` only, where given.

    The last tasks of one run are done beside the first ones of the next.
    """
    started = time.perf_counter()
    stages = [run.stages[position] for run in runs]
    if files is not None:
        stages = [stage.by_file() or stage for stage in stages]
    owners: dict[Path, Run] = {}
    planned, todo = list[Task](), list[Task]()
    sequences, reasons, weights = 0, Counter[str](), Counter[Run]()
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
            stages=len(runs[0].stages),
            on_workers=stage.runs_on == "worker",
            ahead=tuple(each for run in runs for each in stages_ahead(run, position, files)),
        )
    )
    for result in executor.run(stage, todo, emit):
        run = owners[result.task.receipt]
        run.ledger.accept(result, durable=stage.durable)
        run.computed[stage.name] += 1
        if waited := result.figures.host_wait_seconds:
            run.host_wait[stage.name] += waited
    elapsed = time.perf_counter() - started
    total = weights.total()
    for run, weight in weights.items():
        run.seconds[stage.name] += elapsed * (weight / total if total else 1 / len(runs))
    for task in planned:
        for notice in owners[task.receipt].ledger.figures(task.receipt).notices:
            emit(Notice("warning", notice))
    emit(StageFinished(stage.name, position + 1, elapsed))


def stages_ahead(run: Run, position: int, window: Files | None) -> list[StageAhead]:
    """Return what is to do behind the stage at ``position``, or behind its part for a ``window``.

    Of an embedding stage that is the number of sequences, of a stage of the host the seconds.
    Before the frames are counted, nothing is known.
    """
    seconds = {receipt.stage: receipt.seconds for receipt in run.ledger.receipts.values()}
    frames = run.frames if SPLITTING in seconds else []
    files = None if window is None else window[run]
    ahead = []
    for number, stage in enumerate(run.stages):
        if files is not None and stage.runs_on == "worker":
            left = [*(run.unscored or ()), *(files if number > position else ())]
            ahead.append(StageAhead(stage.name, sum(frames[each - 1] for each in left)))
        elif files is not None or number <= position:
            continue
        elif SPLITTING not in seconds:
            ahead.append(StageAhead(stage.name))
        elif stage.runs_on == "worker":
            tasks = (task for task in stage.plan(run.ledger) if not task.receipt.exists())
            ahead.append(StageAhead(stage.name, sum(task.count for task in tasks)))
        else:
            share = SHARES_OF_TRANSLATION.get(stage.name)  # only a prediction has translation
            ahead.append(
                StageAhead(stage.name, seconds=share and share * seconds.get("translation", 0.0))
            )
    return [*ahead, *run.others_ahead]


# --- runs that do not keep features: which split files are embedded and scored together. Only the
# features of some exist at the same time. When these files have scores, their features are removed,
# and their receipts are kept, as those of a finished run are. No result depends on which files go
# together.

# The features that exist at the same time take an eighth of the free space, and are those of at
# most so many frames: 27 GB with the released models. They take minutes to embed on eight GPUs, and
# models seconds to load, once for them.
SHARE = 1 / 8
MOST_FRAMES = 1_000_000


def files_to_score(run: Run, emit: Emit) -> list[int] | None:
    """Return the split files without scores, of a run that drops features; None for any other.

    Those are runs that are asked to, those whose features the disk cannot hold, and those of which
    an earlier start has scored files. To be called when the split files are there.
    """
    begun = run.layout.has_scores()
    if not run.bytes_per_frame or (run.features == "kept" and not begun):
        return None
    free = shutil.disk_usage(run.layout.root).free
    if run.features != "dropped" and not begun and missing_bytes(run) <= free:
        return None
    files = proved = embedded = set(range(1, len(run.frames) + 1))
    for stage in run.stages:
        if own := stage.by_file():
            embedded, tasks = proved, own.plan(run.ledger)
            proved = {number for number in proved if not run.ledger.check(tasks[number - 1])}
            last = stage
    pending = sorted(files - proved)
    if embedded == files and not run.ledger.check(*last.plan(run.ledger)):
        pending = []  # the table of predictions itself is proved
    if not files or not (pending or begun):
        return None
    features = (path for number in pending for path in _features(run.layout, number))
    run.ledger.forget_removed(frozenset(features))
    if pending:
        most = min(MOST_FRAMES, int(free * SHARE / run.bytes_per_frame))
        frames = sum(run.frames)
        emit(
            Notice(
                "info",
                f"the features of {counted(frames, 'frame')} take "
                f"{byte_size(frames * run.bytes_per_frame)} ({byte_size(free)} are free): they are "
                f"not kept, but removed when they are scored, at most {most:,} at a time",
            )
        )
    return pending


def missing_bytes(run: Run) -> int:
    """Return what the features of a run still take on the disk, where all are kept."""
    folders = *run.layout.folders.values(), run.layout.merged_folder
    present = sum(path.stat().st_size for folder in folders for path in folder.rglob("*.pt"))
    return max(0, sum(run.frames) * run.bytes_per_frame - present)


def require_space(run: Run, needed: int, frames: int) -> None:
    """Raise OutputError where the disk does not have the bytes that the features of frames need."""
    free = shutil.disk_usage(run.layout.root).free
    if needed > free:
        raise OutputError(
            f"{run.layout.root} has {byte_size(free)} free, but the features of "
            f"{counted(frames, 'frame')} need {byte_size(needed)}: free some space or move the "
            f"folder, then {AGAIN}"
        )


def next_window(runs: Sequence[Run]) -> dict[Run, list[int]]:
    """Take the next split files to score together, by run; none after the last ones."""
    window: dict[Run, list[int]] = {}
    room = 0
    for run in (run for run in runs if run.unscored):
        frames, taken = run.frames, list[int]()
        if not window:
            free = shutil.disk_usage(run.layout.root).free
            room = min(MOST_FRAMES, int(free * SHARE / run.bytes_per_frame))
        while run.unscored and (frames[run.unscored[0] - 1] <= room or not (window or taken)):
            taken.append(run.unscored.pop(0))
            room -= frames[taken[-1] - 1]
        if taken:
            window[run] = taken
            count = sum(frames[number - 1] for number in taken)
            require_space(run, count * run.bytes_per_frame, count)
    return window


def drop_features(run: Run, files: Sequence[int]) -> None:
    """Remove the features of scored split files, but for files of which a sequence failed."""
    receipts = run.ledger.receipts
    removed = []
    for number in files:
        paths = map(receipt_beside, _features(run.layout, number))
        of_file = [(path, receipts[path]) for path in paths if path in receipts]
        if not any(receipt.figures.failed for _, receipt in of_file):
            removed += of_file
    run.ledger.remove(removed)


def _features(layout: Layout, number: int) -> list[Path]:
    """Return the feature files of a split file, whether they exist or not."""
    return [layout.features(kind, number) for kind in (*MOLECULES, "merged")]
