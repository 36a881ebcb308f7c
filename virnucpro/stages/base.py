"""What the stages that write whole files in this process have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from virnucpro.contracts import Json, ReportProgress, Task, TaskResult
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger


@dataclass(frozen=True)
class HostStage(ABC):
    """A stage that this process carries out: it makes files of whole files.

    Attributes:
        name: unique in a run; part of every fingerprint and of the names of receipts.
        title: the name for people.
        version: part of every fingerprint. Raise it when the same inputs give another output, so
            that finished runs are brought up to date.
        durable: whether its files are flushed to the disk. Where a power cut has torn others, which
            their digests tell, a stage that takes seconds is done again.
        layout: every path of the run; the only place that a stage takes paths from.
        disk: what writes files; the only way that a stage writes.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    version: ClassVar[int] = 1
    durable: ClassVar[bool] = True

    layout: Layout
    disk: Disk

    @abstractmethod
    def task(self, ledger: Ledger) -> Task:
        """Return what it makes of which files, the same whatever the hardware."""

    @abstractmethod
    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Carry out its task. What is raised ends the run."""

    def whole(
        self,
        inputs: tuple[Path, ...],
        outputs: tuple[Path, ...],
        params: Mapping[str, Json] | None = None,
        receipt: Path | None = None,
        **more: Any,
    ) -> Task:
        """Return the task of this stage; ``more`` are fields of it.

        ``params`` decide its files beside its inputs and the identity of the run.
        """
        receipt = receipt or self.layout.receipt(self.name)
        return Task(self.name, self.version, inputs, outputs, receipt, params or {}, **more)
