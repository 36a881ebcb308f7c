"""A worker pool of one worker that lives in this process: for encoders on the CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from virnucpro.contracts import Device, Stage, Task
from virnucpro.executors.pool import HandleEvent, PoolEvent
from virnucpro.executors.worker import TaskRunner


class LocalPool:
    """One worker in this process. ``wait`` does the work, one opening or one task in each call."""

    def __init__(self, device: Device) -> None:
        self._unused = [device]
        self._workers: dict[int, Device] = {}
        self._runner: TaskRunner
        self._work: deque[Callable[[], None]] = deque()
        self._handle: HandleEvent

    @property
    def workers(self) -> Mapping[int, Device]:
        """The worker, number 0, after it was started."""
        return self._workers

    def start(self) -> int | None:
        """Start the worker; None if that was done before."""
        if not self._unused:
            return None
        self._workers[0] = self._unused.pop()
        self.restart(0)
        return 0

    def open(self, worker: int, stage: Stage, halvings: int) -> None:
        """Have the next ``wait`` load what ``stage`` needs."""
        self._work.clear()
        self._work.append(partial(self._runner.open, stage, halvings))

    def submit(self, worker: int, task: Task) -> None:
        """Have a later ``wait`` carry out ``task``."""
        self._work.append(partial(self._runner.run, task))

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Do the next piece of work, however long it takes; events are handled as they occur.

        Raises:
            RunInterruptedError: a signal arrived while a task was being carried out.
        """
        self._handle = handle
        if self._work:
            self._work.popleft()()

    def restart(self, worker: int) -> None:
        """Free the model and forget all work."""
        self._work.clear()
        self._runner = TaskRunner(0, self._workers[worker], self._deliver)

    def remove(self, worker: int) -> None:
        """Free the model and forget all work, for good."""
        self.restart(worker)
        del self._workers[worker]

    def close(self) -> None:
        """Remove the worker, if it was started."""
        for worker in list(self._workers):
            self.remove(worker)

    def _deliver(self, event: PoolEvent) -> None:
        self._handle(event)
