"""The nouns of the program. Read this page first.

A run takes one input through a list of stages (:mod:`virnucpro.run.recipe`). What a stage makes of
which files is a :class:`Task`: it is carried out unless its receipt proves that it was. A stage of
this process writes whole files. A :class:`WorkerStage` has a task for each split file; workers open
a :class:`Session` of it on a :class:`Device` (a model is loaded there, once) and call it on one
task after the other.

Everything that crosses a process boundary is a frozen, picklable dataclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    import torch

Molecule = Literal["nucleotide", "protein"]
"""What an encoder reads, and what its features are of."""
MOLECULES: tuple[Molecule, Molecule] = ("nucleotide", "protein")

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
        host: the node of a cluster that it is in; empty for this machine.
    """

    kind: Literal["cpu", "cuda"]
    index: int = -1
    name: str = "CPU"
    uuid: str = ""
    memory: int = 0
    capability: tuple[int, int] = (0, 0)
    threads: int = 1
    host: str = ""


@dataclass(frozen=True)
class OutputFile:
    """A file that a task wrote: the size, SHA-256 (hex) and number of records of its content."""

    path: Path
    bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True)
class FailedSequences:
    """Sequences that a finished task has no result for, and why."""

    error: str
    message: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class FailedRow:
    """A record of a file, by its index from 0, that cannot be computed, and why."""

    row: int
    error: str
    message: str


@dataclass(frozen=True, kw_only=True)
class TaskFigures:
    """What a finished task keeps in its receipt beside its outputs: plain values.

    A stage with figures of its own derives a dataclass from this one, which its tasks name.
    """

    notices: tuple[str, ...] = ()  # sentences for the user, now and whenever the run is continued
    failures: tuple[FailedSequences, ...] = ()  # a later run tries these sequences again
    host_wait_seconds: float = 0.0  # in which the device had nothing to compute with

    @property
    def failed(self) -> tuple[str, ...]:
        """The ids of all sequences without a result."""
        return tuple(name for failure in self.failures for name in failure.ids)


@dataclass(frozen=True)
class Task:
    """The unit of work, of retry and of resume.

    Attributes:
        stage: name of the stage that planned it.
        version: version of that stage; raised when the meaning of its code changes.
        inputs: files it reads; their contents are part of the fingerprint, their paths are not.
        outputs: files it writes; empty where their number is known only afterwards.
        receipt: where the proof of its completion is kept.
        params: what else can change the result, and nothing that cannot; the settings of the run
            and its models, which are part of every fingerprint, are not repeated.
        weight: rough cost (tokens or bytes), for scheduling and progress only.
        count: number of sequences in the task, for progress only.
        figures: the class of the figures that its receipt keeps.
        single: the first row of a search in single mode: a worker computes one record at a time to
            find those that cannot be computed; None for the task itself.
        trial: in a worker, the half-open range of records of a step of such a search: they are
            computed, and nothing is written.
        excluded: records that are known to fail. They are left out, and named in the figures.
        run_index: that of its run among those that share the workers.
        reason: why it has to be carried out, in words.
        number: the number of the split file, from 1.
        reads: files it reads that follow from its inputs; they may be gone when it is finished.
        optional: files it writes only where it finds something for them, and removes otherwise.
    """

    stage: str
    version: int
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    receipt: Path
    params: Mapping[str, Json] = field(default_factory=dict)
    weight: int = 0
    count: int = 0
    figures: type[TaskFigures] = TaskFigures
    single: int | None = None
    trial: tuple[int, int] | None = None
    excluded: tuple[FailedRow, ...] = ()
    run_index: int = 0
    reason: str = ""
    number: int = 0
    reads: tuple[Path, ...] = ()
    optional: tuple[Path, ...] = ()

    @property
    def search_file(self) -> Path:
        """Where single mode writes down how far it is: a temporary file, swept by a later start."""
        return self.receipt.with_name(f".{self.receipt.stem}.search.0.tmp")

    @property
    def name(self) -> str:
        """The name of the first output, or of the stage; for messages."""
        return self.outputs[0].name if self.outputs else self.stage


@dataclass(frozen=True)
class TaskResult:
    """A task that was carried out in ``seconds``, with the files it wrote and its figures."""

    task: Task
    outputs: tuple[OutputFile, ...]
    figures: TaskFigures = field(default_factory=TaskFigures)
    seconds: float = 0.0


ReportProgress = Callable[[int, int], None]
"""Called by a session, first when it begins, with the sequences and tokens just finished."""


@dataclass(frozen=True)
class Measurements:
    """What a session on a device has measured since it was opened."""

    peak_memory: int = 0  # the most bytes of device memory that it has held; 0 on a CPU
    compiled_calls: int = 0  # of blocks, with batches of several sequences
    uncompiled_calls: int = 0  # for which the compiled code could not be used, which is slower


class Session:
    """A stage opened on the device of a worker, which carries out its tasks.

    A stage without a model takes this class with a function; a model derives from it.

    Attributes:
        facts: what it computes with, for the log and the run's record: plain JSON values. ``found``
            says where the batch ``budget`` comes from: ``measured``, ``default``, ``given`` by the
            user, or ``kept`` from an earlier start.
    """

    facts: Mapping[str, Json]

    def __init__(self, run: Callable[[Task, ReportProgress], TaskResult]) -> None:
        self._run, self.facts = run, {}

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        """Carry out ``task`` except for writing it, and return what writes it.

        Where the device is not a CPU, another thread calls that, while the next task is computed.
        """
        result = self._run(task, report)
        return lambda: result

    def prepare(self, task: Task) -> None:
        """Begin to read a task that will be computed next. Returns at once and raises nothing."""

    def check(self) -> None:
        """Compute a sequence that is known to be good, also in a second thread.

        If that raises, a failed task is not the fault of its sequences.
        """

    def shrink(self) -> bool:
        """Halve the batches, after an out-of-memory error; lasts as long as the session.

        False where the last task already went one sequence at a time, and nothing was changed.
        """
        return False

    def measured(self) -> Measurements:
        """Return what it has measured so far; asked for after every task."""
        return Measurements()


class WorkerStage(ABC):
    """A stage that is carried out by workers, a split file at a time.

    Attributes:
        name: unique in a run; part of every fingerprint and of the names of receipts.
        title: the name for people.
        version: part of every fingerprint. Raise it when the same inputs give another output, so
            that finished runs are brought up to date.
        divisible: whether its sessions understand ``trial`` and ``excluded`` of a task. Where they
            do not, a task that cannot be computed ends the run.
    """

    name: str
    title: str
    version: ClassVar[int] = 1
    divisible: ClassVar[bool] = False
    # Whether its files are flushed to the disk; else a power cut costs those of the last seconds.
    durable: ClassVar[bool] = True

    @abstractmethod
    def open(self, device: Device) -> Session:
        """Load what the tasks need. Called once per worker, in it."""


class Encoder(Protocol):
    """Turns sequences into embeddings. ``dim`` is the width of an embedding."""

    host_wait_seconds: float
    """Time in all in which it had no tokens ready to compute with."""

    @property
    def dim(self) -> int:
        """Numbers an embedding."""

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """Embed ``sequences``; float32 ``[len(sequences), dim]`` on the CPU, in their order."""

    def facts(self) -> Mapping[str, Json]:
        """Budget and kernels; see :class:`Session`."""

    def shrink(self) -> bool:
        """Smaller batches from now on; see :class:`Session`."""
