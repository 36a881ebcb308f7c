"""An executor under which the protein encoder fails on some sequences; all else is unchanged."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from virnucpro.contracts import (
    Device,
    FailedTask,
    Receipts,
    ReportProgress,
    Session,
    SpannedStage,
    Stage,
    Task,
    TaskOutcome,
    TaskResult,
)
from virnucpro.events import Emit
from virnucpro.executors.executor import Executor
from virnucpro.executors.pool import WorkerPool
from virnucpro.io.fasta import read_fasta


@dataclass(frozen=True)
class PoisonedSession:
    """Raises on tasks with one of the sequences ``poison``; each task takes ``seconds`` more."""

    session: Session
    poison: frozenset[str]
    seconds: float

    def __call__(self, task: Task, report: ReportProgress) -> TaskResult:
        time.sleep(self.seconds)
        names = [name for name, _ in read_fasta(task.inputs[0], *(task.span or (0, None)))]
        if not self.poison.isdisjoint(names):
            raise ValueError("cannot embed this")
        return self.session(task, report)


@dataclass(frozen=True)
class PoisonedStage(SpannedStage):
    """A stage whose sessions are poisoned."""

    stage: SpannedStage
    poison: frozenset[str]
    seconds: float = 0.0

    runs_on = "worker"

    @property
    def name(self) -> str:
        return self.stage.name

    def plan(self, receipts: Receipts) -> list[Task]:
        return self.stage.plan(receipts)

    def split(self, task: Task) -> list[Task]:
        return self.stage.split(task)

    def halve(self, task: Task) -> tuple[Task, Task] | None:
        return self.stage.halve(task)

    def ids(self, task: Task) -> tuple[str, ...]:
        return self.stage.ids(task)

    def join(
        self, task: Task, parts: Sequence[TaskResult], failures: Sequence[FailedTask]
    ) -> TaskResult:
        return self.stage.join(task, parts, failures)

    def open(self, device: Device) -> Session:
        return PoisonedSession(self.stage.open(device), self.poison, self.seconds)


class PoisonedExecutor(Executor):
    """Carries out the stage of the protein embeddings poisoned."""

    def __init__(self, pool: WorkerPool, poison: Iterable[str], seconds: float = 0.0) -> None:
        super().__init__(pool, host_threads=1)
        self._poison = frozenset(poison)
        self._seconds = seconds

    def run(self, stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[TaskOutcome]:
        if stage.name == "protein_embeddings":
            assert isinstance(stage, SpannedStage)
            stage = PoisonedStage(stage, self._poison, self._seconds)
        return super().run(stage, tasks, emit)
