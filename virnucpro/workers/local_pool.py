"""A worker pool without processes, for one CPU."""

from __future__ import annotations

from collections import deque

from virnucpro.workers.pool import HandleEvent, Work, WorkerPool
from virnucpro.workers.worker import TaskRunner


class LocalPool(WorkerPool):
    """One worker in this process. ``wait`` does the work, one opening or one task in each call."""

    _runner: TaskRunner
    _work: deque[Work]
    _handle: HandleEvent

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Do the next piece of work, however long it takes; events are handled as they occur.

        Raises:
            RunInterruptedError: a signal arrived while a task was being carried out.
        """
        self._handle = handle
        if self._work:
            self._runner.take(self._work.popleft())

    def _start(self, worker: int) -> None:
        self._runner = TaskRunner(worker, self.workers[worker], lambda event: self._handle(event))
        self._work = deque()

    def submit(self, worker: int, work: Work) -> None:
        self._work.append(work)

    def _end(self, worker: int) -> None:
        """Free the model and forget all work."""
        self._work.clear()
        del self._runner
