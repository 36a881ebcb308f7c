"""How far the current stage is, what each worker does, and when the command ends.

All of it is told from events alone.

A task that is begun again, after the death of a worker or in two halves, takes back what had been
counted of it, so the figures never exceed what there is to do.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from virnucpro.contracts import Device, Task
from virnucpro.events import (
    Event,
    Progressed,
    ReportStarted,
    SequencesFailed,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.ui.rate import Clock, RecentRate, WorkAmount

EARLY_SHARE, EARLY_SECONDS = 0.02, 10.0  # of a stage; before both, no time is forecast
IDLE_AFTER = 2.0  # seconds without a task before a worker is called idle

WorkerState = Literal["loading", "idle", "busy", "dead"]


@dataclass
class WorkerProgress:
    """What one worker has done in the current stage.

    Attributes:
        since: when its state or its task began.
        last_report: when it last reported anything.
        task_seconds: how long its latest tasks took.
        finished: the work of its finished tasks.
        current: the work done of its current task.
    """

    number: int
    device: Device
    since: float
    last_report: float
    rate: RecentRate
    state: WorkerState = "loading"
    task: Task | None = None
    tasks: int = 0
    finished: WorkAmount = field(default_factory=WorkAmount)
    current: WorkAmount = field(default_factory=WorkAmount)
    task_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def sequences(self) -> int:
        """Number of sequences done in this stage."""
        return round(self.finished.sequences + self.current.sequences)

    @property
    def usual_seconds(self) -> float | None:
        """Median duration of this worker's tasks; None before its first one has ended."""
        return statistics.median(self.task_seconds) if self.task_seconds else None

    def state_shown(self, now: float) -> WorkerState:
        """Return the state for people, who need not see the moment between two tasks."""
        if self.state == "idle" and self.tasks and now - self.since < IDLE_AFTER:
            return "busy"
        return self.state

    def busy_rate(self, now: float) -> WorkAmount | None:
        """Return its work per second; None unless it is busy, and while it is too early to tell."""
        return self.rate.per_second(now) if self.state_shown(now) == "busy" else None

    def enter(self, state: WorkerState, now: float, task: Task | None = None) -> None:
        """Enter a state; what was done of an unfinished task is taken back."""
        self.state, self.task, self.since, self.last_report = state, task, now, now
        self.current = WorkAmount()

    def amount(self, sequences: int, tokens: int) -> WorkAmount:
        """Return progress on the current task with the planned weight of its sequences."""
        weight = 0.0
        if self.task is not None and self.task.count:
            open_weight = self.task.weight - self.current.weight
            weight = min(open_weight, self.task.weight * sequences / self.task.count)
        return WorkAmount(sequences, tokens, weight)


class StageProgress:
    """The figures of the current stage, from the events of a run.

    ``clock`` gives seconds and never goes back. Threads that share this object hold a lock.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._devices: dict[int, Device] = {}
        self._rates: dict[str, float] = {}  # sequences per second of stages that have ended
        self._begin(StageStarted("", 0, 0, 0, 0, 0, title="", stages=0, on_workers=False))

    def _begin(self, event: StageStarted) -> None:
        now = self._clock()
        self.stage, self.number, self.stages = event.stage, event.number, event.stages
        self.stage_title = event.title
        self.tasks, self.expected, self.weight = event.todo, event.sequences, event.tokens
        self.tasks_done = self.failed = 0
        self._ahead = event.ahead
        self.encoding = event.on_workers and event.todo > 0
        self.started = self._working_since = now
        self._given_up = WorkAmount()
        self._rate = RecentRate(now)
        self._workers = {
            number: WorkerProgress(number, device, now, now, RecentRate(now))
            for number, device in self._devices.items()
            if self.encoding
        }

    def _begin_report(self, records: int) -> None:
        """Show the report as the last part of the last stage; other samples may follow."""
        self._begin(
            StageStarted(
                "report",
                self.number,
                total=0,
                todo=0,
                sequences=records,
                tokens=0,
                title="Report",
                stages=self.stages,
                on_workers=False,
                ahead=tuple(stage for stage in self._ahead if stage.stage != "report"),
            )
        )

    def update(self, event: Event) -> None:
        """Take an event into account."""
        now = self._clock()
        match event:
            case Progressed(number, sequences, tokens):
                worker = self._worker(number)
                amount = worker.amount(sequences, tokens)
                worker.current.add(amount)
                worker.rate.add(now, amount)
                worker.last_report = now
                self._rate.add(now, amount)
            case StageStarted():
                self._begin(event)
            case ReportStarted(records):
                self._begin_report(records)
            case WorkerReady(number, device):
                if not any(worker.tasks or worker.task for worker in self._workers.values()):
                    # Loading models is not progress: the rate begins with the first worker.
                    self._working_since, self._rate = now, RecentRate(now)
                self._devices[number], self.encoding = device, True
                worker = self._worker(number)
                worker.device, worker.rate = device, RecentRate(now)
                worker.enter("idle", now)
            case TaskStarted(number, task):
                self._worker(number).enter("busy", now, task)
            case TaskFinished(number, task, seconds):
                self._finish(self._worker(number), task, seconds)
            case StageFinished(stage):
                if self.encoding and self.sequences and now > self._working_since:
                    self._rates[stage] = self.sequences / (now - self._working_since)
            case SequencesFailed(_, _, failures):
                count = sum(len(failed.ids) for failed in failures)
                self.failed += count
                self._given_up.add(WorkAmount(count, 0, 0))
            case WorkerDied(number):
                self._devices.pop(number, None)
                self._worker(number).enter("dead", now)

    def _worker(self, number: int) -> WorkerProgress:
        """Return a worker, or the host, whose stages come without a :class:`WorkerReady`."""
        if number not in self._workers:
            device = self._devices.get(number, Device("cpu"))
            now = self._clock()
            self._workers[number] = WorkerProgress(number, device, now, now, RecentRate(now))
        return self._workers[number]

    def _finish(self, worker: WorkerProgress, task: Task, seconds: float) -> None:
        now = self._clock()
        rest = WorkAmount(0, 0, task.weight - worker.current.weight)
        worker.rate.add(now, rest)
        self._rate.add(now, rest)
        worker.finished.add(worker.current)
        worker.finished.add(rest)
        worker.tasks += 1
        worker.task_seconds.append(seconds)
        self.tasks_done += 1
        worker.enter("idle", now)

    @property
    def workers(self) -> list[WorkerProgress]:
        """The workers that encode, by number; none in a stage of the host."""
        return [self._workers[n] for n in sorted(self._workers)] if self.encoding else []

    @property
    def title(self) -> str:
        """Number and title of the stage: ``[4/9] Nucleotide embeddings (DNABERT-S)``."""
        return f"[{self.number}/{self.stages}] {self.stage_title}"

    @property
    def sequences(self) -> int:
        """Number of sequences that are done or given up."""
        done = sum(worker.sequences for worker in self._workers.values())
        return done + round(self._given_up.sequences)

    def part(self, sequences: int) -> float:
        """Return which part of all that is done so many sequences are, 0 to 1."""
        return sequences / max(sum(w.sequences for w in self._workers.values()), 1)

    @property
    def share(self) -> float | None:
        """Share of the stage that is done, 0 to 1, by weight, sequences or tasks, as known."""
        if self.weight and self.expected:
            done = sum(w.finished.weight + w.current.weight for w in self._workers.values())
            return min(1.0, done / self.weight)
        if self.expected:
            return min(1.0, self.sequences / self.expected)
        return min(1.0, self.tasks_done / self.tasks) if self.tasks > 1 else None

    @property
    def per_second(self) -> WorkAmount | None:
        """Work per second of all workers; None while it is too early to tell."""
        return self._rate.per_second(self._clock())

    @property
    def now(self) -> float:
        """The time of the clock."""
        return self._clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the stage began."""
        return self._clock() - self.started

    @property
    def remaining(self) -> float | None:
        """Seconds to the end of the stage; None while there is too little to judge by.

        Also None when all that is counted is done: what still goes on, such as the writing of what
        was gathered, has no measure.
        """
        share, worked = self.share, self._clock() - self._working_since
        if not share or share == 1 or (share < EARLY_SHARE and worked < EARLY_SECONDS):
            return None
        per_second = self.per_second
        if per_second is None:
            return None
        if self.weight and self.expected:
            rest, speed = (1 - share) * self.weight, per_second.weight
        elif self.expected:
            rest, speed = (1 - share) * self.expected, per_second.sequences
        else:
            rest, speed = 1 - share, share / worked
        return rest / speed if speed > 0 else None

    @property
    def run_remaining(self) -> tuple[float, bool] | None:
        """Seconds to the end of the command, and whether they count all of its stages.

        An embedding stage that is still to come counts at the speed that a stage of that name had
        before in this command; where there was none, the seconds leave it out. None while too
        little is known of the current stage.
        """
        seconds, complete = self.remaining, True
        if seconds is None:
            return None
        for stage in self._ahead:
            if stage.seconds is not None:
                seconds += stage.seconds
            elif stage.sequences is not None and stage.stage in self._rates:
                seconds += stage.sequences / self._rates[stage.stage]
            else:
                complete = complete and stage.sequences == 0
        return seconds, complete
