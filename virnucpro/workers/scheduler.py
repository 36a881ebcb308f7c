"""The workers of a command, and the scheduler that hands them the tasks of a stage.

What is tried again of a task that failed is decided in :mod:`virnucpro.workers.retry`. Here is
decided which worker does it, which devices are given up, and when the run ends.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from virnucpro.contracts import Device, Json, Measurements, Task, TaskResult, WorkerStage
from virnucpro.errors import DeviceError, OutputError, RunInterruptedError, VirNucProError
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
from virnucpro.workers.pool import Failure, PoolEvent, WorkEnded, WorkerPool, WorkFailure
from virnucpro.workers.retry import MOST_FAILURES, Retries
from virnucpro.workers.signals import Interruption

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
    anything, the receipts of its tasks that no worker has finished since. ``row`` is what the
    record of a run says of it.
    """

    number: int
    device: Device
    row: dict[str, Json]
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
        node = f" of {self.device.host}" if self.device.host else ""
        return f"worker {self.number} on {self.device.name}{node}"


@dataclass
class Scheduler:
    """Carries out the tasks of one stage on the workers of a pool.

    When the run has to end, because of a signal (``_interruption``) or an error, no more tasks are
    handed out, and those in flight may still finish within ``GRACE`` seconds. ``_rows`` gets a row
    per worker: how it was opened last, and what it did.
    """

    _stage: WorkerStage
    _queue: list[Task]  # the next task is the last one, once workers are there
    _pool: WorkerPool
    _show: Show
    _interruption: Interruption
    _rows: list[dict[str, Json]] = field(default_factory=list)
    _retries: dict[Path, Retries] = field(default_factory=dict)  # of failed tasks, by receipt
    _failures_in_a_row: int = 0
    _workers: dict[int, WorkerState] = field(default_factory=dict)
    _results: deque[TaskResult] = field(default_factory=deque)
    _final_error: VirNucProError | RunInterruptedError | None = None
    _deadline: float = 0.0
    _first_task_began: float | None = None
    _last_wait: float = 0.0
    _warnings: set[str] = field(default_factory=set)

    def results(self) -> Iterator[TaskResult]:
        """Yield results in the order in which tasks are finished; raises as :class:`Workers`.

        No worker is left at work, unless it raises an error: then the run is over.
        """
        try:
            self._start()
            while not self._is_over():
                self._hand_out()
                self._start_workers()
                self._pool.wait(WAIT_SECONDS, self._handle)
                self._check_silence()
                while self._results:
                    yield self._results.popleft()
            self._sum_up()
            if self._final_error is not None:
                raise self._final_error
        finally:
            for number in self._workers.keys() & self._pool.workers.keys():
                worker = self._workers[number]
                if self._final_error is None and (worker.tasks or not worker.is_open):
                    self._pool.restart(number)

    def _start(self) -> None:
        """Have the stage opened by workers, and put the tasks in their order.

        The last tasks go heaviest first, so that all workers end at about the same time.
        """
        self._last_wait = time.monotonic()
        for number in self._pool.workers:
            self._add_worker(number)
        self._start_workers()
        if not self._workers:
            raise DeviceError("no device is left: check them, then run the same command again")
        tail = TAIL_TASKS * len(self._workers)
        last_tasks = sorted(self._queue[-tail:], key=lambda task: -task.weight)
        self._queue = [*self._queue[:-tail], *last_tasks][::-1]

    def _is_over(self) -> bool:
        """Return whether nothing is done any more, or nothing is waited for."""
        if self._interruption.number is not None:
            self._end(RunInterruptedError(self._interruption.number))
        if self._final_error and time.monotonic() >= self._deadline:
            return True
        is_busy = any(worker.tasks for worker in self._workers.values())
        return not is_busy and bool(self._final_error or not self._queue)

    def _sum_up(self) -> None:
        """Say how each worker spent the time since the first task began."""
        if self._first_task_began is None:
            return
        elapsed = time.monotonic() - self._first_task_began
        for worker in self._workers.values():
            busy, tasks, measured = worker.busy_seconds, worker.finished_tasks, worker.measured
            idle = max(0.0, elapsed - busy)
            worker.row.update(busy=busy, idle=idle, tasks=tasks, **asdict(measured))
            self._show(
                WorkerReport(
                    worker.number, worker.device, self._stage.name, busy, idle, tasks, measured
                )
            )
            if measured.uncompiled_calls:
                self._warn_once(
                    f"{self._stage.name} did not use its compiled blocks in all calls, which is "
                    f"slower. Results are valid, but may differ in their last digits; use "
                    f"--compile never if it comes again"
                )

    def _warn_once(self, text: str) -> None:
        """Say something once, however many workers report the same."""
        if text not in self._warnings:
            self._warnings.add(text)
            self._show(Notice("warning", text))

    def _start_workers(self) -> None:
        """Start workers on devices that are free, where there is enough to do."""
        while self._final_error is None and len(self._queue) > len(self._workers):
            if (number := self._pool.start()) is None:
                return
            self._add_worker(number)

    def _hand_out(self) -> None:
        """Give each worker a task and, if there are enough, others so that it never waits.

        A CPU has a second one queued. A GPU writes one task, computes the next, and has tokens made
        of a third. A worker that only exits waits until others have shown whether that is its own
        fault.
        """
        if self._final_error is not None:
            return
        everybody = self._workers.values()
        trusted = [w for w in everybody if len(w.exits) < MAX_FAILURES] or [*everybody]
        fewest_exits = min((len(worker.exits) for worker in trusted), default=0)
        for given in range(max(MOST_TASKS.values())):
            for worker in trusted:
                takes_more = worker.is_open and given < MOST_TASKS[worker.device.kind]
                is_enough = len(self._queue) > given * len(self._workers)
                if takes_more and is_enough and len(worker.tasks) == given:
                    self._give_task(worker, retries=len(worker.exits) == fewest_exits)

    def _give_task(self, worker: WorkerState, *, retries: bool) -> None:
        """Give a worker the next task of the queue.

        What has failed is the only task of a worker, of one that exits least (``retries``).
        """
        if any(task.receipt in self._retries for task in worker.tasks):
            return
        for index in reversed(range(len(self._queue))):
            has_failed = self._queue[index].receipt in self._retries
            if has_failed and not retries:
                continue
            if has_failed and worker.tasks:
                return
            worker.tasks.append(self._queue.pop(index))
            self._pool.submit(worker.number, worker.tasks[-1])
            if len(worker.tasks) == 1:
                self._begin_task(worker)
            return

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
                worker.row.update(seconds_to_open=round(event.seconds, 3), **event.facts)
                self._show(event)
                if reason := event.facts.get("compile_failed"):
                    where = f"{event.stage} could not be compiled on {event.device.name}"
                    self._warn_once(f"{where} and is slower for it: {reason}")
            case Progressed():
                self._show(event)
            case WorkerDied():
                self._after_death(worker, event)
            case WorkEnded(outcome=WorkFailure() | VirNucProError() as failure):
                self._after_failure(worker, event, failure)
            case WorkEnded():
                self._after_completion(worker, event)

    def _after_completion(self, worker: WorkerState, event: WorkEnded) -> None:
        task, result = worker.tasks.popleft(), event.outcome
        worker.busy_seconds += event.seconds
        worker.exits.clear()
        self._failures_in_a_row = 0
        if isinstance(result, tuple):
            self._queue.append(self._retries_of(task).after_search(result))
            task.search_file.unlink(missing_ok=True)
        elif isinstance(result, TaskResult):
            self._retries.pop(task.receipt, None)
            self._judge_exits(task)
            worker.finished_tasks += 1
            worker.measured = event.measured
            failures = result.figures.failures
            self._show(TaskFinished(worker.number, task, event.seconds, failures))
            self._results.append(result)
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

    def _after_failure(self, worker: WorkerState, event: WorkEnded, failure: Failure) -> None:
        if isinstance(failure, WorkFailure) and event.task is not None:
            if failure.kind == "file":
                failure = OutputError(failure.message)
            elif failure.kind == "data" and not self._stage.divisible:
                failure = VirNucProError(failure.message)
        if isinstance(failure, VirNucProError) or self._final_error is not None:
            self._remove(worker)
            if isinstance(failure, VirNucProError):
                self._end(failure)
            return
        text = f"{failure.error}: {failure.message}"
        if event.task is None:
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
        return self._retries.setdefault(task.receipt, Retries(task))

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
            retries.exits += 1
            if len(tasks) > 1:
                retries.failures = MOST_FAILURES - 1  # alone, it has one more try
                self._queue.append(task)
            elif self._stage.divisible or retries.exits < MOST_FAILURES:
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
        device, stage = self._pool.workers[number], self._stage.name
        row = {"worker": number, "stage": stage, "device": device.name, "uuid": device.uuid}
        row |= {"host": device.host} if device.host else {}
        self._rows.append(row)
        self._workers[number] = WorkerState(number, device, row)
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


@dataclass
class Workers:
    """What carries out the stages of workers, one after the other, for a whole command.

    With an ``interruption`` that catches signals, tasks in flight may finish after one. Without,
    which is right for a pool in this process, a signal that is caught elsewhere raises its error
    in the middle of a task; every write is atomic.

    Attributes:
        pool: what starts them.
        rows: what each worker did in the last stage, for the record of a run.
    """

    pool: WorkerPool
    interruption: Interruption = field(default_factory=Interruption)
    rows: list[dict[str, Json]] = field(default_factory=list)

    def carry_out(
        self, stage: WorkerStage, tasks: Iterable[Task], show: Show
    ) -> Iterator[TaskResult]:
        """Carry out ``tasks``; results come in the order of completion.

        Before an error is raised, the results of all finished tasks are yielded.

        Raises:
            RunInterruptedError: a signal arrived.
            DeviceError: no device is left, or too many attempts in a row failed.
            VirNucProError: an error that concerns the whole run.
        """
        self.rows = []
        if queue := list(tasks):
            with self.interruption.held():
                signals = self.interruption
                scheduler = Scheduler(stage, queue, self.pool, show, signals, self.rows)
                yield from scheduler.results()

    def close(self) -> None:
        """End the workers; those that are at work are not waited for."""
        with self.interruption.held():
            self.pool.close()
