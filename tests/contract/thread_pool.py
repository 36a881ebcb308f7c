"""A worker pool of threads of this process: an example of how short a pool can be.

It is here to show that the contract and the fault tests take a new pool in one line. The program
does not use it: a thread cannot be ended, so a worker that hangs would stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread

from virnucpro.contracts import Device
from virnucpro.executors.pool import HandleEvent, PoolEvent, Work, WorkerPool
from virnucpro.executors.worker import TaskRunner

Inbox = SimpleQueue[Work | None]


class ThreadPool(WorkerPool):
    """One thread per device. It is replaced after its current task, whose result is ignored."""

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__(devices)
        self._inboxes: dict[int, Inbox] = {}
        self._threads: dict[int, Thread] = {}
        self._events: SimpleQueue[tuple[Inbox, PoolEvent]] = SimpleQueue()

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        try:
            inbox, event = self._events.get(timeout=seconds)
        except Empty:
            return
        if self._inboxes.get(event.worker) is inbox:
            self._deliver(event, handle)

    def _start(self, worker: int) -> None:
        inbox = self._inboxes[worker] = Inbox()
        arguments = (worker, self.workers[worker], inbox)
        self._threads[worker] = Thread(target=self._serve, args=arguments, daemon=True)
        self._threads[worker].start()

    def _serve(self, worker: int, device: Device, inbox: Inbox) -> None:
        runner = TaskRunner(worker, device, lambda event: self._events.put((inbox, event)))
        while (work := inbox.get()) is not None and self._inboxes.get(worker) is inbox:
            runner.take(work)

    def _send(self, worker: int, work: Work) -> None:
        self._inboxes[worker].put(work)

    def _end(self, worker: int) -> None:
        self._inboxes.pop(worker).put(None)
        self._threads.pop(worker).join()  # two threads must not write the same file
