"""What the stages that work on whole files in the parent process have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.contracts import Json, Stage, Task
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk


@dataclass(frozen=True)
class HostStage(Stage):
    """A stage of the host. Subclasses plan tasks and ``run`` them.

    Attributes:
        layout: every path of the run; the only place that a stage takes paths from.
        disk: what writes files; the only way that a stage writes.
    """

    layout: Layout
    disk: Disk

    def whole(
        self,
        inputs: tuple[Path, ...],
        outputs: tuple[Path, ...],
        params: Mapping[str, Json],
        receipt: Path | None = None,
        **more: Any,
    ) -> Task:
        """Return the task of a stage that handles everything at once; ``more`` are fields of it.

        A stage with a task per file names the ``receipt`` of each.
        """
        receipt = receipt or self.layout.receipt(self.name)
        return Task(self.name, self.version, inputs, outputs, receipt, params, **more)
