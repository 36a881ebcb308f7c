"""How far the current stage is, what each worker does, and when the command ends.

All of it is told from events alone. A task that is begun again, after the death of a worker, takes
back what had been counted of it, so the figures never exceed what there is to do.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from virnucpro.contracts import Device, Task
from virnucpro.events import (
    Event,
    Progressed,
    SequencesFailed,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.formatting import clock_time
from virnucpro.ui.log import worker_name

EARLY_SHARE, EARLY_SECONDS = 0.02, 10.0  # of a stage; before both, no time is forecast
IDLE_AFTER = 2.0  # seconds without a task before a worker is called idle
WINDOW = 30.0  # seconds that a rate is of: soon right after a change, and still calm to look at
FEWEST_REPORTS = 10  # kept at any age: on a CPU one batch may take longer than the window
EARLIEST = 1.0  # seconds; before that, a rate is noise

Clock = Callable[[], float]
Activity = Literal["loading", "idle", "busy", "dead"]


class Speed(NamedTuple):
    """Work per second."""

    sequences: float
    tokens: float


def added(speeds: Iterable[Speed | None]) -> Speed | None:
    """Return the sum of speeds; None where none is known."""
    known = [speed for speed in speeds if speed is not None]
    return Speed(*map(sum, zip(*known, strict=True))) if known else None


@dataclass
class WorkerProgress:
    """What one worker has done in the current stage."""

    number: int
    device: Device
    since: float  # when its state or its task began
    last_report: float  # when it last reported anything
    # Of the last half minute, each with the time, and all sequences and tokens until then.
    reports: deque[tuple[float, int, int]]
    state: Activity = "loading"
    task: Task | None = None
    tasks: int = 0
    sequences: int = 0
    kept: int = 0  # the sequences that it had done when its latest task ended
    stalled: bool = False  # and people were warned

    def state_shown(self, now: float) -> Activity:
        """Return the state for people, who need not see the moment between two tasks."""
        if self.state == "idle" and self.tasks and now - self.since < IDLE_AFTER:
            return "busy"
        return self.state

    def enter(self, state: Activity, now: float, task: Task | None = None) -> None:
        """Enter a state; what was done of an unfinished task is taken back."""
        self.state, self.task, self.since, self.last_report = state, task, now, now
        self.sequences = self.kept

    def count(self, sequences: int, tokens: int, now: float) -> None:
        """Take work on the current task into account."""
        self.sequences += sequences
        self.last_report = now
        self.reports.append((now, self.reports[-1][1] + sequences, self.reports[-1][2] + tokens))
        while len(self.reports) > FEWEST_REPORTS and self.reports[0][0] < now - WINDOW:
            self.reports.popleft()

    def per_second(self, now: float) -> Speed | None:
        """Return the work per second of late; None while it is too early to tell."""
        begin, *before = self.reports[0]
        if now - begin < EARLIEST or len(self.reports) == 1:
            return None
        _, *after = self.reports[-1]
        return Speed(*((n - old) / (now - begin) for n, old in zip(after, before, strict=True)))


class StageProgress:
    """The figures of the current stage, from the events of a run.

    ``clock`` gives seconds and never goes back. Threads that share this object hold a lock.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._devices: dict[int, Device] = {}
        self._rates: dict[str, float] = {}  # sequences per second of stages that have ended
        self._begin(StageStarted("", 0, 0, 0, title="", stages=0, on_workers=False))

    def _begin(self, event: StageStarted) -> None:
        now, self.stage = self.clock(), event
        self.tasks_done = self.failed = 0
        self.encoding = event.on_workers and event.todo > 0
        self.started = self._working_since = now
        self._workers: dict[int, WorkerProgress] = {}
        for number in self._devices if self.encoding else (0,):  # the host has the number 0
            self._worker(number)

    def update(self, event: Event) -> None:
        """Take an event into account."""
        now = self.clock()
        match event:
            case Progressed(number, sequences, tokens):
                self._worker(number).count(sequences, tokens, now)
            case StageStarted():
                self._begin(event)
            case WorkerReady(number, device):
                if not any(worker.tasks or worker.task for worker in self._workers.values()):
                    # Loading models is not progress: the rate begins with the first worker.
                    self._working_since = now
                self._devices[number], self.encoding = device, True
                worker = self._worker(number)
                worker.device, worker.reports = device, deque([(now, 0, 0)])
                worker.enter("idle", now)
            case TaskStarted(number, task):
                self._worker(number).enter("busy", now, task)
            case TaskFinished(number):
                worker = self._worker(number)
                worker.kept = worker.sequences
                worker.tasks += 1
                self.tasks_done += 1
                worker.enter("idle", now)
            case StageFinished(stage):
                if self.encoding and self.sequences and now > self._working_since:
                    self._rates[stage] = self.sequences / (now - self._working_since)
            case SequencesFailed(_, _, failures):
                self.failed += sum(len(failed.ids) for failed in failures)
            case WorkerDied(number):
                self._devices.pop(number, None)
                self._worker(number).enter("dead", now)

    def _worker(self, number: int) -> WorkerProgress:
        """Return a worker; the host comes without a :class:`WorkerReady`."""
        if number not in self._workers:
            device, now = self._devices.get(number, Device("cpu")), self.clock()
            reports = deque([(now, 0, 0)])
            self._workers[number] = WorkerProgress(number, device, now, now, reports)
        return self._workers[number]

    @property
    def workers(self) -> list[WorkerProgress]:
        """The workers that encode, by number; none in a stage of the host."""
        return [self._workers[n] for n in sorted(self._workers)] if self.encoding else []

    @property
    def title(self) -> str:
        """Number and title of the stage: ``[4/9] Nucleotide embeddings (DNABERT-S)``."""
        return f"[{self.stage.number}/{self.stage.stages}] {self.stage.title}"

    @property
    def sequences(self) -> int:
        """Number of sequences that are done or given up."""
        return sum(worker.sequences for worker in self._workers.values()) + self.failed

    @property
    def share(self) -> float | None:
        """Share of the stage that is done, 0 to 1, by sequences or tasks, as known."""
        stage = self.stage
        if stage.sequences:
            return min(1.0, self.sequences / stage.sequences)
        return min(1.0, self.tasks_done / stage.todo) if stage.todo > 1 else None

    @property
    def per_second(self) -> Speed | None:
        """Work per second of all workers; None while it is too early to tell."""
        return added(worker.per_second(self.clock()) for worker in self._workers.values())

    @property
    def remaining(self) -> float | None:
        """Seconds to the end of the stage; None at its very start, and when all is counted."""
        share, worked = self.share, self.clock() - self._working_since
        if not share or share == 1 or (share < EARLY_SHARE and worked < EARLY_SECONDS):
            return None
        whole, speed = 1.0, share / max(worked, EARLIEST)
        if self.stage.sequences:
            rate = self.per_second
            whole, speed = self.stage.sequences, rate.sequences if rate else 0.0
        return (1 - share) * whole / speed if speed > 0 else None

    @property
    def run_remaining(self) -> tuple[float | None, bool]:
        """Seconds to the end of the command, and whether they count all of its embedding stages.

        One that is still to come counts at the speed that a stage of that name had before in this
        command; where there was none, the seconds leave it out.
        """
        seconds, complete = self.remaining, True
        if seconds is None:
            return None, True
        for stage, sequences in self.stage.ahead.items():
            if sequences is not None and stage in self._rates:
                seconds += sequences / self._rates[stage]
            else:
                complete = complete and sequences == 0
        return seconds, complete


STALL_SECONDS = 600.0  # the first task of a CPU may rightly take hours, and is not warned of


def worker_warnings(workers: Sequence[WorkerProgress], now: float) -> list[str]:
    """Return a warning for each GPU that has been silent for too long, once until it moves again.

    The model may be loading, or a task be computed.
    """
    warnings = []
    for worker in workers:
        silence, before = now - worker.last_report, worker.stalled
        at_work = worker.device.kind == "cuda" and worker.state in ("busy", "loading")
        worker.stalled = at_work and silence >= STALL_SECONDS
        if worker.stalled and not before:
            work = worker.task.name if worker.task else "loading the model"
            name = worker_name(worker.number, worker.device)
            warnings.append(f"{name} has made no progress for {clock_time(silence)} on {work}")
    return warnings
