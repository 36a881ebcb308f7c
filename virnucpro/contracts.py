"""The nouns of the program. Read this page first.

A run is nine :class:`Stage` s. Each *plans* :class:`Task` s; one loop in ``pipeline`` asks the
ledger which of them are stale, hands those to an :class:`Executor` and commits what comes back.
The executor opens a :class:`Session` of the stage on a :class:`Device` (that is where a model is
loaded, once a worker) and calls it on one task after the other.

Everything that crosses a process boundary is a frozen, picklable dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from virnucpro.events import Event

Json = Any  # what json.dumps takes: str, int, float, bool, None, lists and string-keyed mappings


@dataclass(frozen=True)
class Device:
    """One compute device, as found without opening it.

    Attributes:
        kind: ``cpu`` or ``cuda``.
        index: number among the visible devices; -1 for a CPU.
        name: what the vendor calls it.
        uuid: stable identity of a GPU (``GPU-...`` or ``MIG-...``); empty for a CPU.
        memory: bytes of device memory; 0 for a CPU.
        capability: CUDA compute capability; (0, 0) for a CPU.
        threads: host threads that a worker on this device may use.
    """

    kind: Literal["cpu", "cuda"]
    index: int = -1
    name: str = "CPU"
    uuid: str = ""
    memory: int = 0
    capability: tuple[int, int] = (0, 0)
    threads: int = 1


@dataclass(frozen=True)
class OutputFile:
    """A file that a task wrote: its content's size, SHA-256 (hex) and number of records."""

    path: Path
    bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True)
class Task:
    """The unit of work, of retry and of resume.

    Attributes:
        stage: name of the stage that planned it.
        version: that stage's version; raised when the meaning of its code changes.
        inputs: files it reads; their contents are part of the fingerprint, their paths are not.
        outputs: files it writes; empty where their number is known only afterwards.
        receipt: where the proof of its completion is kept.
        params: everything else that can change the answer, and nothing that cannot.
        weight: rough cost (tokens or bytes), for scheduling and progress only.
        span: half-open range of records of the input that this task covers; None for all.
        count: number of sequences in the task, for progress only.
    """

    stage: str
    version: int
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    receipt: Path
    params: Mapping[str, Json] = field(default_factory=dict)
    weight: int = 0
    span: tuple[int, int] | None = None
    count: int = 0

    @property
    def name(self) -> str:
        """Short, for logs: the first output, or the stage, with the span where there is one."""
        base = self.outputs[0].name if self.outputs else self.stage
        return base if self.span is None else f"{base}[{self.span[0]}:{self.span[1]}]"


@dataclass(frozen=True)
class TaskResult:
    """A task that was carried out.

    ``facts`` are figures to keep in its receipt. Three have a meaning to the engine: ``failed``,
    ids without a result, ``notices``, sentences to show the user, and ``host_wait``, seconds in
    which the device had nothing to compute with.
    """

    task: Task
    outputs: tuple[OutputFile, ...]
    facts: Mapping[str, Json] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class FailedTask:
    """A task that cannot be carried out, after every retry and bisection.

    ``ids`` are the sequences it covers, which get no embedding.
    """

    task: Task
    error: str
    message: str
    ids: tuple[str, ...] = ()


TaskOutcome = TaskResult | FailedTask
ReportProgress = Callable[[int, int], None]
"""Called by a session while it works, with the sequences and the tokens just finished."""


class Session(Protocol):
    """A stage opened on a device: a callable on one task."""

    def __call__(self, task: Task, report: ReportProgress) -> TaskResult:
        """Carry out ``task`` and write its outputs. Raises whatever went wrong."""
        ...


@runtime_checkable
class ModelSession(Protocol):
    """What a session on a device offers beside being callable; one without a device need not.

    An executor asks ``isinstance(session, Describes)``.
    """

    def facts(self) -> Mapping[str, Json]:
        """What it computes with, for the log and the run's record: plain JSON values.

        ``budget`` and its ``unit`` (``tokens`` or ``sequences`` a batch), ``found`` (how the
        budget came about: ``measured``, ``default``, ``given`` or ``kept``), ``precision``,
        ``attention`` (the kernel), ``inference_mode``, ``compiled``, ``compile_seconds`` and, where
        that was tried in vain, ``compile_failed``. Sent once, when the session is ready.
        """
        ...

    def shrink(self) -> bool:
        """Halve the batches, after an out-of-memory error; lasts as long as the session.

        False where the last task already went one sequence at a time, and nothing was changed.
        """
        ...

    def peak_memory(self) -> int:
        """The most bytes of device memory it has held since it opened; 0 on a CPU."""
        ...


class Receipts(Protocol):
    """What a stage may ask of the ledger when it plans."""

    def outputs(self, stage: str) -> tuple[OutputFile, ...]:
        """The outputs of a finished whole-file stage, in the order it wrote them."""
        ...

    def facts(self, receipt: Path) -> Mapping[str, Json]:
        """The figures that a finished task left in its receipt."""
        ...


class Stage(Protocol):
    """One step of the pipeline: it says what is to be done, and can do it.

    ``kind`` ``gpu`` work goes to the workers of the executor, ``cpu`` work stays in the parent,
    where a session may be called on several tasks at once, in threads.
    """

    @property
    def name(self) -> str:
        """Unique; part of every fingerprint."""
        ...

    @property
    def kind(self) -> Literal["cpu", "gpu"]:
        """Where its tasks run."""
        ...

    def plan(self, receipts: Receipts) -> list[Task]:
        """All tasks of the stage, done or not, the same whatever the hardware."""
        ...

    def split(self, task: Task) -> list[Task]:
        """The spans that a stale task is carried out in; ``[task]`` where it has none."""
        ...

    def halve(self, task: Task) -> tuple[Task, Task] | None:
        """Two smaller tasks that cover the same records, or None for a single record."""
        ...

    def join(
        self, task: Task, parts: Sequence[TaskResult], failed: Sequence[FailedTask]
    ) -> TaskResult:
        """Assemble the outputs of ``task`` from its spans, which are in file order.

        Called in a thread, of two files at a time: it changes nothing but those outputs.
        """
        ...

    def ids(self, task: Task) -> tuple[str, ...]:
        """The sequence ids a task covers, to name what failed."""
        ...

    def open(self, device: Device) -> Session:
        """Load what the tasks need. Called once a worker, in the worker."""
        ...


class Executor(Protocol):
    """Carries out tasks somewhere: in this process, in worker processes, on a cluster."""

    def run(
        self, stage: Stage, tasks: Iterable[Task], emit: Callable[[Event], None]
    ) -> Iterator[TaskOutcome]:
        """Yield one outcome a task (more where one had to be halved), in any order."""
        ...

    def close(self) -> None:
        """Stop the workers. Safe to call twice."""
        ...


class Encoder(Protocol):
    """Turns sequences into embeddings. ``dim`` is the width of an embedding."""

    host_wait_seconds: float
    """Time in all in which it had no tokens ready to compute with."""

    @property
    def dim(self) -> int:
        """Numbers an embedding."""
        ...

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """Embed ``sequences``; float32 ``[len(sequences), dim]`` on the CPU, in their order."""
        ...

    def facts(self) -> Mapping[str, Json]:
        """Budget and kernels; see :class:`ModelSession`."""
        ...

    def shrink(self) -> bool:
        """Smaller batches from now on; see :class:`ModelSession`."""
        ...
