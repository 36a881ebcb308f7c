"""What happens during a command, for whoever shows it. The work itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from virnucpro.contracts import Device, FailedSequences, Json, Measurements, Task


class Event:
    """Something that happened."""


@dataclass(frozen=True)
class StageStarted(Event):
    """A stage begins: ``todo`` tasks are stale, with so many ``sequences`` in all.

    ``reasons`` says why, in words, the most frequent first. ``stages`` is the number of stages of
    the run; ``number`` counts them from 1. ``title`` names the stage for people. ``on_workers``
    says where it runs: there, a task is a split file. ``ahead`` names the embedding stages that
    follow.
    """

    stage: str
    number: int
    todo: int
    sequences: int
    reasons: tuple[str, ...] = ()
    title: str = field(kw_only=True)
    stages: int = field(kw_only=True)
    on_workers: bool = field(kw_only=True)
    ahead: Sequence[str] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class StageFinished(Event):
    """A stage ended after ``seconds``."""

    stage: str
    number: int
    seconds: float


@dataclass(frozen=True)
class WorkerReady(Event):
    """A worker has loaded the model of a stage and takes tasks.

    ``facts`` are those of :class:`virnucpro.contracts.Session`.
    """

    worker: int
    device: Device
    stage: str
    seconds: float
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskStarted(Event):
    """A worker took a task."""

    worker: int
    task: Task


@dataclass(frozen=True)
class Progressed(Event):
    """A worker finished this many sequences and tokens since its last report.

    They are negative if they are to be done again.
    """

    worker: int
    sequences: int
    tokens: int


@dataclass(frozen=True)
class TaskFinished(Event):
    """A worker finished a task; sequences that were given up get no score."""

    worker: int
    task: Task
    seconds: float
    failures: tuple[FailedSequences, ...] = ()


@dataclass(frozen=True)
class WorkerDied(Event):
    """A worker process ended or was ended; ``reason`` says how. Another may take its place.

    One that is ``lost`` is gone with its device, for which its tasks are not to blame.
    """

    worker: int
    device: Device
    reason: str
    lost: bool = False


@dataclass(frozen=True)
class WorkerReport(Event):
    """How a worker spent a stage: seconds at work and waiting for work, and what it measured."""

    worker: int
    device: Device
    stage: str
    busy: float
    idle: float
    tasks: int
    measured: Measurements = field(default_factory=Measurements)


@dataclass(frozen=True)
class Notice(Event):
    """Something a person should know. ``level`` is ``info`` or ``warning``."""

    level: str
    message: str


@dataclass(frozen=True)
class StepStarted(Event):
    """A step of ``total`` units begins; the step before it is finished."""

    title: str
    total: int


@dataclass(frozen=True)
class StepAdvanced(Event):
    """``amount`` more units of the step are finished."""

    amount: int


@dataclass(frozen=True)
class EpochEnded(Event):
    """An epoch has ended: its row of ``Savepoint.history``, and the ``best`` epoch so far."""

    row: Mapping[str, float]
    best: int


Show = Callable[[Event], None]
"""Takes an event to whoever shows it."""
