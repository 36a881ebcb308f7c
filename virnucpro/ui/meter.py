"""How far the current stage is and what each worker does, from events alone.

A piece that is begun again, after a worker's death or cut in halves, takes back what had been
counted of it: figures never exceed what there is to do.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from virnucpro.contracts import Device, Task
from virnucpro.events import (
    Event,
    FileFinished,
    Progressed,
    StageStarted,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.ui.rate import Amount, Rate

TITLES = {
    "chunking": "Chunking",
    "translation": "Translation",
    "splitting": "Splitting",
    "dnabert": "DNABERT-S",
    "esm": "ESM-2",
    "merging": "Merging",
    "prediction": "Prediction",
    "consensus": "Consensus",
    "output": "Output",
}
ENCODERS = ("dnabert", "esm")
EARLY_SHARE, EARLY_SECONDS = 0.02, 10.0  # of a stage; before either no time is forecast
PAUSE = 2.0  # seconds without a task before a worker is called idle

Clock = Callable[[], float]
State = Literal["loading", "idle", "busy", "dead"]


@dataclass
class Worker:
    """One worker in the current stage.

    ``since`` is when its state or task began, ``last`` when it last said anything, ``seconds``
    what its latest tasks took.
    """

    number: int
    device: Device
    since: float
    last: float
    rate: Rate
    state: State = "loading"
    task: Task | None = None
    tasks: int = 0
    finished: Amount = field(default_factory=Amount)
    current: Amount = field(default_factory=Amount)
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    @property
    def sequences(self) -> int:
        """Sequences done in this stage."""
        return round(self.finished.sequences + self.current.sequences)

    @property
    def tokens(self) -> int:
        """Tokens done in this stage."""
        return round(self.finished.tokens + self.current.tokens)

    @property
    def usual_seconds(self) -> float | None:
        """What a piece usually takes this worker; None before its first."""
        return statistics.median(self.seconds) if self.seconds else None

    def shown(self, now: float) -> str:
        """Its state, in which the moment between two pieces is no rest."""
        between = self.state == "idle" and self.tasks and now - self.since < PAUSE
        return "busy" if between else self.state

    def turn(self, state: State, now: float, task: Task | None = None) -> None:
        """Go over into a state; what was done of an unfinished task is taken back."""
        self.state, self.task, self.since, self.last = state, task, now, now
        self.current = Amount()

    def amount(self, sequences: int, tokens: int) -> Amount:
        """Progress on the current task, with the weight that its sequences stand for."""
        weight = 0.0
        if self.task is not None and self.task.count:
            left = self.task.weight - self.current.weight
            weight = min(left, self.task.weight * sequences / self.task.count)
        return Amount(sequences, tokens, weight)


class Meter:
    """The figures of a stage. ``clock`` gives seconds and never goes back.

    Not safe for threads: whoever shares it holds a lock.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._devices: dict[int, Device] = {}
        self._begin(StageStarted("", 0, 0, 0, 0, 0))

    def _begin(self, event: StageStarted) -> None:
        now = self._clock()
        self.stage, self.number, self.stages = event.stage, event.number, event.stages
        self.pieces, self.expected, self.weight = event.todo, event.sequences, event.tokens
        self.pieces_done = self.failed = 0
        self.files, self.files_done = event.files, 0
        self.encoding = event.stage in ENCODERS and event.todo > 0
        self.started = self._working_since = now
        self._given_up = Amount()
        self._rate = Rate(now)
        self._workers = {
            number: Worker(number, device, now, now, Rate(now))
            for number, device in self._devices.items()
            if self.encoding
        }

    def update(self, event: Event) -> None:
        """Take note of an event."""
        match event:
            case Progressed(number, sequences, tokens):
                self._progress(self._worker(number), sequences, tokens)
            case StageStarted():
                self._begin(event)
            case WorkerReady(number, device):
                self._ready(number, device)
            case TaskStarted(number, task):
                self._worker(number).turn("busy", self._clock(), task)
            case TaskFinished(number, task, seconds):
                self._finish(self._worker(number), task, seconds)
            case FileFinished():
                self.files_done += 1
            case TaskFailed(number, failed):
                self.failed += len(failed.ids) or failed.task.count or 1
                self._given_up.add(Amount(failed.task.count, 0, failed.task.weight))
                if (worker := self._worker(number)).state == "busy":
                    worker.turn("idle", self._clock())
            case WorkerDied(number):
                self._devices.pop(number, None)
                self._worker(number).turn("dead", self._clock())

    def _worker(self, number: int) -> Worker:
        """A worker, or the host: its stages come without a :class:`WorkerReady`."""
        if number not in self._workers:
            device = self._devices.get(number, Device("cpu"))
            now = self._clock()
            self._workers[number] = Worker(number, device, now, now, Rate(now))
        return self._workers[number]

    def _ready(self, number: int, device: Device) -> None:
        now = self._clock()
        if not any(worker.tasks or worker.task for worker in self._workers.values()):
            self._working_since, self._rate = now, Rate(now)  # loading models is no progress
        self._devices[number], self.encoding = device, True
        worker = self._worker(number)
        worker.device, worker.rate = device, Rate(now)
        worker.turn("idle", now)

    def _progress(self, worker: Worker, sequences: int, tokens: int) -> None:
        now = self._clock()
        amount = worker.amount(sequences, tokens)
        worker.current.add(amount)
        worker.rate.add(now, amount)
        worker.last = now
        self._rate.add(now, amount)

    def _finish(self, worker: Worker, task: Task, seconds: float) -> None:
        now = self._clock()
        rest = Amount(0, 0, task.weight - worker.current.weight)
        worker.rate.add(now, rest)
        self._rate.add(now, rest)
        worker.finished.add(worker.current)
        worker.finished.add(rest)
        worker.tasks += 1
        worker.seconds.append(seconds)
        self.pieces_done += 1
        worker.turn("idle", now)

    @property
    def workers(self) -> list[Worker]:
        """Those that encode, by number; none in a stage of the host."""
        return [self._workers[n] for n in sorted(self._workers)] if self.encoding else []

    @property
    def title(self) -> str:
        """``[4/9] DNABERT-S``."""
        return f"[{self.number}/{self.stages}] {TITLES.get(self.stage, self.stage)}"

    @property
    def sequences(self) -> int:
        """Sequences dealt with, given up ones among them."""
        done = sum(worker.sequences for worker in self._workers.values())
        return done + round(self._given_up.sequences)

    def part(self, worker: Worker) -> float:
        """What a worker did of all that is done, 0 to 1."""
        return worker.sequences / max(sum(w.sequences for w in self._workers.values()), 1)

    @property
    def share(self) -> float | None:
        """How much of the stage is done, 0 to 1; by weight, sequences or pieces, as known."""
        if self.weight and self.expected:
            done = sum(w.finished.weight + w.current.weight for w in self._workers.values())
            return min(1.0, (done + self._given_up.weight) / self.weight)
        if self.expected:
            return min(1.0, self.sequences / self.expected)
        return min(1.0, self.pieces_done / self.pieces) if self.pieces > 1 else None

    @property
    def pace(self) -> Amount | None:
        """Amounts a second of all workers; None while it is too early to tell."""
        return self._rate.pace(self._clock())

    @property
    def now(self) -> float:
        """The clock's time."""
        return self._clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the stage began."""
        return self._clock() - self.started

    @property
    def remaining(self) -> float | None:
        """Seconds to the end of the stage; None while there is too little to judge by."""
        share, worked = self.share, self._clock() - self._working_since
        if not share or (share < EARLY_SHARE and worked < EARLY_SECONDS):
            return None
        pace = self.pace
        if pace is None:
            return None
        if self.weight and self.expected:
            left, speed = (1 - share) * self.weight, pace.weight
        elif self.expected:
            left, speed = (1 - share) * self.expected, pace.sequences
        else:
            left, speed = 1 - share, share / worked
        return left / speed if speed > 0 else None
