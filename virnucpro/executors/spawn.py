"""Worker processes, one a device, for the whole run.

Own processes from the ``spawn`` context, a duplex pipe each. The parent waits on pipes *and* on
process sentinels, so a killed worker wakes it at once. ``multiprocessing.Pool`` hangs on a killed
worker, ``ProcessPoolExecutor`` fails every pending future on one crash, and a shared queue can
die with its lock held. A worker gets one task at a time, heaviest first: uneven files and unlike
GPUs balance themselves.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from virnucpro.contracts import Device, Failed, Outcome, Stage, Task
from virnucpro.errors import DeviceError
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    WorkerReady,
)
from virnucpro.executors.local import divide, raise_fatal, run_on_host
from virnucpro.executors.messages import Down, Fault, Finished, Open, Progress, Ready, Run, Stop, Up
from virnucpro.executors.worker import main

Emit = Callable[[Event], None]
DEATHS_A_TASK = 2  # a second death over the same task: the task is at fault, halve it
DEATHS_AT_OPENING = 3  # of a worker without a finished task in between: the device is at fault
STOP_SECONDS = 5.0  # an idle worker leaves at once; a busy one is killed, its writes are atomic


class Worker:
    """The parent's view of a worker process."""

    def __init__(self, number: int, device: Device, tokenizer_threads: int) -> None:
        self.number = number
        self.device = device
        self._threads = tokenizer_threads
        self.task: Task | None = None
        self.ready = False
        self.deaths = 0
        self.connection: Connection
        self.process: SpawnProcess
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=main,
            args=(theirs, os.getpid(), self.device, self._threads),
            name=f"virnucpro-worker-{self.number}",
            daemon=True,
        )
        self.process.start()
        theirs.close()

    def restart(self) -> None:
        """Replace a dead process."""
        self.kill()
        self.task, self.ready = None, False
        self._start()

    def send(self, message: Down) -> None:
        """Say something; a worker that just died is noticed by its sentinel."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def receive(self) -> Up | None:
        """Its next message, or None when it is dead."""
        try:
            message: Up = self.connection.recv()
            return message
        except (EOFError, ConnectionResetError):
            return None

    def kill(self) -> None:
        """End the process at once and free what belongs to it."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


class SpawnExecutor:
    """One spawn worker a device; stages of the host run in the parent."""

    def __init__(self, devices: Sequence[Device], tokenizer_threads: int) -> None:
        self._devices = devices
        self._threads = tokenizer_threads
        self._workers: list[Worker] = []

    def run(self, stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[Outcome]:
        """Carry out ``tasks`` on the workers; outcomes come in order of completion.

        Raises:
            VirNucProError: what a worker met that concerns the whole run.
            DeviceError: a worker dies again and again before it finishes anything.
        """
        if stage.kind == "cpu":
            yield from run_on_host(stage, tasks, emit)
            return
        queue = sorted(tasks, key=lambda task: task.weight)  # heaviest last, popped first
        if not queue:
            return
        for number in range(len(self._workers), min(len(self._devices), len(queue))):
            self._workers.append(Worker(number, self._devices[number], self._threads))
        for worker in self._workers:
            worker.ready = False
            worker.send(Open(stage))
        yield from _Shift(stage, queue, self._workers, emit).outcomes()

    def close(self) -> None:
        """Stop the workers; the busy ones are killed."""
        for worker in self._workers:
            if worker.task is None:
                worker.send(Stop())
        for worker in self._workers:
            if worker.task is None:
                worker.process.join(STOP_SECONDS)
            worker.kill()
        self._workers = []


class _Shift:
    """The tasks of one stage, handed out to the workers."""

    def __init__(self, stage: Stage, queue: list[Task], workers: list[Worker], emit: Emit) -> None:
        self._stage = stage
        self._queue = queue
        self._workers = workers
        self._emit = emit
        self._deaths: Counter[str] = Counter()

    def outcomes(self) -> Iterator[Outcome]:
        """Hand out and collect until nothing is left."""
        while True:
            for worker in self._workers:
                if self._queue and worker.ready and worker.task is None:
                    worker.task = self._queue.pop()
                    worker.send(Run(worker.task))
                    self._emit(TaskStarted(worker.number, worker.task))
            if not self._queue and all(worker.task is None for worker in self._workers):
                return
            pairs = [(w, w.connection, w.process.sentinel) for w in self._workers]
            woken = set(wait([*(pipe for _, pipe, _ in pairs), *(end for *_, end in pairs)]))
            # Each worker once: what a replaced one leaves in `woken` must not hit its successor,
            # whose sentinel may have the same number. A dead one's last words come first.
            for worker, connection, sentinel in pairs:
                if connection in woken:
                    yield from self._listen(worker)
                elif sentinel in woken:
                    yield from self._bury(worker)

    def _listen(self, worker: Worker) -> Iterator[Outcome]:
        match worker.receive():
            case None:
                yield from self._bury(worker)
            case Ready(seconds, facts):
                worker.ready = True
                stage = self._stage.name
                self._emit(WorkerReady(worker.number, worker.device, stage, seconds, facts))
            case Progress(sequences, tokens):
                self._emit(Progressed(worker.number, sequences, tokens))
            case Finished(done):
                self._emit(TaskFinished(worker.number, done.task, done.seconds))
                worker.task, worker.deaths = None, 0
                yield done
            case Fault() as fault:
                raise_fatal(fault)
                worker.task = None
                yield from self._divide(worker, fault)

    def _bury(self, worker: Worker) -> Iterator[Outcome]:
        """A worker died: a new one, the same task once more, then its halves."""
        task, worker.deaths = worker.task, worker.deaths + 1
        worker.process.join(STOP_SECONDS)  # its pipe may close before it is gone
        cause = f"worker {worker.number} on {worker.device.name} died ({_exit(worker.process)})"
        if worker.deaths > DEATHS_AT_OPENING and task is None:
            raise DeviceError(f"{cause} {worker.deaths} times while it loaded the model")
        self._emit(Notice("warning", f"{cause}; a new one takes its place"))
        worker.restart()
        worker.send(Open(self._stage))
        if task is None:
            return
        self._deaths[task.name] += 1
        if self._deaths[task.name] < DEATHS_A_TASK:
            self._queue.append(task)
        else:
            yield from self._divide(worker, Fault(task, "data", "WorkerDied", cause))

    def _divide(self, worker: Worker, fault: Fault) -> Iterator[Outcome]:
        divided = divide(self._stage, fault)
        if isinstance(divided, Failed):
            self._emit(TaskFailed(worker.number, divided))
            yield divided
        else:
            self._queue.extend(divided)


def _exit(process: SpawnProcess) -> str:
    code = process.exitcode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
