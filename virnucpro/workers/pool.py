"""A worker pool: it starts workers, hands them work and delivers what they report.

The pool is only the transport. What is tried again, and when a worker has to be replaced, is
decided by :class:`virnucpro.workers.scheduler.Scheduler`, which is the same over every pool. What
a worker does with its work is :class:`virnucpro.workers.worker.TaskRunner`, which every pool
runs on its side of the transport and which creates most of the events below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from virnucpro.contracts import Device, FailedRow, Measurements, Task, TaskResult, WorkerStage
from virnucpro.errors import VirNucProError
from virnucpro.events import Progressed, WorkerDied, WorkerReady

WarmUp = Callable[[Device], None]
"""What can be done on a device before the stage is known: imports, for example."""
Work = WorkerStage | Task | WarmUp
"""What a worker is given: a stage to open, a task of that stage to carry out, or a warm-up."""
FailureKind = Literal["data", "memory", "device", "broken", "file"]


@dataclass(frozen=True)
class WorkFailure:
    """Why a task, or the opening of a stage, failed.

    Attributes:
        kind: ``data`` if a single sequence may be the cause; ``memory`` if the device had too
            little memory even for the smallest batch; ``device`` if the device does not answer in
            this process any more; ``broken`` if the device, or the model on it, fails even for a
            sequence that is known to be good; ``file`` if a file cannot be read or written.
        error: name of the exception's class.
        message: the first line of what it said.
    """

    kind: FailureKind
    error: str
    message: str


Failure = WorkFailure | VirNucProError
"""An error of the program, such as that of a damaged model file, would come in every task."""


@dataclass(frozen=True)
class WorkEnded:
    """A worker is through with its oldest task; or could not open the stage, if ``task`` is None.

    The outcome of a search in single mode is the records that it found. Time in which it computed
    the next task meanwhile is not part of ``seconds``. ``halvings`` is how often the batches had to
    be halved for this task; ``measured`` is what the session has measured so far.
    """

    worker: int
    task: Task | None
    outcome: TaskResult | tuple[FailedRow, ...] | Failure
    seconds: float
    halvings: int = 0
    measured: Measurements = field(default_factory=Measurements)


PoolEvent = WorkerReady | Progressed | WorkEnded | WorkerDied
HandleEvent = Callable[[PoolEvent], None]


class WorkerPool(ABC):
    """Workers on some devices, at most one for each device.

    Only one thread calls a pool. Calls return at once, except ``wait``, ``restart``, ``remove``
    and ``close``. A worker carries out in order what it was given. Calls that concern a worker
    which has just died raise nothing; the next ``wait`` delivers its death.

    Attributes:
        devices: those that workers can be started on, as they were at the start of the run.
        workers: the devices of those that were started and not removed, by their numbers.
    """

    def __init__(self, devices: Sequence[Device] = ()) -> None:
        self.workers: dict[int, Device] = {}
        self.devices = devices
        self._unused = list(enumerate(devices))[::-1]

    def require(self, files: Mapping[Path, int]) -> None:  # noqa: B027 - of a cluster only
        """Do without nodes that lack a file, or have it with another size; UsageError for all."""

    def warm_up(self, work: WarmUp, most: int) -> None:  # noqa: B027 - of processes only
        """Have as many workers begin with ``work`` where that can be done beside this process."""

    def start(self) -> int | None:
        """Start a worker on a device that has not been used yet.

        Returns the number of the worker, or None if every device was used or given up. A pool
        over several machines may have another device later.
        """
        if not self._unused:
            return None
        worker, device = self._unused.pop()
        self.workers[worker] = device
        self._start(worker)
        return worker

    def restart(self, worker: int) -> None:
        """Replace a worker by a new one on its device, with no stage opened and no tasks."""
        self._end(worker)
        self._start(worker)

    def remove(self, worker: int) -> None:
        """End a worker at once; its device is not used again."""
        self._end(worker)
        del self.workers[worker]

    def close(self) -> None:
        """End all workers. Those that are at work are not waited for. Safe to call twice."""
        for worker in list(self.workers):
            self.remove(worker)

    @abstractmethod
    def submit(self, worker: int, work: Work) -> None:
        """Have a worker open a stage, or carry out a task of it, after what it was given before."""

    @abstractmethod
    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Call ``handle`` with the next event of each worker that has one.

        Returns after ``seconds`` if nothing happens. ``handle`` may call every other method of
        the pool. What a worker sent before it was restarted or removed is never delivered later.
        """

    @abstractmethod
    def _start(self, worker: int) -> None:
        """Start a worker on its device."""

    @abstractmethod
    def _end(self, worker: int) -> None:
        """End a worker at once."""
