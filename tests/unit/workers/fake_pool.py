"""A worker pool in memory, with a clock of its own: no processes and no waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from virnucpro.contracts import (
    Device,
    FailedRow,
    FailedSequences,
    Json,
    Measurements,
    Session,
    Task,
    TaskFigures,
    TaskResult,
    WorkerStage,
)
from virnucpro.events import Progressed, WorkerDied, WorkerReady
from virnucpro.workers.pool import HandleEvent, Work, WorkEnded, WorkerPool, WorkFailure
from virnucpro.workers.retry import SearchState

FOLDER = TemporaryDirectory()  # searches in single mode write here


class FakeStage(WorkerStage):
    """Tasks over sequences that are only numbers; nothing is ever computed."""

    divisible = True
    name, title = "fake", "Fake"

    def task(self, start: int, stop: int, weight: int = 0) -> Task:
        """Return the task for the sequences from ``start`` to before ``stop``."""
        receipt = Path(FOLDER.name, f"{start}-{stop}.done")
        params = {"start": start, "stop": stop}
        return Task("fake", 1, (), (), receipt, params, weight, count=stop - start)

    def tasks(self, count: int, size: int = 4) -> list[Task]:
        """Return ``count`` tasks of ``size`` sequences."""
        return [self.task(n * size, (n + 1) * size) for n in range(count)]

    def open(self, device: Device) -> Session:
        raise NotImplementedError


def sequences_of(task: Task) -> list[int]:
    """Return the numbers of the sequences that a task, or a trial of it, computes."""
    start, stop = task.trial or (task.single or 0, task.params["stop"] - task.params["start"])
    excluded = {failed.row for failed in task.excluded}
    return [task.params["start"] + row for row in range(start, stop) if row not in excluded]


def result_of(task: Task) -> TaskResult:
    """Return a result that names what was excluded."""
    failures = tuple(
        FailedSequences(f.error, f.message, (str(task.params["start"] + f.row),))
        for f in task.excluded
    )
    return TaskResult(task, (), TaskFigures(failures=failures))


Behaviour = Callable[[int, Task | None], str]
"""What happens when a worker (number) does a task, or opens the stage (None).

``ok``, ``raises``, ``cannot write``, ``exits``, ``exits writing``, ``silent``, or ``lost`` with its
device.
"""


class FakePool(WorkerPool):
    """In each ``wait`` half a second passes, and each worker with work ends one piece of it."""

    STEP = 0.5
    facts: Mapping[str, Json] = {}
    measured = Measurements()

    def __init__(self, devices: int, behaviour: Behaviour, *, overlapping: bool = False) -> None:
        """``overlapping``: a task is written while the next one is computed, as by a GPU."""
        kind: Literal["cpu", "cuda"] = "cuda" if overlapping else "cpu"
        super().__init__([Device(kind, n, f"device {n}") for n in range(devices)])
        self._overlapping = overlapping
        self._behaviour = behaviour
        self.now = 0.0
        self.calls: list[str] = []
        self.attempts: list[tuple[int, Task]] = []  # carried out, whatever came of it
        self.most_submitted = 0
        self.failed: set[Path] = set()  # receipts of what failed so far
        self.work: dict[int, deque[Work]] = {}
        self.searching: dict[int, tuple[int, tuple[FailedRow, ...]]] = {}
        self.writing: dict[int, Task] = {}  # computed, and not written yet
        self._joining: list[tuple[float, int]] = []

    def joins(self, number: int, now: float) -> None:
        """Have another device be there from ``now`` on, as on a cluster."""
        self._joining.append((now, number))

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        self.now += self.STEP
        for now, number in [entry for entry in self._joining if entry[0] <= self.now]:
            self._joining.remove((now, number))
            self._unused.append((number, Device("cpu", number, f"device {number}")))
        for number, work in list(self.work.items()):
            if self.work.get(number) is work:
                self._step(number, work, handle)

    def _step(self, number: int, work: deque[Work], handle: HandleEvent) -> None:
        task = next((w for w in work if isinstance(w, Task)), None)
        device, written = self.workers[number], self.writing.get(number)
        begun = {each.receipt for each in (written, *work) if isinstance(each, Task)}
        if written is not None:
            if self._behaviour(number, written) == "exits writing":
                self.failed |= begun
                handle(WorkerDied(number, device, "signal 9"))
            elif task and self._behaviour(number, task) == "exits":
                self.attempts.append((number, task))
                self.failed |= begun
                handle(WorkerDied(number, device, "signal 9"))
            else:
                del self.writing[number]
                self._finish(number, written, handle)
            return
        if not work:
            return
        task = work[0] if isinstance(work[0], Task) else None
        if task is not None and task.single is not None:
            self._search(number, work, task, handle)
            return
        behaviour = self._behaviour(number, task)
        if behaviour == "lost":
            handle(WorkerDied(number, device, "node 7 is gone", lost=True))
            return
        if behaviour == "silent":
            return
        work.popleft()
        if task is not None:
            assert task.count == len(sequences_of(task))
            self.attempts.append((number, task))
            handle(Progressed(number, task.count, 10 * task.count))
        if behaviour == "exits" or (behaviour == "exits writing" and not self._overlapping):
            self.failed |= begun
            handle(WorkerDied(number, device, "signal 9"))
        elif behaviour in ("raises", "cannot write"):
            # A file of a model that cannot be read may be there at the next opening.
            is_data = task is not None and behaviour == "raises"
            kind, error = ("data", "ValueError") if is_data else ("file", "OSError")
            failure = WorkFailure(kind, error, "bad letter")
            self.failed |= {task.receipt} if task else set()
            handle(WorkEnded(number, task, failure, self.STEP))
        elif task is None:
            handle(WorkerReady(number, device, "fake", self.STEP, self.facts))
        elif self._overlapping:
            self.writing[number] = task
        else:
            self._finish(number, task, handle)

    def _finish(self, number: int, task: Task, handle: HandleEvent) -> None:
        handle(WorkEnded(number, task, result_of(task), self.STEP, measured=self.measured))

    def _search(self, number: int, work: deque[Work], task: Task, handle: HandleEvent) -> None:
        """Try one sequence after the other, as a worker does in single mode."""
        if number not in self.searching:
            self.attempts.append((number, task))
        first, found = self.searching.setdefault(number, (task.single or 0, ()))
        for row in range(first, task.params["stop"] - task.params["start"]):
            self.searching[number] = row, found
            SearchState(row, found).write(task.search_file)
            trial = replace(task, single=None, trial=(row, row + 1), count=1)
            behaviour = self._behaviour(number, trial) if sequences_of(trial) else "ok"
            if behaviour == "silent":
                return
            handle(Progressed(number, 1, 10))
            if behaviour in ("exits", "exits writing"):
                handle(WorkerDied(number, self.workers[number], "signal 9"))
                return
            if behaviour == "raises":
                found = (*found, FailedRow(row, "ValueError", "bad letter"))
        work.popleft()
        del self.searching[number]
        handle(WorkEnded(number, task, found, self.STEP))

    def _start(self, worker: int) -> None:
        self.work[worker] = deque()
        self.calls.append(f"start {worker}")

    def submit(self, worker: int, work: Work) -> None:
        self.work[worker].append(work)
        self.most_submitted = max(self.most_submitted, len(self.work[worker]))
        given = [self.writing.get(worker), *self.work[worker]]
        tasks = {each.receipt for each in given if isinstance(each, Task)}
        assert len(tasks) < 2 or tasks.isdisjoint(self.failed), "what failed is tried alone"

    def _end(self, worker: int) -> None:
        del self.work[worker]
        self.writing.pop(worker, None)
        self.searching.pop(worker, None)
        self.calls.append(f"end {worker}")
