"""The executor of a run: it carries out the stages of the workers on a worker pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from virnucpro.contracts import Device, Task, TaskResult, WorkerStage
from virnucpro.events import Show
from virnucpro.executors.pool import HandleEvent, Work, WorkerPool
from virnucpro.executors.processes import ProcessPool
from virnucpro.executors.scheduler import Scheduler
from virnucpro.executors.signals import Interruption
from virnucpro.executors.worker import TaskRunner
from virnucpro.settings import MachineSettings


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


def open_executor(
    devices: Sequence[Device], machine: MachineSettings, interruption: Interruption | None
) -> Executor:
    """Return the executor for the chosen devices: with a worker process for each device.

    Without a number of workers, one CPU computes in this process.
    """
    if devices[0].kind == "cpu" and machine.cpu_workers is None:
        return Executor(LocalPool(devices), devices[0].threads)
    pool = ProcessPool(devices, machine.tokenizer_threads)
    host_threads = machine.threads or sum(device.threads for device in devices)
    return Executor(pool, host_threads, interruption or Interruption())


@dataclass
class Executor:
    """Carries out the tasks of one stage of the workers after the other.

    ``host_threads`` is on how many threads torch computes in a stage of the host.

    With an ``interruption`` that catches signals, tasks in flight may finish after one. Without,
    which is right for a pool in this process, a signal that is caught elsewhere raises its error
    in the middle of a task; every write is atomic.
    """

    pool: WorkerPool
    host_threads: int
    interruption: Interruption = field(default_factory=Interruption)

    def run(self, stage: WorkerStage, tasks: Iterable[Task], show: Show) -> Iterator[TaskResult]:
        """Carry out ``tasks``; results come in the order of completion.

        Before an error is raised, the results of all finished tasks are yielded.

        Raises:
            RunInterruptedError: a signal arrived.
            DeviceError: no device is left, or too many attempts in a row failed.
            VirNucProError: an error that concerns the whole run.
        """
        if queue := list(tasks):
            with self.interruption.held():
                scheduler = Scheduler(stage, queue, self.pool, show, self.interruption)
                yield from scheduler.outcomes()

    def close(self) -> None:
        """End the workers; those that are at work are not waited for."""
        with self.interruption.held():
            self.pool.close()
