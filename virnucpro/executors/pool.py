"""A worker pool: it starts workers, hands them work and delivers what they report.

The pool is only the transport. What is tried again, and when a worker has to be replaced, is
decided by :class:`virnucpro.executors.scheduler.Scheduler`, which is the same over every pool. What
a worker does with its work is :class:`virnucpro.executors.worker.TaskRunner`, which every pool
runs on its side of the transport and which creates most of the events below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from virnucpro.contracts import Device, Json, SessionFigures, Stage, Task, TaskResult
from virnucpro.executors.failures import WorkFailure

# Events. All are picklable; `worker` is the number under which the pool knows the worker.


@dataclass(frozen=True)
class StageOpened:
    """A worker has loaded what a stage needs, in ``seconds``, and takes tasks.

    ``facts`` are those of its session, see :class:`virnucpro.contracts.ModelSession`.
    """

    worker: int
    seconds: float
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgressMade:
    """Sequences and tokens finished since the last event; negative if they are to be done again."""

    worker: int
    sequences: int
    tokens: int


@dataclass(frozen=True)
class TaskCompleted:
    """A worker carried out its oldest task, in ``seconds``.

    Time in which it computed the next task meanwhile is not counted. ``halvings`` is how often the
    batches had to be halved for this task; ``figures`` is what the session has measured so far.
    """

    worker: int
    result: TaskResult
    seconds: float
    halvings: int = 0
    figures: SessionFigures = field(default_factory=SessionFigures)


@dataclass(frozen=True)
class WorkFailed:
    """A worker could not carry out ``task``; or could not open the stage, if ``task`` is None."""

    worker: int
    task: Task | None
    failure: WorkFailure
    seconds: float


@dataclass(frozen=True)
class WorkerExited:
    """A worker ended without being told to; ``reason`` says how, for example ``signal 9``."""

    worker: int
    reason: str


@dataclass(frozen=True)
class WorkerLost:
    """A worker is gone with its device, which its tasks are not to blame for; ``reason`` says how.

    Only a pool over several machines has this event.
    """

    worker: int
    reason: str


@dataclass(frozen=True)
class WorkerSilent:
    """Nothing came from a worker during this wait.

    ``seconds`` counts from the last event of the worker, or from the last time it was given
    something to do. Time in which this process was suspended or busy elsewhere is not counted.
    """

    worker: int
    seconds: float


PoolEvent = (
    StageOpened
    | ProgressMade
    | TaskCompleted
    | WorkFailed
    | WorkerExited
    | WorkerLost
    | WorkerSilent
)
HandleEvent = Callable[[PoolEvent], None]


class WorkerPool(Protocol):
    """Workers on some devices, at most one for each device.

    Only one thread calls a pool. Calls return at once, except ``wait``, ``restart``, ``remove``
    and ``close``. A worker carries out in order what it was given. Calls that concern a worker
    which has just died raise nothing; the next ``wait`` delivers :class:`WorkerExited`.
    """

    @property
    def workers(self) -> Mapping[int, Device]:
        """The workers that were started and not removed: their numbers and devices."""
        ...

    def start(self) -> int | None:
        """Start a worker on a device that has not been used yet.

        Returns the number of the worker, or None if every device was used or given up. A pool
        over several machines may have another device later.
        """
        ...

    def open(self, worker: int, stage: Stage, halvings: int) -> None:
        """Have a worker load what ``stage`` needs; this frees what it had loaded before.

        The batches are halved ``halvings`` times at once. Anything that the worker still does for
        an earlier stage is abandoned.
        """
        ...

    def submit(self, worker: int, task: Task) -> None:
        """Have a worker carry out ``task`` of the opened stage."""
        ...

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Call ``handle`` with the next event of each worker that has one.

        Returns after ``seconds`` if nothing happens. ``handle`` may call every other method of
        the pool. What a worker sent before it was restarted or removed is never delivered later.
        """
        ...

    def restart(self, worker: int) -> None:
        """Replace a worker by a new one on its device, with no stage opened and no tasks."""
        ...

    def remove(self, worker: int) -> None:
        """End a worker at once; its device is not used again."""
        ...

    def close(self) -> None:
        """End all workers. Those that are at work are not waited for. Safe to call twice."""
        ...
