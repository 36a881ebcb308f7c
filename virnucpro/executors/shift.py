"""The tasks of one stage, handed out to the workers, and what is done when that goes wrong.

A sequence that cannot be computed is found by halving the task that holds it. What else can fail
is tried again first, by somebody else or with less memory. The parent waits on pipes *and* on
process sentinels, so a killed worker wakes it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait

from virnucpro.contracts import FailedTask, Stage, Task, TaskOutcome
from virnucpro.errors import DeviceError, RunInterruptedError, VirNucProError
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
    WorkerReport,
)
from virnucpro.executors.crew import Crew, Limits, Worker
from virnucpro.executors.faults import SMALLEST, divide, run_error
from virnucpro.executors.local import halved
from virnucpro.executors.messages import Fault, Finished, Progress, Ready
from virnucpro.executors.signals import Interruption
from virnucpro.executors.suspicion import Suspicion

TICK = 0.5  # seconds between two looks at signals and at workers that say nothing
TAIL = 4  # tasks a worker at the end of a stage that go heaviest first
OPENINGS = 3  # in a row that fail on one device: it is lost


class Shift:
    """Hands out the tasks of one stage and collects their outcomes."""

    def __init__(
        self,
        stage: Stage,
        tasks: Sequence[Task],
        crew: Crew,
        limits: Limits,
        interruption: Interruption,
        emit: Callable[[Event], None],
    ) -> None:
        self._stage = stage
        self._crew = crew
        self._limits = limits
        self._interruption = interruption
        self._emit = emit
        self._queue = _in_order(tasks, TAIL * len(crew.workers))
        self._suspicion = Suspicion()
        self._ending: VirNucProError | None = None
        self._deadline = 0.0
        self._looked = time.monotonic()
        self._began: float | None = None

    def outcomes(self) -> Iterator[TaskOutcome]:
        """Hand out and collect until nothing is left, or until the run has to end."""
        if not self._crew.workers:
            raise DeviceError("no device is left")
        for worker in self._crew.workers:
            worker.begin_stage(self._stage)
        while self._goes_on():
            self._hand_out()
            pairs = [(w, w.connection, w.process.sentinel) for w in self._crew.workers]
            woken = set(wait([*(pipe for _, pipe, _ in pairs), *(end for *_, end in pairs)], TICK))
            # Each worker once: what a replaced one leaves in `woken` must not hit its successor,
            # whose sentinel may have the same number. A dead one's last words come first.
            for worker, connection, sentinel in pairs:
                if worker not in self._crew.workers or worker.connection is not connection:
                    continue
                if connection in woken:
                    yield from self._listen(worker)
                elif sentinel in woken:
                    yield from self._bury(worker, worker.last_words())
            yield from self._look_after()
        self._report()
        if self._ending is not None:
            raise self._ending

    def _goes_on(self) -> bool:
        if self._interruption.number is not None and self._ending is None:
            self._end(RunInterruptedError(self._interruption.number))
        busy = any(worker.tasks for worker in self._crew.workers)
        if self._ending is not None:
            return busy and time.monotonic() < self._deadline
        return busy or bool(self._queue)

    def _end(self, error: VirNucProError) -> None:
        """Hand out nothing more; what is being computed may still finish."""
        if self._ending is not None:
            return
        self._ending = error
        self._deadline = time.monotonic() + self._limits.grace
        for worker in [w for w in self._crew.workers if not w.ready]:
            self._crew.dismiss(worker)
        if any(worker.tasks for worker in self._crew.workers):
            text = f"stopping: up to {self._limits.grace:.0f} s for what is being computed"
            self._emit(Notice("warning", text))

    def _hand_out(self) -> None:
        """One task each, and where there are plenty one ahead, so that nobody waits for us."""
        workers = [w for w in self._crew.workers if w.ready and not w.careful]
        for held, left in ((0, 0), (1, len(self._crew.workers))):
            for worker in workers:
                wanting = len(worker.tasks) == held and len(self._queue) > left
                if wanting and not self._ending and (task := self._next_for(worker)):
                    self._give(worker, task)

    def _next_for(self, worker: Worker) -> Task | None:
        """The next task, but none over which this worker died while there is another one."""
        alone = len(self._crew.workers) == 1
        for position in reversed(range(len(self._queue))):
            if alone or not self._suspicion.killed(worker, self._queue[position]):
                return self._queue.pop(position)
        return None

    def _give(self, worker: Worker, task: Task) -> None:
        self._began = self._began or time.monotonic()
        worker.give(task)
        self._emit(TaskStarted(worker.number, task))

    def _listen(self, worker: Worker) -> Iterator[TaskOutcome]:
        match worker.receive():
            case None:
                yield from self._bury(worker, worker.last_words())
            case Ready(seconds, facts):
                worker.ready, worker.failures = True, 0
                name = self._stage.name
                self._emit(WorkerReady(worker.number, worker.device, name, seconds, facts))
            case Progress(sequences, tokens):
                worker.reported = (worker.reported[0] + sequences, worker.reported[1] + tokens)
                self._emit(Progressed(worker.number, sequences, tokens))
            case Finished() as finished:
                self._finished(worker, finished)
                yield finished.done
            case Fault() as fault:
                yield from self._fault(worker, fault)

    def _finished(self, worker: Worker, finished: Finished) -> None:
        task = worker.finish(finished.seconds)
        worker.tally.tasks += 1
        worker.tally.peak_memory = finished.peak_memory
        self._emit(TaskFinished(worker.number, task, finished.seconds))
        if finished.halvings:
            worker.halvings += finished.halvings
            self._emit(halved(worker.number, worker.halvings))
        for broken in self._suspicion.finished(worker, task):
            self._retire(broken, f"{broken.place} died over tasks that others finished")
        if self._ending is not None and worker.tasks:
            self._crew.dismiss(worker)  # it has begun its next one
        elif worker.careful:
            worker.careful = False
            worker.open(self._stage, worker.halvings)

    def _fault(self, worker: Worker, fault: Fault) -> Iterator[TaskOutcome]:
        what = f"{fault.error}: {fault.message}"
        if fault.kind == "fatal" or self._ending is not None:
            self._crew.dismiss(worker)
            if fault.kind == "fatal":
                self._end(run_error(fault))
        elif fault.task is None:
            reason = f"{worker.place} cannot load the model: {what}"
            self._not_open(worker, reason, hopeless=fault.kind == "data")
        elif fault.kind == "data":
            worker.finish(fault.seconds)
            yield from self._divide(worker, fault)
        elif fault.kind == "memory":
            yield from self._too_large(worker, fault)
        else:
            yield from self._bury(worker, what)

    def _too_large(self, worker: Worker, fault: Fault) -> Iterator[TaskOutcome]:
        """Not even the smallest batch fitted: once more in a new process, then the halves."""
        task = worker.finish(fault.seconds)
        self._setback(f"{worker.place} is out of memory: {fault.message}")
        if worker.careful or self._suspicion.suspects(task):
            self._replace(worker)
            yield from self._divide(worker, fault)
            return
        text = f"{worker.place} has too little memory for {task.name}: once more in a new process"
        self._emit(Notice("warning", text))
        self._replace(worker, careful=True)
        if self._ending is None:
            self._give(worker, task)

    def _bury(self, worker: Worker, reason: str) -> Iterator[TaskOutcome]:
        """A worker died, or has to: a new one, the same task once more, then its halves."""
        cause = f"{worker.place} died ({reason})"
        self._emit(WorkerDied(worker.number, worker.device, reason))
        if self._ending is not None:
            self._crew.dismiss(worker)
            return
        if not worker.ready:
            self._not_open(worker, f"{cause} while it loaded the model", hopeless=False)
            return
        self._emit(Notice("warning", f"{cause}; a new one takes its place"))
        self._take_back(worker)
        task = worker.finish(time.monotonic() - worker.since) if worker.tasks else None
        self._setback(cause)
        self._replace(worker)
        if task is None:
            return
        if self._suspicion.died(worker, task):
            yield from self._divide(worker, Fault(task, "device", "WorkerDied", cause))
        else:
            self._queue.append(task)

    def _take_back(self, worker: Worker) -> None:
        if any(worker.reported):
            self._emit(Progressed(worker.number, -worker.reported[0], -worker.reported[1]))

    def _divide(self, worker: Worker, fault: Fault) -> Iterator[TaskOutcome]:
        divided = divide(self._stage, fault)
        if isinstance(divided, FailedTask):
            self._emit(TaskFailed(worker.number, divided))
            yield divided
            return
        self._queue.extend(divided)
        if fault.kind != "data":
            self._suspicion.divided(divided)

    def _replace(self, worker: Worker, *, careful: bool = False) -> None:
        """Start its process again; what waited in its pipe goes to whoever is free."""
        if self._ending is not None:
            self._crew.dismiss(worker)
            return
        self._queue.extend(worker.tasks)
        worker.careful = careful
        worker.restart()
        worker.open(self._stage, SMALLEST if careful else worker.halvings)

    def _not_open(self, worker: Worker, reason: str, *, hopeless: bool) -> None:
        worker.failures += 1
        if hopeless or worker.failures == OPENINGS:
            self._retire(worker, reason)
        else:
            self._emit(Notice("warning", f"{reason}; trying again"))
            self._replace(worker)

    def _retire(self, worker: Worker, reason: str) -> None:
        """Go on without a device, with one that was not needed so far or with the others."""
        if worker not in self._crew.workers:
            return
        self._take_back(worker)
        self._queue.extend(worker.tasks)
        self._crew.dismiss(worker)
        successor = None if self._ending else self._crew.hire()
        if successor is not None:
            successor.open(self._stage, 0)
        if not self._crew.workers:
            self._end(DeviceError(f"no device is left to go on with: {reason}"))
            return
        count = len(self._crew.workers)
        text = f"{reason}; its device is given up, the run goes on with {count} other(s)"
        self._emit(Notice("warning", text))

    def _setback(self, cause: str) -> None:
        if error := self._suspicion.setback(cause):
            self._end(error)

    def _look_after(self) -> Iterator[TaskOutcome]:
        """Replace workers that say nothing any more."""
        now = time.monotonic()
        # Time in which this process itself was stopped is nobody's silence.
        passed, self._looked = min(now - self._looked, 2 * TICK), now
        for worker in list(self._crew.workers):
            if worker.ready and not worker.tasks:
                continue
            limit = self._limits.silence if worker.ready else self._limits.opening
            worker.quiet += passed
            silence = f"no sign of life for {worker.quiet:.0f} s"
            if worker.quiet >= limit:
                yield from self._bury(worker, silence)
            elif worker.quiet >= limit / 2 and not worker.warned:
                worker.warned = True
                text = f"{worker.place} stalled: {silence}; it is ended after {limit:.0f} s"
                self._emit(Notice("warning", text))

    def _report(self) -> None:
        """Idle is all the time since the first task in which a worker was not at one."""
        if self._began is None:
            return
        elapsed = time.monotonic() - self._began
        for worker in self._crew.workers:
            did, idle = worker.tally, max(0.0, elapsed - worker.tally.busy)
            name, peak = self._stage.name, did.peak_memory
            self._emit(
                WorkerReport(worker.number, worker.device, name, did.busy, idle, did.tasks, peak)
            )


def _in_order(tasks: Sequence[Task], tail: int) -> list[Task]:
    """The order to hand tasks out in, the first one last.

    File by file, so that files are joined while others are computed, not all at the end. The last
    ``tail`` tasks heaviest first, so that the workers end together.
    """
    head, end = tasks[:-tail], sorted(tasks[-tail:], key=lambda task: -task.weight)
    return [*head, *end][::-1]
