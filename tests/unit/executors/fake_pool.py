"""A worker pool in memory, with a clock of its own: no processes and no waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.contracts import (
    Device,
    FailedSequences,
    Receipts,
    Session,
    Stage,
    Task,
    TaskFigures,
    TaskResult,
)
from virnucpro.executors.failures import WorkFailure
from virnucpro.executors.pool import (
    HandleEvent,
    ProgressMade,
    StageOpened,
    TaskCompleted,
    WorkerExited,
    WorkerLost,
    WorkerSilent,
    WorkFailed,
)


class FakeStage(Stage):
    """Tasks over sequences that are only numbers; nothing is ever computed."""

    runs_on = "worker"

    @property
    def name(self) -> str:
        return "fake"

    def task(self, start: int, stop: int, weight: int = 0) -> Task:
        """Return the task for the sequences from ``start`` to before ``stop``."""
        receipt = Path(f"{start}-{stop}.done")
        params = {"start": start, "stop": stop}
        return Task("fake", 1, (), (), receipt, params, weight, count=stop - start)

    def tasks(self, count: int, size: int = 4) -> list[Task]:
        """Return ``count`` tasks of ``size`` sequences."""
        return [self.task(n * size, (n + 1) * size) for n in range(count)]

    def plan(self, receipts: Receipts) -> list[Task]:
        raise NotImplementedError

    def open(self, device: Device) -> Session:
        raise NotImplementedError


def sequences_of(task: Task) -> list[int]:
    """Return the numbers of the sequences that a task, or a trial of it, computes."""
    start, stop = task.trial or (0, task.params["stop"] - task.params["start"])
    excluded = {failed.row for failed in task.excluded}
    return [task.params["start"] + row for row in range(start, stop) if row not in excluded]


def result_of(task: Task) -> TaskResult:
    """Return a result that names what was excluded."""
    failures = tuple(
        FailedSequences(f.error, f.message, (str(task.params["start"] + f.row),))
        for f in task.excluded
    )
    return TaskResult(task, (), TaskFigures(failures=failures))


@dataclass
class FakeWorker:
    """A worker of a fake pool: its unfinished work and how often its batches were halved.

    ``writing`` is a task that it has computed and not yet written.
    """

    device: Device
    work: deque[Task | None] = field(default_factory=deque)  # None: open the stage
    halvings: int = 0
    silence: float = 0.0
    writing: Task | None = None


Behaviour = Callable[[int, Task | None, int], str]
"""What happens when a worker (number) does a task, or opens the stage (None), with its halvings.

``ok``, ``ok after a halving``, ``exits``, ``exits writing``, ``silent``, ``lost`` with its device, or
a kind of failure.
"""


class FakePool:
    """In each ``wait`` half a second passes, and each worker with work ends one piece of it."""

    STEP = 0.5

    def __init__(self, devices: int, behaviour: Behaviour, *, overlapping: bool = False) -> None:
        """``overlapping``: a task is written while the next one is computed."""
        self._overlapping = overlapping
        self.now = 0.0
        self.calls: list[str] = []
        self.attempts: list[tuple[int, Task]] = []  # carried out, whatever came of it
        self.most_submitted = 0
        self._unused = [(n, Device("cpu", n, f"device {n}")) for n in range(devices)][::-1]
        self._joining: list[tuple[float, int]] = []
        self._workers: dict[int, FakeWorker] = {}
        self._behaviour = behaviour

    def clock(self) -> float:
        """Return the seconds that have passed."""
        return self.now

    @property
    def workers(self) -> Mapping[int, Device]:
        return {number: worker.device for number, worker in self._workers.items()}

    def joins(self, number: int, now: float) -> None:
        """Have another device be there from ``now`` on, as on a cluster."""
        self._joining.append((now, number))

    def start(self) -> int | None:
        if not self._unused:
            return None
        number, device = self._unused.pop()
        self._workers[number] = FakeWorker(device)
        self.calls.append(f"start {number}")
        return number

    def open(self, worker: int, stage: Stage, halvings: int) -> None:
        self._workers[worker].work.clear()
        self._workers[worker].work.append(None)
        self._workers[worker].halvings = halvings
        self.calls.append(f"open {worker} with {halvings} halvings")

    def submit(self, worker: int, task: Task) -> None:
        self._workers[worker].work.append(task)
        self._workers[worker].silence = 0.0
        self.most_submitted = max(self.most_submitted, len(self._workers[worker].work))

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        self.now += self.STEP
        for joining in [entry for entry in self._joining if entry[0] <= self.now]:
            self._joining.remove(joining)
            self._unused.append((joining[1], Device("cpu", joining[1], f"device {joining[1]}")))
        for number, worker in list(self._workers.items()):
            if self._workers.get(number) is worker:
                self._step(number, worker, handle)

    def _step(self, number: int, worker: FakeWorker, handle: HandleEvent) -> None:
        if (written := worker.writing) is not None:
            following = worker.work[0] if worker.work else None
            if self._behaviour(number, written, worker.halvings) == "exits writing":
                handle(WorkerExited(number, "signal 9"))
            elif following and self._behaviour(number, following, worker.halvings) == "exits":
                self.attempts.append((number, following))
                handle(WorkerExited(number, "signal 9"))
            else:
                worker.writing = None
                handle(TaskCompleted(number, result_of(written), self.STEP))
            return
        if not worker.work:
            handle(WorkerSilent(number, 1e6))  # nobody may mind: it has nothing to do
            return
        task = worker.work[0]
        behaviour = self._behaviour(number, task, worker.halvings)
        if behaviour == "lost":
            handle(WorkerLost(number, "node 7 is gone"))
            return
        if behaviour == "silent":
            worker.silence += self.STEP
            handle(WorkerSilent(number, worker.silence))
            return
        worker.work.popleft()
        worker.silence = 0.0
        if task is not None:
            self.attempts.append((number, task))
            handle(ProgressMade(number, task.count, 10 * task.count))
        if behaviour == "exits" or (behaviour == "exits writing" and not self._overlapping):
            handle(WorkerExited(number, "signal 9"))
        elif behaviour not in ("ok", "ok after a halving", "exits writing"):
            failure = WorkFailure(behaviour, "FakeError", f"{behaviour} failure")  # type: ignore[arg-type]
            if task is not None:
                handle(ProgressMade(number, -task.count, -10 * task.count))
            handle(WorkFailed(number, task, failure, self.STEP))
        elif task is None:
            handle(StageOpened(number, self.STEP))
        elif self._overlapping:
            worker.writing = task
        else:
            halvings = int(behaviour == "ok after a halving")
            handle(TaskCompleted(number, result_of(task), self.STEP, halvings))

    def restart(self, worker: int) -> None:
        self._workers[worker] = FakeWorker(self._workers[worker].device)
        self.calls.append(f"restart {worker}")

    def remove(self, worker: int) -> None:
        del self._workers[worker]
        self.calls.append(f"remove {worker}")

    def close(self) -> None:
        self._workers.clear()
