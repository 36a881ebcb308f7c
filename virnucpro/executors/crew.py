"""Worker processes as the parent sees them.

Own processes from the ``spawn`` context, a duplex pipe each. ``multiprocessing.Pool`` hangs on a
killed worker, ``ProcessPoolExecutor`` fails every pending future on one crash, and a shared queue
can die with its lock held.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from virnucpro.contracts import Device, Stage, Task
from virnucpro.executors.messages import Down, Open, Run, Stop, Up
from virnucpro.executors.signals import blocked
from virnucpro.executors.worker import main

STOP_SECONDS = 5.0  # an idle worker leaves at once; a busy one is killed, its writes are atomic


@dataclass(frozen=True)
class Limits:
    """Seconds after which something is done about a worker.

    ``silence`` of one that is at work: no batch takes so long on a GPU. ``opening``: 11 GB of
    weights may come over a slow network. ``grace``: for tasks in flight when the run ends early.
    """

    silence: float = 600.0
    opening: float = 1800.0
    grace: float = 10.0


@dataclass
class Tally:
    """What a worker did in a stage: seconds at work, tasks finished, bytes at its peak."""

    busy: float = 0.0
    tasks: int = 0
    peak_memory: int = 0


class Worker:
    """A worker process, and what it is doing.

    Attributes:
        tasks: what it has been given: the first is being carried out, a second one waits in its
            pipe.
        opened: its process was told to open a stage.
        ready: and has done so.
        careful: it was opened with the smallest batches, for a single task.
        halvings: how often its batches have been halved in this stage.
        failures: failed openings in a row.
        blame: tasks over which it died, and which another worker then finished.
        quiet: seconds since its last sign of life.
        reported: sequences and tokens of the current task.
    """

    def __init__(self, number: int, device: Device, tokenizer_threads: int) -> None:
        self.number = number
        self.device = device
        self._threads = tokenizer_threads
        self.tasks: deque[Task] = deque()
        self.opened = self.ready = self.careful = self.warned = False
        self.halvings = self.failures = self.blame = 0
        self.quiet = 0.0
        self.reported = (0, 0)
        self.since = 0.0
        self.tally = Tally()
        self.connection: Connection
        self.process: SpawnProcess
        self._start()

    @property
    def place(self) -> str:
        """Which worker, for messages."""
        return f"worker {self.number} on {self.device.name}"

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=main,
            args=(theirs, os.getpid(), self.device, self._threads),
            name=f"virnucpro-worker-{self.number}",
            daemon=True,
        )
        # A Ctrl-C goes to all processes of a terminal, also to one that cannot ignore it yet.
        with blocked():
            resource_tracker.ensure_running()  # starting it lifts the block
        with blocked():
            self.process.start()
        theirs.close()

    def restart(self) -> None:
        """Replace the process."""
        self.kill()
        self.opened = False
        self._start()

    def open(self, stage: Stage, halvings: int) -> None:
        """Have it load what a stage needs."""
        self.tasks.clear()
        self.opened, self.ready = True, False
        self.reported = (0, 0)
        self.heard()
        self.send(Open(stage, halvings))

    def begin_stage(self, stage: Stage) -> None:
        """Open another stage; what it learnt in the previous one does not hold there."""
        if self.tasks or self.opened > self.ready:
            self.restart()  # it is still at something of a stage that is over
        self.careful, self.halvings, self.tally = False, 0, Tally()
        self.open(stage, 0)

    def give(self, task: Task) -> None:
        """Have it carry out a task, after the one it is at."""
        if not self.tasks:
            self.since = time.monotonic()
            self.heard()
        self.tasks.append(task)
        self.send(Run(task))

    def finish(self, seconds: float) -> Task:
        """It is through with its task, for better or worse."""
        self.tally.busy += seconds
        self.since = time.monotonic()
        self.reported = (0, 0)
        return self.tasks.popleft()

    def heard(self) -> None:
        """It gave a sign of life."""
        self.quiet, self.warned = 0.0, False

    def send(self, message: Down) -> None:
        """Say something; a worker that just died is noticed by its sentinel."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def receive(self) -> Up | None:
        """Its next message, or None when it is dead."""
        try:
            message: Up = self.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            return None
        self.heard()
        return message

    def last_words(self) -> str:
        """How the process ended."""
        self.process.join(STOP_SECONDS)  # its pipe may close before it is gone
        code = self.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End the process at once and free what belongs to it."""
        self.process.kill()
        self.process.join(STOP_SECONDS)
        if self.process.exitcode is not None:  # else it hangs in a driver: the kernel keeps it
            self.process.close()
        self.connection.close()


class Crew:
    """The workers, at most one a device."""

    def __init__(self, devices: Sequence[Device], tokenizer_threads: int) -> None:
        self._spare = list(enumerate(devices))[::-1]
        self._threads = tokenizer_threads
        self.workers: list[Worker] = []

    def hire(self) -> Worker | None:
        """Start a worker on a device that has none; None where all are taken or lost."""
        if not self._spare:
            return None
        self.workers.append(Worker(*self._spare.pop(), self._threads))
        return self.workers[-1]

    def grow(self, size: int) -> None:
        """Have ``size`` workers, or one for each device that is left."""
        while len(self.workers) < size and self.hire():
            pass

    def dismiss(self, worker: Worker) -> None:
        """End a worker for good; its device is not used again."""
        worker.kill()
        self.workers.remove(worker)

    def close(self) -> None:
        """Stop the workers; those that are at something are killed."""
        idle = [worker for worker in self.workers if worker.ready and not worker.tasks]
        for worker in idle:
            worker.send(Stop())
        deadline = time.monotonic() + STOP_SECONDS
        for worker in idle:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        for worker in self.workers:
            worker.kill()
        self.workers = []
