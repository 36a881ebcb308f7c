"""The retry policy: what becomes of a task that failed, and when a device or the run is given up.

A sequence that cannot be computed is found by trials: workers compute fewer and fewer records of
the file, until one is alone, and write nothing. Then the file is computed without it. Where a
sequence raises an error, it is searched for at once. Where it ends its worker, or the memory is too
small for it, the file is tried again by another worker first, for it may have another cause. The
policy only keeps count; the scheduler carries out what it decides.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from virnucpro.contracts import FailedRow, Task
from virnucpro.errors import DeviceError, VirNucProError

FailureKind = Literal["data", "memory", "device", "broken", "run"]

# What an error says when a device or the host has too little memory: torch's allocators, CUDA's
# runtime and driver (also through Inductor's launcher), Triton, cuBLAS, cuDNN and other libraries,
# and the C++ library.
MEMORY_WORDS = re.compile(
    r"out[ _]of[ _]memory|memoryallocation|alloc(ation)?_failed|not enough memory|allocate memory"
    r"|failed to allocate|bad_alloc",
    re.IGNORECASE,
)
# What it says when the device, its driver or a library of the vendor failed, or the host has no
# threads left. A good sequence must not be given up for it, nor for a kernel that is not right for
# the GPU.
DEVICE_WORDS = re.compile(
    r"cuda|nvidia driver|triton error|out of resource|cublas|cudnn|cufft|curand|cusolver|cusparse"
    r"|nccl|nvml|nvrtc|ptxas|device-side assert|start new thread",
    re.IGNORECASE,
)
# Errors of these modules are about compilers, devices and processes, never about a sequence.
DEVICE_MODULES = re.compile(r"triton\.|torch\.(cuda|distributed|_dynamo|_inductor)")


@dataclass(frozen=True)
class WorkFailure:
    """Why a task, or the opening of a stage, failed.

    Attributes:
        kind: ``data`` if a single sequence may be the cause; ``memory`` if the device had too
            little memory even for the smallest batch; ``device`` if the device does not answer in
            this process any more; ``broken`` if the device, or the model on it, fails even for a
            sequence that is known to be good; ``run`` if every task would fail in the same way (a
            damaged model file, a full disk).
        error: name of the exception's class.
        message: what it said; only the first line, except for ``run``.
    """

    kind: FailureKind
    error: str
    message: str


def describe_failure(error: BaseException) -> WorkFailure:
    """Return what the scheduler needs to know about an exception that a worker met."""
    name = type(error).__name__
    message = str(error).strip() or name
    kind = failure_kind(error)
    return WorkFailure(kind, name, message if kind == "run" else message.splitlines()[0])


def failure_kind(error: BaseException) -> FailureKind:
    """Return the kind of failure that an exception stands for."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return "memory"
    if isinstance(error, VirNucProError | OSError):
        return "run"  # OSError: a file that cannot be read is not the fault of a sequence
    # Other errors of a device are told by their words: most libraries raise a plain RuntimeError,
    # and torch an AssertionError where it was built without CUDA.
    if isinstance(error, RuntimeError | AssertionError):
        if MEMORY_WORDS.search(str(error)):
            return "memory"
        if DEVICE_WORDS.search(str(error)):
            return "device"
    torch = sys.modules.get("torch")  # if torch was never imported, the error cannot be torch's
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return "device"
    return "device" if DEVICE_MODULES.match(type(error).__module__) else "data"


# Failed attempts in a row, with nothing finished in between, after which the run ends: the cause
# is not the sequences. To find one deadly sequence among 10,000 takes up to 17 attempts, six
# neighbours take about 32.
MAX_FAILURES_IN_A_ROW = 40
# Searches of a file that end without finding a sequence: the file as a whole is at fault.
MAX_VAIN_SEARCHES = 2


def search_records(task: Task) -> Generator[Task, WorkFailure | None, None]:
    """Yield trials of fewer and fewer records, and at last the task without those that fail alone.

    Sent is the failure of each trial, or None. A record that raises an error alone is given up, and
    one that ends its worker alone when it has done that twice.
    """

    def divided(start: int, stop: int) -> list[tuple[int, int]]:
        middle = (start + stop) // 2
        return [(middle, stop), (start, middle)] if stop - start > 1 else [(start, stop)]

    found: list[FailedRow] = []
    untried = divided(0, task.count + len(task.excluded))  # the next range is the last one
    while untried:
        start, stop = untried.pop()
        left_out = sum(start <= failed.row < stop for failed in task.excluded)
        trial = replace(task, trial=(start, stop), count=stop - start - left_out)
        failure = yield trial
        if stop - start == 1 and failure is not None and failure.kind != "data":
            failure = yield trial
        if failure is not None and stop - start > 1:
            untried += divided(start, stop)
        elif failure is not None:
            found.append(FailedRow(start, failure.error, failure.message))
    yield replace(task, excluded=(*task.excluded, *found), count=task.count - len(found))


@dataclass
class TaskHistory:
    """What went wrong with an unfinished task: the workers that exited over it, and searches."""

    exits: list[int] = field(default_factory=list)
    search: Generator[Task, WorkFailure | None, None] | None = None
    vain_searches: int = 0


class RetryPolicy:
    """Decides what is tried again in one stage. Tasks are known by their receipts.

    Attributes:
        error: what ends the run, once it cannot go on.
    """

    def __init__(self, *, divisible: bool = True) -> None:
        """``divisible`` says whether tasks can be searched, see :class:`contracts.Stage`."""
        self._divisible = divisible
        self._histories: dict[Path, TaskHistory] = {}
        self._failures_in_a_row = 0
        self.error: DeviceError | None = None

    def exited_over(self, worker: int, task: Task) -> bool:
        """Return whether this worker has exited before while it had ``task``."""
        history = self._histories.get(task.receipt)
        return history is not None and worker in history.exits

    def runs_alone(self, task: Task) -> bool:
        """Return whether a worker must have no other task beside ``task``.

        It may end its worker, and a GPU writes one task and prepares another while it computes.
        """
        return task.receipt in self._histories

    def after_success(self, task: Task) -> None:
        """Forget what went wrong before ``task`` was finished."""
        self._failures_in_a_row = 0
        self._histories.pop(task.receipt, None)

    def after_exit(self, worker: int, tasks: Sequence[Task], reason: str) -> tuple[Task, ...]:
        """Return what is tried after a worker exited, of the unfinished ``tasks`` that it had.

        If there are two, either may have ended the worker: each is tried again as the only task of
        a worker. A task over which two workers have exited is searched for the sequence that ends
        them.
        """
        self._failures_in_a_row += 1
        if self._failures_in_a_row == MAX_FAILURES_IN_A_ROW:
            self._give_up(f"{MAX_FAILURES_IN_A_ROW} attempts in a row failed; the last: {reason}")
        for task in tasks:
            self._histories.setdefault(task.receipt, TaskHistory()).exits.append(worker)
        if len(tasks) != 1:
            return tuple(tasks)
        (task,) = tasks
        if task.trial is None and len(self._histories[task.receipt].exits) == 1:
            return (task,)
        if not self._divisible:
            self._give_up(f"{task.name} cannot be computed: {reason}")
            return (task,)
        return (self.search(task, WorkFailure("device", "WorkerDied", reason)),)

    def search(self, task: Task, failure: WorkFailure | None) -> Task:
        """Return what is tried after ``task``, which failed, or after a trial of it.

        That is the next trial, or at the end of the search the task without what was found.
        """
        history = self._histories.setdefault(task.receipt, TaskHistory())
        if task.trial is None:
            history.search = search_records(task)
            return next(history.search)
        if failure is None:
            self._failures_in_a_row = 0
        assert history.search is not None
        following = history.search.send(failure)
        history.vain_searches += following.trial is None and following.excluded == task.excluded
        if history.vain_searches == MAX_VAIN_SEARCHES:
            self._give_up(f"{task.name} cannot be computed, but every part of it can")
        return following

    def _give_up(self, text: str) -> None:
        advice = "Check the device and the memory, then run the same command again"
        self.error = self.error or DeviceError(f"{text}. {advice}")
