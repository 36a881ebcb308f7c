"""Workers under which the protein encoder fails on some sequences; all else is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from virnucpro.contracts import Device, ReportProgress, Session, Task, TaskResult, WorkerStage
from virnucpro.events import Show
from virnucpro.io.fasta import read_fasta
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.workers.pool import WorkerPool
from virnucpro.workers.scheduler import Workers


@dataclass(frozen=True)
class PoisonedStage(EmbeddingStage):
    """A stage whose sessions raise over each of the sequences ``poison``."""

    poison: frozenset[str] = frozenset()

    def open(self, device: Device) -> Session:
        session = super().open(device)
        embed = session.compute

        def compute(task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
            start, stop = task.trial or (0, None)
            excluded = {failed.row for failed in task.excluded}
            records = enumerate(read_fasta(task.inputs[0], start, stop), start)
            if any(name in self.poison for row, (name, _) in records if row not in excluded):
                raise ValueError("cannot embed this")
            return embed(task, report)

        session.compute = compute
        return session


class PoisonedWorkers(Workers):
    """Carries out the stage of the protein embeddings poisoned."""

    def __init__(self, pool: WorkerPool, poison: Iterable[str]) -> None:
        super().__init__(pool)
        self._poison = frozenset(poison)

    def carry_out(
        self, stage: WorkerStage, tasks: Iterable[Task], show: Show
    ) -> Iterator[TaskResult]:
        if stage.name == "protein_embeddings":
            stage = PoisonedStage(**vars(stage), poison=self._poison)
        return super().carry_out(stage, tasks, show)
