"""What the stages that work on whole files in the parent process have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from virnucpro.contracts import (
    Device,
    FailedTask,
    Json,
    Receipts,
    ReportProgress,
    Session,
    Task,
    TaskResult,
)
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk


@dataclass(frozen=True)
class HostStage:
    """A stage without spans, carried out on the host. Subclasses plan tasks and ``run`` them."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    kind: ClassVar[Literal["cpu", "gpu"]] = "cpu"

    layout: Layout
    disk: Disk

    def plan(self, receipts: Receipts) -> list[Task]:
        """All tasks of the stage."""
        raise NotImplementedError

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Carry out one task."""
        raise NotImplementedError

    def open(self, device: Device) -> Session:
        """Nothing to load: the session is :meth:`run`."""
        return self.run

    def split(self, task: Task) -> list[Task]:
        """A task is one piece of work."""
        return [task]

    def halve(self, task: Task) -> tuple[Task, Task] | None:
        """A task cannot be made smaller."""
        return None

    def join(
        self, task: Task, parts: Sequence[TaskResult], failed: Sequence[FailedTask]
    ) -> TaskResult:
        """Never called: there are no spans to join."""
        raise NotImplementedError

    def ids(self, task: Task) -> tuple[str, ...]:
        """A failure of such a stage ends the run, so there is nothing to name."""
        return ()

    def whole(
        self,
        inputs: tuple[Path, ...],
        outputs: tuple[Path, ...],
        params: Mapping[str, Json],
        count: int = 0,
    ) -> Task:
        """The single task of a stage that handles everything at once; ``count`` sequences."""
        receipt = self.layout.receipt(self.name)
        return Task(self.name, self.version, inputs, outputs, receipt, params, count=count)
