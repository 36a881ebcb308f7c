"""One input on its way through all stages: what every part of this folder works on."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from virnucpro.contracts import (
    Json,
    ReportProgress,
    Task,
    TaskFigures,
    TaskResult,
    WorkerStage,
)
from virnucpro.events import (
    Notice,
    Progressed,
    Show,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
)
from virnucpro.layout import Layout
from virnucpro.stages.base import HostStage
from virnucpro.stages.splitting import copies_of
from virnucpro.store.disk import Disk
from virnucpro.store.documents import sealed, stamped
from virnucpro.store.hashed import HashedFile
from virnucpro.store.ledger import UNFINISHED, FileFailure, Ledger
from virnucpro.store.work import (
    RunProgress,
    RunState,
    StageProgress,
    read_progress,
    write_state,
)


@dataclass(frozen=True, kw_only=True)
class FinishedFigures(TaskFigures):
    """What the receipt of a finished run keeps of files that are gone."""

    frames: int = 0
    identical_frames: int | None = None  # None where copies were embedded, too
    feature_files_of_version_1: int = 0


@dataclass(eq=False)
class Run:
    """One input on its way through all stages, and what of it was done so far.

    Attributes:
        stages: all stages, in order.
        state: what the results depend on, and the batch budgets that are known.
        show: takes events to whoever shows them.
        inputs: the files that are read and that no stage writes, as they were hashed.
        kept: what stays of a finished run, and proves it; nothing where all of it stays.
        is_tidied: whether features and other intermediate files are gone, and what the results are
            made from was proved.
        computed: tasks carried out per stage.
        seconds: what stages took.
        host_wait: seconds per stage, summed over workers, in which a device waited for tokens.
        worker_rows: one per worker and stage, for the record of the run.
    """

    layout: Layout
    disk: Disk
    stages: Sequence[HostStage | WorkerStage]
    state: RunState
    show: Show
    inputs: Sequence[HashedFile] = ()
    kept: tuple[Path, ...] = ()
    is_tidied: bool = field(init=False, default=False)
    ledger: Ledger = field(init=False)
    progress: dict[str, StageProgress] = field(init=False)
    computed: Counter[str] = field(init=False, default_factory=Counter)
    seconds: defaultdict[str, float] = field(init=False, default_factory=lambda: defaultdict(float))
    host_wait: dict[str, float] = field(init=False, default_factory=dict)
    worker_rows: list[dict[str, Json]] = field(init=False, default_factory=list)
    _failed: list[Json] = field(init=False, default_factory=list)
    _has_begun: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Begin without any receipt."""
        self.ledger = Ledger(self.layout, self.disk, self.inputs, self.state.decided_by)
        self.progress = {
            stage.name: StageProgress(stage.name, stage.title, isinstance(stage, WorkerStage))
            for stage in self.stages
        }

    def begin(self) -> None:
        """Remove what killed processes left, record what the run depends on, and look for its end.

        Where the files that are kept prove that the run is finished, it is tidied; else it is said
        why such a run has to begin again.
        """
        sweep(self.layout, self.disk)
        write_state(self.layout, self.disk, self.state)
        if self.kept:
            task = self._as_a_whole()
            reason = self.ledger.reason(task)
            self.is_tidied = not reason
            if self.is_tidied and (earlier := read_progress(self.layout)):
                self.progress = {row.stage: row for row in earlier.stages}
            if reason and reason != UNFINISHED:
                text = "the intermediate files of the finished run, since removed, are needed again"
                self.show(Notice("warning", f"{text}: {reason}"))
                self.disk.remove(task.receipt)
        self._has_begun = True
        self.save_progress()

    # --- what is done once

    def once(self, stage: HostStage) -> None:
        """Carry out a stage of this process, unless its receipt proves that it was."""
        started, task = time.perf_counter(), stage.task(self.ledger)
        if self.is_tidied:  # its row is that of an earlier start
            self.progress[stage.name] = StageProgress(stage.name, stage.title, embeds=False)
        if reason := self.ledger.reason(task):
            self.show(self.started(stage, [replace(task, reason=reason)]))
            self.show(TaskStarted(0, task))
            result = timed(stage, task, lambda *counts: self.show(Progressed(0, *counts)))
            self.show(TaskFinished(0, task, result.seconds))
            self.accept(result, durable=stage.durable)
        else:
            self.show(self.started(stage, []))
            self.note(task)
        self.save_progress()
        elapsed = time.perf_counter() - started
        self.seconds[stage.name] += elapsed
        for notice in self.ledger.figures(task.receipt, TaskFigures).notices:
            self.show(Notice("warning", notice))
        self.show(StageFinished(stage.name, self.number(stage), elapsed))

    def accept(self, result: TaskResult, *, durable: bool) -> None:
        """Count a task that was carried out, and write its receipt."""
        stage = result.task.stage
        self.ledger.accept(result, durable=durable)
        self.computed[stage] += 1
        if waited := result.figures.host_wait_seconds:
            self.host_wait[stage] = self.host_wait.get(stage, 0.0) + waited
        self.note(result.task)

    def expect(self, stage: WorkerStage, tasks: Sequence[Task]) -> None:
        """Note how many split files a stage has, and their sequences."""
        row = self.progress[stage.name]
        row.files, row.sequences = len(tasks), sum(task.count for task in tasks)

    def note(self, task: Task) -> None:
        """Note that a task is done, now or by an earlier start."""
        receipt, row = self.ledger.receipts[task.receipt], self.progress[task.stage]
        row.files_done += 1
        row.files = row.files or 1
        row.sequences_done += sum(output.rows for output in receipt.outputs) if row.embeds else 0
        row.seconds += receipt.seconds
        for failed in receipt.failures:
            facts = {"stage": failed.stage, "file": failed.file, "error": failed.error}
            self._failed.append({**facts, "message": failed.message, "sequences": len(failed.ids)})

    def save_progress(self, *, is_finished: bool = False) -> None:
        """Write how far the run is, for ``virnucpro status``; nothing else reads it."""
        if not self._has_begun:  # only its results are made again
            return
        progress = RunProgress(list(self.progress.values()), self._failed, is_finished)
        document = stamped("progress", **asdict(progress))
        self.disk.save(self.layout.progress, sealed(document), durable=False)

    # --- a run as a whole

    def _as_a_whole(self) -> Task:
        """Return the task that the whole run is; its outputs are the files that are kept."""
        inputs, receipt = tuple(file.path for file in self.inputs), self.layout.finished
        return Task("finished", 1, inputs, self.kept, receipt, figures=FinishedFigures)

    def tidy(self, figures: FinishedFigures, results: Sequence[HostStage] = ()) -> None:
        """Prove the files that stay, and remove all others.

        The receipts of the stages that write ``results`` stay: they are asked again.
        """
        if not self.is_tidied:
            outputs = tuple(self.ledger.written[path] for path in self.kept)
            self.ledger.accept(TaskResult(self._as_a_whole(), outputs, figures))
        receipts = {self.layout.receipt(stage.name) for stage in results}
        for path in self.layout.intermediate_files():
            if path not in receipts.union(self.kept):
                self.disk.remove(path)
        for folder in self.layout.folders.values():
            self.disk.remove_folder(folder)

    @property
    def failures(self) -> list[FileFailure]:
        """All sequences without a result, now and from earlier starts.

        Frames that are the same as a failed one stand behind it.
        """
        failures = [each for receipt in self.ledger.receipts.values() for each in receipt.failures]
        if not failures or not self.layout.copies_table.exists():
            return failures
        failed = {name for failure in failures for name in failure.ids}
        copies = copies_of(failed, self.layout.frames["nucleotide"], self.layout.copies_table)
        return [
            replace(f, ids=tuple(each for name in f.ids for each in (name, *copies.get(name, ()))))
            for f in failures
        ]

    # --- what is shown

    def number(self, stage: HostStage | WorkerStage) -> int:
        """Return the number of a stage, from 1."""
        return 1 + [each.name for each in self.stages].index(stage.name)

    def started(self, stage: HostStage | WorkerStage, todo: Sequence[Task]) -> StageStarted:
        """Return the event of a stage that begins, with the most frequent reasons."""
        number = self.number(stage)
        counts = Counter(task.reason for task in todo if task.reason not in ("", UNFINISHED))
        rest = self.stages[number:]
        return StageStarted(
            stage.name,
            number,
            len(todo),
            sum(task.count for task in todo),
            tuple(f"{reason} ({count}x)" for reason, count in counts.most_common(3)),
            title=stage.title,
            stages=len(self.stages),
            on_workers=isinstance(stage, WorkerStage),
            ahead=[each.name for each in rest if isinstance(each, WorkerStage)],
        )


def timed(stage: HostStage, task: Task, report: ReportProgress) -> TaskResult:
    """Carry out the task of a stage of this process, and note how long that took."""
    started = time.perf_counter()
    result = stage.run(task, report)
    return replace(result, seconds=time.perf_counter() - started)


def sweep(layout: Layout, disk: Disk) -> None:
    """Remove temporary files of earlier, killed processes."""
    disk.sweep(layout.root, {path.name for path in layout.top_files()})
    for folder in (layout.home, layout.state, layout.merged_folder, *layout.folders.values()):
        disk.sweep(folder)
