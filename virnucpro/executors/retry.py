"""The retry policy: what becomes of a task that failed, and when a device or the run is given up.

A sequence that cannot be computed is found by dividing the task that holds it until the sequence
is alone. What may have another cause is tried again first: by another worker, or in a fresh one
with the smallest batches. The policy only keeps count; the scheduler carries out what it decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import FailedTask, SpannedStage, Stage, Task
from virnucpro.errors import DeviceError
from virnucpro.executors.failures import FailureKind

# Failed openings in a row after which a device is given up. A first failure may pass by itself
# (another program that held the memory has ended); three do not.
MAX_OPENINGS = 3
# Tasks that end the worker on one device, and that another worker then finishes, after which the
# device is given up. One or two may be chance.
MAX_EXITS_ON_DEVICE = 3
# Failed attempts in a row, with nothing finished in between, after which the run ends: the cause
# is not the sequences. To find one deadly sequence among 1,000 takes 13 attempts, six neighbours
# among 250 take about 25.
MAX_FAILURES_IN_A_ROW = 30


@dataclass
class WorkerExit:
    """A worker that ended.

    Attributes:
        worker: its number.
        receipts: of the tasks that it had and that were not finished since: one of them may have
            ended it.
        alone: it had only one task.
        finished_elsewhere: none of its tasks was then finished by the same worker.
    """

    worker: int
    receipts: set[Path]
    alone: bool
    finished_elsewhere: bool = True


@dataclass(frozen=True)
class RetryDecision:
    """What becomes of a task that was not finished.

    Attributes:
        tasks: what is carried out instead: the task itself, its two halves, or nothing.
        failed: the task, if it is given up.
        smallest_batches: ``tasks`` is to be carried out by a fresh worker that goes one sequence
            at a time.
    """

    tasks: tuple[Task, ...] = ()
    failed: FailedTask | None = None
    smallest_batches: bool = False


class RetryPolicy:
    """Decides what is tried again in one stage. Tasks are known by their receipts."""

    def __init__(self, stage: Stage) -> None:
        """``stage`` divides its tasks and names the sequences in them, if it is a spanned one."""
        self._stage = stage
        self._exits: dict[Path, list[WorkerExit]] = {}  # of workers that had an unfinished task
        self._halves: set[Path] = set()  # of tasks that ended workers, or that did not fit
        self._exits_on_device: Counter[int] = Counter()
        self._failed_openings: Counter[int] = Counter()
        self._failures_in_a_row = 0
        self._last_failure = ""

    @property
    def limit_error(self) -> DeviceError | None:
        """The error that ends the run, once too many attempts in a row have failed."""
        if self._failures_in_a_row < MAX_FAILURES_IN_A_ROW:
            return None
        return DeviceError(
            f"{self._failures_in_a_row} attempts in a row failed; the last failure: "
            f"{self._last_failure}. Check the device, then run the same command again"
        )

    def exited_over(self, worker: int, task: Task) -> bool:
        """Return whether this worker has exited before while it had ``task``."""
        exits = self._exits.get(task.receipt, [])
        return any(worker_exit.worker == worker for worker_exit in exits)

    def runs_alone(self, task: Task) -> bool:
        """Return whether a worker must have no other task beside ``task``.

        It may end its worker, and a GPU writes one task and prepares another while it computes.
        """
        return task.receipt in self._exits or task.receipt in self._halves

    def after_opening(self, worker: int) -> None:
        """Note that a worker has opened the stage."""
        self._failed_openings[worker] = 0

    def after_failed_opening(self, worker: int, kind: FailureKind) -> bool:
        """Return whether the device is given up because the stage cannot be opened on it."""
        self._failed_openings[worker] += 1
        return kind == "data" or self._failed_openings[worker] >= MAX_OPENINGS

    def after_success(self, worker: int, task: Task) -> list[int]:
        """Return the other workers whose devices are given up, now that ``task`` is finished.

        They exited several times, and all tasks that they had were then finished elsewhere.
        """
        self._failures_in_a_row = 0
        broken = []
        for worker_exit in self._exits.pop(task.receipt, []):
            other = worker_exit.worker
            worker_exit.receipts.remove(task.receipt)
            worker_exit.finished_elsewhere &= other != worker
            if worker_exit.finished_elsewhere and not worker_exit.receipts:
                self._exits_on_device[other] += 1
                if self._exits_on_device[other] == MAX_EXITS_ON_DEVICE:
                    broken.append(other)
        return broken

    def after_data_error(self, task: Task, error: str, message: str) -> RetryDecision:
        """Decide on a task in which a sequence is wrong: it is divided at once."""
        return self._divide(task, error, message)

    def after_exit(self, worker: int, tasks: Sequence[Task], reason: str) -> RetryDecision:
        """Decide on the unfinished tasks that a worker had when it exited.

        If there are two, either may have ended the worker: each is tried again as the only task of
        a worker. A task over which a worker then exits is divided at its second exit, the halves at
        their first. A single sequence is given up only after two exits over it alone.
        """
        self._count_failure(reason)
        worker_exit = WorkerExit(worker, {task.receipt for task in tasks}, alone=len(tasks) == 1)
        for task in tasks:
            self._exits.setdefault(task.receipt, []).append(worker_exit)
        if not worker_exit.alone:
            return RetryDecision(tuple(tasks))
        (task,) = tasks
        exits = self._exits[task.receipt]
        if task.count > 1:
            try_again = len(exits) == 1 and task.receipt not in self._halves
        else:
            try_again = sum(earlier.alone for earlier in exits) == 1
        if try_again:
            return RetryDecision((task,))
        return self._divide(task, "WorkerDied", reason, remember=True)

    def after_out_of_memory(
        self, task: Task, error: str, message: str, reason: str, *, had_smallest_batches: bool
    ) -> RetryDecision:
        """Decide on a task that did not fit, not even with the smallest batches of its worker.

        It is tried once more in a fresh worker, since memory may have been lost to fragmentation
        or to an earlier failure, then divided. The halves are divided without that attempt.
        """
        self._count_failure(reason)
        if had_smallest_batches or task.receipt in self._halves:
            return self._divide(task, error, message, remember=True)
        return RetryDecision((task,), smallest_batches=True)

    def _count_failure(self, reason: str) -> None:
        self._failures_in_a_row += 1
        self._last_failure = reason

    def _divide(
        self, task: Task, error: str, message: str, *, remember: bool = False
    ) -> RetryDecision:
        stage = self._stage
        halves = stage.halve(task) if isinstance(stage, SpannedStage) else None
        if halves is None:
            ids = stage.ids(task) if isinstance(stage, SpannedStage) else ()
            return RetryDecision(failed=FailedTask(task, error, message, ids))
        if remember:
            self._halves.update(half.receipt for half in halves)
        return RetryDecision(halves)
