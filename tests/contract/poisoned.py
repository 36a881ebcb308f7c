"""An executor under which the protein encoder fails on some sequences; all else is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from virnucpro.contracts import Device, Receipts, ReportProgress, Session, Stage, Task, TaskResult
from virnucpro.events import Emit
from virnucpro.executors.executor import Executor
from virnucpro.executors.pool import WorkerPool
from virnucpro.io.fasta import read_fasta


class PoisonedSession(Session):
    """Raises over each of the sequences ``poison``."""

    def __init__(self, session: Session, poison: frozenset[str]) -> None:
        super().__init__(lambda task, report: session.compute(task, report)())
        self._poison = poison

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        start, stop = task.trial or (0, None)
        excluded = {failed.row for failed in task.excluded}
        records = enumerate(read_fasta(task.inputs[0], start, stop), start)
        names = [name for row, (name, _) in records if row not in excluded]
        if not self._poison.isdisjoint(names):
            raise ValueError("cannot embed this")
        return super().compute(task, report)


@dataclass(frozen=True)
class PoisonedStage(Stage):
    """A stage whose sessions are poisoned."""

    stage: Stage
    poison: frozenset[str]

    runs_on = "worker"
    divisible = True

    @property
    def name(self) -> str:
        return self.stage.name

    def plan(self, receipts: Receipts) -> list[Task]:
        return self.stage.plan(receipts)

    def opened_for(self, sequences: int, budgets: Mapping[str, int]) -> PoisonedStage:
        return PoisonedStage(self.stage.opened_for(sequences, budgets), self.poison)

    def open(self, device: Device) -> Session:
        return PoisonedSession(self.stage.open(device), self.poison)


class PoisonedExecutor(Executor):
    """Carries out the stage of the protein embeddings poisoned."""

    def __init__(self, pool: WorkerPool, poison: Iterable[str]) -> None:
        super().__init__(pool, host_threads=1)
        self._poison = frozenset(poison)

    def run(self, stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[TaskResult]:
        if stage.name == "protein_embeddings":
            stage = PoisonedStage(stage, self._poison)
        return super().run(stage, tasks, emit)
