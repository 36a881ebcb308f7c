"""What parent and worker say to each other. Frozen and picklable; nothing else crosses the pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from virnucpro.contracts import Json, Stage, Task, TaskResult

FaultKind = Literal["data", "memory", "device", "fatal"]


# Down


@dataclass(frozen=True)
class Open:
    """Load what a stage needs; the previous stage's model is freed first.

    ``halvings``: how often to halve the batches at once, after what earlier tasks have shown.
    """

    stage: Stage
    halvings: int = 0


@dataclass(frozen=True)
class Run:
    """Carry out a task of the open stage."""

    task: Task


@dataclass(frozen=True)
class Stop:
    """Leave."""


# Up


@dataclass(frozen=True)
class Ready:
    """The stage is open; ``facts`` are those of its session (``contracts.ModelSession``)."""

    seconds: float
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """Sequences and tokens finished since the last message; less than zero: to be done again."""

    sequences: int
    tokens: int


@dataclass(frozen=True)
class Finished:
    """A task was carried out, in ``seconds``.

    ``halvings``: how often the batches had to be halved for it. ``peak_memory`` is that of the
    session so far.
    """

    done: TaskResult
    seconds: float
    halvings: int = 0
    peak_memory: int = 0


@dataclass(frozen=True)
class Fault:
    """A task, or the opening of a stage (``task`` None), went wrong after ``seconds``.

    ``fatal`` is an error that the whole run shares (a damaged model, a full disk): ``error`` is
    its class in ``virnucpro.errors``. ``data`` may be the fault of a single sequence; ``memory``
    means that the device had too little, whatever the batch; ``device``, that it answers nothing
    any more in this process.
    """

    task: Task | None
    kind: FaultKind
    error: str
    message: str
    seconds: float = 0.0


Down = Open | Run | Stop
Up = Ready | Progress | Finished | Fault
