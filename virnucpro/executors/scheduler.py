"""The scheduler hands the tasks of one stage to the workers of a pool and collects outcomes.

What is tried again of a task that failed is decided in :mod:`virnucpro.executors.retry`. Here is
decided which worker does it, which devices are given up, and when the run ends.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import virnucpro.errors as errors
from virnucpro.contracts import Device, Measurements, SearchResult, Task, TaskResult, WorkerStage
from virnucpro.errors import DeviceError, RunInterruptedError, VirNucProError
from virnucpro.events import (
    Notice,
    Progressed,
    Show,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
    WorkerReport,
)
from virnucpro.executors.pool import PoolEvent, WorkEnded, WorkerPool, WorkFailure
from virnucpro.executors.retry import MOST_FAILURES, Retries
from virnucpro.executors.signals import Interruption

WAIT_SECONDS = 0.5  # longest wait between two looks at signals and at workers that are silent
# Failed openings in a row after which a device is given up. A first failure may pass by itself
# (another program that held the memory has ended); three do not. So many exits over files that
# other workers finish count the same.
MAX_FAILURES = 3
# Failed attempts in a row, with nothing finished in between, after which the run ends (more of many
# workers): the cause is not the sequences.
MAX_FAILURES_IN_A_ROW = 40
# Tasks that a worker has at once, where there are enough for all.
MOST_TASKS = {"cpu": 2, "cuda": 3}
# Tasks per worker at the end of a stage that are handed out heaviest first.
TAIL_TASKS = 4
# Seconds without an event, in a task or while it opens a stage, after which a worker is replaced:
# no batch takes so long on any device, nor do 11 GB of weights over a slow network.
MOST_SILENCE = 1800.0
GRACE = 10.0  # seconds for the tasks in flight, when the run has to end early


@dataclass
class WorkerState:
    """What the scheduler knows of a worker in this stage; ``silence`` is while it is at work.

    The first of its tasks is being carried out; others are queued, or already read and computed by
    a GPU while the first one is written. ``exits`` has, for each exit since it last finished
    anything, the receipts of its tasks that no worker has finished since.
    """

    number: int
    device: Device
    tasks: deque[Task] = field(default_factory=deque)
    is_open: bool = False
    failed_openings: int = 0  # in a row
    exits: list[set[Path]] = field(default_factory=list)
    task_began: float = 0.0
    silence: float = 0.0
    busy_seconds: float = 0.0
    finished_tasks: int = 0
    measured: Measurements = field(default_factory=Measurements)

    @property
    def title(self) -> str:
        """Which worker it is, for messages."""
        place = f" of {self.device.host}" if self.device.host else ""
        return f"worker {self.number} on {self.device.name}{place}"


@dataclass
class Scheduler:
    """Carries out the tasks of one stage on the workers of a pool.

    When the run has to end, because of a signal (``_interruption``) or an error, no more tasks are
    handed out, and those in flight may still finish within ``GRACE`` seconds.
    """

    _stage: WorkerStage
    _queue: list[Task]  # the next task is the last one, once workers are there
    _pool: WorkerPool
    _show: Show
    _interruption: Interruption
    _retries: dict[Path, Retries] = field(default_factory=dict)  # of failed tasks, by receipt
    _failures_in_a_row: int = 0
    _workers: dict[int, WorkerState] = field(default_factory=dict)
    _outcomes: deque[TaskResult] = field(default_factory=deque)
    _final_error: VirNucProError | RunInterruptedError | None = None
    _deadline: float = 0.0
    _first_task_began: float | None = None
    _last_wait: float = 0.0

    def outcomes(self) -> Iterator[TaskResult]:
        """Yield results in the order in which tasks are finished; raises as :class:`Executor`.

        No worker is left at work, unless it raises an error: then the run is over.
        """
        try:
            yield from self._until_all_is_done()
        finally:
            for number in self._workers.keys() & self._pool.workers.keys():
                worker = self._workers[number]
                if self._final_error is None and (worker.tasks or not worker.is_open):
                    self._pool.restart(number)

    def _until_all_is_done(self) -> Iterator[TaskResult]:
        self._last_wait = time.monotonic()
        for number in self._pool.workers:
            self._add_worker(number)
        self._start_workers()
        if not self._workers:
            raise DeviceError("no device is left: check them, then run the same command again")
        # The last tasks heaviest first, so that all workers end at about the same time.
        tail = TAIL_TASKS * len(self._workers)
        last_tasks = sorted(self._queue[-tail:], key=lambda task: -task.weight)
        self._queue = [*self._queue[:-tail], *last_tasks][::-1]
        while True:
            if self._interruption.number is not None:
                self._end(RunInterruptedError(self._interruption.number))
            busy = any(worker.tasks for worker in self._workers.values())
            if not busy and (self._final_error or not self._queue):
                break
            if self._final_error and time.monotonic() >= self._deadline:
                break
            self._hand_out()
            self._start_workers()
            self._pool.wait(WAIT_SECONDS, self._handle)
            self._check_silence()
            while self._outcomes:
                yield self._outcomes.popleft()
        if self._first_task_began is not None:  # say how each worker spent the time since then
            elapsed = time.monotonic() - self._first_task_began
            for worker in self._workers.values():
                who, worked = (worker.number, worker.device, self._stage.name), worker.busy_seconds
                counts = max(0.0, elapsed - worked), worker.finished_tasks, worker.measured
                self._show(WorkerReport(*who, worked, *counts))
        if self._final_error is not None:
            raise self._final_error

    def _start_workers(self) -> None:
        """Start workers on devices that are free, where there is enough to do."""
        while self._final_error is None and len(self._queue) > len(self._workers):
            if (number := self._pool.start()) is None:
                return
            self._add_worker(number)

    def _hand_out(self) -> None:
        """Give each worker a task and, if there are enough, others so that it never waits.

        A CPU has a second one queued. A GPU writes one task, computes the next, and has tokens made
        of a third. What failed before is the only task of a worker. What a worker has exited over
        goes to another one, if there is one left. A worker that only exits waits until others have
        shown whether that is its own fault.
        """
        if self._final_error is not None:
            return
        everybody = self._workers.values()
        trusted = [w for w in everybody if len(w.exits) < MAX_FAILURES] or [*everybody]
        fewest = min(len(worker.exits) for worker in trusted) if trusted else 0
        for submitted in range(max(MOST_TASKS.values())):
            reserve = submitted * len(self._workers)
            for worker in [w for w in trusted if w.is_open]:
                if len(worker.tasks) != submitted or submitted == MOST_TASKS[worker.device.kind]:
                    continue
                if len(self._queue) <= reserve:
                    continue
                if any(task.receipt in self._retries for task in worker.tasks):
                    continue
                for position in reversed(range(len(self._queue))):
                    failed = self._retries.get(self._queue[position].receipt)
                    exits = failed.exits if failed else []
                    if worker.number in exits and any(w.number not in exits for w in trusted):
                        continue
                    if self._queue[position].single is not None and len(worker.exits) > fewest:
                        continue
                    if not (worker.tasks and failed):
                        worker.tasks.append(self._queue.pop(position))
                        self._pool.submit(worker.number, worker.tasks[-1])
                        if not submitted:
                            self._begin_task(worker)
                    break

    def _begin_task(self, worker: WorkerState) -> None:
        """Note that a worker begins the first of its tasks, if it has one."""
        if worker.tasks:
            worker.task_began = time.monotonic()
            if self._first_task_began is None:
                self._first_task_began = worker.task_began
            self._show(TaskStarted(worker.number, worker.tasks[0]))

    def _handle(self, event: PoolEvent) -> None:
        worker = self._workers.get(event.worker)
        if worker is None:
            return
        worker.silence = 0.0
        match event:
            case WorkerReady():
                worker.is_open, worker.failed_openings = True, 0
                self._show(event)
            case Progressed():
                self._show(event)
            case WorkerDied():
                self._after_death(worker, event)
            case WorkEnded(_, _, WorkFailure() as failure):
                self._after_failure(worker, event, failure)
            case WorkEnded():
                self._after_completion(worker, event)

    def _after_completion(self, worker: WorkerState, event: WorkEnded) -> None:
        task, result = worker.tasks.popleft(), event.outcome
        worker.busy_seconds += event.seconds
        worker.exits.clear()
        self._failures_in_a_row = 0
        if isinstance(result, SearchResult):
            self._queue.append(self._retries_of(task).after_search(result.found))
            task.search_file.unlink(missing_ok=True)
        elif isinstance(result, TaskResult):
            self._retries.pop(task.receipt, None)
            self._judge_exits(task)
            worker.finished_tasks += 1
            worker.measured = event.measured
            failures = result.figures.failures
            self._show(TaskFinished(worker.number, task, event.seconds, failures))
            self._outcomes.append(result)
        if event.halvings:
            text = (
                f"worker {worker.number} ran out of memory: its batches are "
                f"{2**event.halvings} times smaller now; is another program using the device?"
            )
            self._show(Notice("warning", text))
        if self._final_error is not None and worker.tasks:
            self._remove(worker)  # it has begun its next task
        else:
            self._begin_task(worker)

    def _judge_exits(self, task: Task) -> None:
        """Give up a device with too many exits over tasks that now are finished without a loss.

        Records that had to be given up account for every exit at which their task was present.
        """
        for worker in list(self._workers.values()):
            exits = [x for x in worker.exits if not (task.excluded and task.receipt in x)]
            worker.exits = [receipts - {task.receipt} for receipts in exits]
            if worker.exits.count(set()) >= MAX_FAILURES:
                text = f"{worker.title} died over {MAX_FAILURES} files that other workers finished"
                self._give_up_device(worker, text)

    def _after_failure(self, worker: WorkerState, event: WorkEnded, failure: WorkFailure) -> None:
        text = f"{failure.error}: {failure.message}"
        searchable = self._stage.divisible or event.task is None
        # While a model is opened, an error of the operating system may pass.
        of_run = failure.kind == "run" and (event.task or hasattr(errors, failure.error))
        ends_run = of_run or (failure.kind == "data" and not searchable)
        if ends_run or self._final_error is not None:
            self._remove(worker)
            if ends_run:
                other = errors.OutputError if of_run else errors.VirNucProError
                self._end(getattr(errors, failure.error, other)(failure.message))
        elif event.task is None:
            self._after_failed_opening(worker, f"{worker.title} cannot load the model: {text}")
        elif failure.kind == "data":
            worker.busy_seconds += event.seconds
            self._try_again(worker.tasks.popleft(), failure)
            self._begin_task(worker)
        elif failure.kind == "broken":
            self._give_up_device(
                worker,
                f"{worker.title} fails even for a sequence that is known to be good ({text}): the "
                f"device, its driver or the model is at fault and not the input. Try another "
                f"--precision or --compile never, and run 'virnucpro models verify'",
            )
        else:
            self._after_death(worker, WorkerDied(worker.number, worker.device, text))

    def _retries_of(self, task: Task) -> Retries:
        return self._retries.setdefault(task.receipt, Retries(task, []))

    def _try_again(self, task: Task, failure: WorkFailure) -> None:
        """Queue what is tried after a task, or a search of it, has failed."""
        retries = self._retries_of(task)
        if task.single is not None:
            again: Task | None = retries.after_death(task, failure)
        else:
            again = retries.after_failure(failure)
        if again is None:
            self._give_up(f"{task.name} cannot be computed, even without any of its records")
        self._queue.append(again or task)

    def _after_death(self, worker: WorkerState, event: WorkerDied) -> None:
        """Deal with a worker that died, that has to be ended, or that is lost with its device."""
        text = f"{worker.title} died ({event.reason})"
        self._show(event)
        if self._final_error is not None:
            self._remove(worker)
        elif event.lost:
            self._give_up_device(worker, f"{worker.title} is lost ({event.reason})")
        elif not worker.is_open:
            self._after_failed_opening(worker, f"{text} while it loaded the model")
        else:
            if worker.tasks:
                worker.busy_seconds += time.monotonic() - worker.task_began
            self._after_exit(worker, text)
            self._show(Notice("warning", f"{text}; a new worker takes its place"))
            self._replace(worker)

    def _after_exit(self, worker: WorkerState, reason: str) -> None:
        """Have what a worker had when it exited tried again.

        If there are several tasks, any may have ended it: a GPU writes one and computes the next.
        Only what it had alone has failed.
        """
        tasks = tuple(worker.tasks)
        worker.tasks.clear()
        worker.exits.append({task.receipt for task in tasks})
        for task in reversed(tasks):
            retries = self._retries_of(task)
            retries.exits.append(worker.number)
            is_second = len(retries.exits) >= MOST_FAILURES
            if len(tasks) > 1:
                retries.failures = MOST_FAILURES - 1  # alone, it has one more try
                self._queue.append(task)
            elif self._stage.divisible or not is_second:
                self._try_again(task, WorkFailure("device", "WorkerDied", reason))
            else:
                self._give_up(f"{task.name} cannot be computed: {reason}")
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= max(MAX_FAILURES_IN_A_ROW, MAX_FAILURES * len(self._workers)):
            self._give_up(f"{self._failures_in_a_row} attempts in a row failed; the last: {reason}")

    def _give_up(self, text: str) -> None:
        advice = "Check the device and the memory, then run the same command again"
        self._end(DeviceError(f"{text}. {advice}"))

    def _after_failed_opening(self, worker: WorkerState, reason: str) -> None:
        worker.failed_openings += 1
        if worker.failed_openings == MAX_FAILURES:
            self._give_up_device(worker, reason)
        else:
            self._show(Notice("warning", f"{reason}; trying again"))
            self._replace(worker)

    def _check_silence(self) -> None:
        """Replace the workers that are at work and have said nothing for too long."""
        now = time.monotonic()
        # Time in which this process was suspended or busy elsewhere is nobody's silence.
        passed, self._last_wait = min(now - self._last_wait, 2 * WAIT_SECONDS), now
        for worker in list(self._workers.values()):
            is_at_work = worker.tasks or not worker.is_open
            worker.silence = worker.silence + passed if is_at_work else 0.0
            if worker.silence >= MOST_SILENCE:
                text = f"no sign of life for {worker.silence:.0f} s"
                self._after_death(worker, WorkerDied(worker.number, worker.device, text))

    def _add_worker(self, number: int) -> None:
        self._workers[number] = WorkerState(number, self._pool.workers[number])
        self._pool.submit(number, self._stage)

    def _replace(self, worker: WorkerState) -> None:
        """Restart a worker without tasks, unless the run has to end."""
        if self._final_error is not None:
            self._remove(worker)
            return
        worker.is_open, worker.silence = False, 0.0
        self._pool.restart(worker.number)
        self._pool.submit(worker.number, self._stage)

    def _remove(self, worker: WorkerState) -> None:
        """End a worker for good, unless that has been done."""
        if self._workers.pop(worker.number, None) is not None:
            self._pool.remove(worker.number)

    def _give_up_device(self, worker: WorkerState, reason: str) -> None:
        """Continue without a device: with one that was not needed so far, or with the others."""
        self._queue.extend(worker.tasks)
        self._remove(worker)
        successor = None if self._final_error is not None else self._pool.start()
        if successor is not None:
            self._add_worker(successor)
        count = len(self._workers)
        if count:
            others = f"{count} other worker{'s' if count > 1 else ''}"
            text = f"{reason}; its device is given up, the run goes on with {others}"
            self._show(Notice("warning", text))
        else:
            self._end(DeviceError(f"no device is left: {reason}"))

    def _end(self, error: VirNucProError | RunInterruptedError) -> None:
        """Hand out no more tasks; those in flight may still finish. The first error counts."""
        if self._final_error is not None:
            return
        self._final_error = error
        self._deadline = time.monotonic() + GRACE
        for worker in [w for w in self._workers.values() if not w.is_open]:
            self._remove(worker)
        if any(worker.tasks for worker in self._workers.values()):
            text = f"stopping: up to {GRACE:.0f} s for the tasks in flight"
            self._show(Notice("warning", text))
