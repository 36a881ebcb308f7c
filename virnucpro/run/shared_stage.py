"""The same stage of several runs, carried out as one: a worker opens it once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from virnucpro.contracts import (
    Device,
    FailedTask,
    Receipts,
    Session,
    SpannedStage,
    Stage,
    Task,
    TaskResult,
)


@dataclass(frozen=True)
class SharedStage(SpannedStage):
    """Stages of several runs that open the same model.

    Attributes:
        opened: the stage of one of the runs, which is opened for all of them. A session reads and
            writes only what its tasks name.
        owners: the stage that each task belongs to, by the inputs of the task.
    """

    opened: Stage
    owners: Mapping[tuple[Path, ...], SpannedStage]

    runs_on: ClassVar[Literal["host", "worker"]] = "worker"

    @property
    def name(self) -> str:
        """The name that all of them have."""
        return self.opened.name

    @property
    def title(self) -> str:
        """The same for people."""
        return self.opened.title

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return the tasks of all runs whose split files ``receipts`` knows."""
        stages = {id(stage): stage for stage in self.owners.values()}
        return [task for stage in stages.values() for task in stage.plan(receipts)]

    def writing_to(self, disk: object) -> SharedStage:
        """Return the stage as it is opened where it writes through another disk."""
        return replace(self, opened=self.opened.writing_to(disk))

    def open(self, device: Device) -> Session:
        """Load the model."""
        return self.opened.open(device)

    def split(self, task: Task) -> list[Task]:
        """Return the spans of a task."""
        return self.owners[task.inputs].split(task)

    def halve(self, task: Task) -> tuple[Task, Task] | None:
        """Return the two halves of a span; None for a single sequence."""
        return self.owners[task.inputs].halve(task)

    def ids(self, task: Task) -> tuple[str, ...]:
        """Return the ids of the sequences in a span."""
        return self.owners[task.inputs].ids(task)

    def join(
        self, task: Task, parts: Sequence[TaskResult], failures: Sequence[FailedTask]
    ) -> TaskResult:
        """Put the spans of a file together."""
        return self.owners[task.inputs].join(task, parts, failures)
