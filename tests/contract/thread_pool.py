"""A worker pool of threads of this process: an example of how short a pool can be.

It is here to show that the contract and the fault tests take a new pool in one line. The program
does not use it: a thread cannot be ended, so a worker that hangs would stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Thread

from virnucpro.contracts import Device, Stage, Task
from virnucpro.executors.pool import HandleEvent, PoolEvent
from virnucpro.executors.worker import TaskRunner

Inbox = SimpleQueue[Callable[[TaskRunner], None] | None]


class ThreadPool:
    """One thread per device. It is replaced after its current task, whose result is ignored."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._unused = list(enumerate(devices))[::-1]
        self._workers: dict[int, Device] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._threads: dict[int, Thread] = {}
        self._events: SimpleQueue[tuple[Inbox, PoolEvent]] = SimpleQueue()

    @property
    def workers(self) -> Mapping[int, Device]:
        return self._workers

    def start(self) -> int | None:
        if not self._unused:
            return None
        worker, device = self._unused.pop()
        self._workers[worker] = device
        self.restart(worker)
        return worker

    def open(self, worker: int, stage: Stage, halvings: int) -> None:
        self.restart(worker)
        self._inboxes[worker].put(lambda runner: runner.open(stage, halvings))

    def submit(self, worker: int, task: Task) -> None:
        self._inboxes[worker].put(lambda runner: runner.run(task))

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        try:
            inbox, event = self._events.get(timeout=seconds)
        except Empty:
            return
        if self._inboxes.get(event.worker) is inbox:
            handle(event)

    def restart(self, worker: int) -> None:
        self._end_thread(worker)
        inbox = self._inboxes[worker] = Inbox()
        arguments = (worker, self._workers[worker], inbox)
        self._threads[worker] = Thread(target=self._serve, args=arguments, daemon=True)
        self._threads[worker].start()

    def _end_thread(self, worker: int) -> None:
        if inbox := self._inboxes.pop(worker, None):
            inbox.put(None)
            self._threads.pop(worker).join()  # two threads must not write the same file

    def _serve(self, worker: int, device: Device, inbox: Inbox) -> None:
        runner = TaskRunner(worker, device, lambda event: self._events.put((inbox, event)))
        while (work := inbox.get()) is not None and self._inboxes.get(worker) is inbox:
            work(runner)

    def remove(self, worker: int) -> None:
        self._end_thread(worker)
        del self._workers[worker]

    def close(self) -> None:
        for worker in list(self._workers):
            self.remove(worker)
