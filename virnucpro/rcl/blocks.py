"""Proteins that the workers of a run take block by block: a FASTA file, and a task, for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from virnucpro.contracts import Json, Receipts, ReportProgress, Stage, Task, TaskResult
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout, existing_paths
from virnucpro.rcl.features import INDEX
from virnucpro.stages.base import HostStage
from virnucpro.store.disk import Disk

ProteinBlock = Sequence[tuple[str, str]]
"""Ids and residues of proteins that are computed together."""


class BlockLayout(Layout):
    """The files of a run whose tasks are blocks of proteins; its results are beside each other."""

    def block(self, number: int) -> Path:
        """Return the FASTA file of block ``number``, from 1."""
        return self.state / f"proteins_{number:04d}.fa"

    def owned(self) -> list[Path]:
        """Return everything of the run that exists, the state last."""
        outputs = sorted(self.root.glob(f"{self.stem}_[0-9]*.*"))
        return existing_paths(*outputs, self.root / INDEX, self.state)

    def output(self, number: int, suffix: str) -> Path:
        """Return what is made of a block."""
        return self.root / f"{self.stem}_{number:04d}.{suffix}"


@dataclass(frozen=True)
class ReadingStage(HostStage):
    """Writes the proteins as FASTA files, in blocks; ``params`` and ``source`` decide them."""

    name: ClassVar[str] = "reading_proteins"
    intermediate: ClassVar[bool] = True

    layout: BlockLayout
    source: tuple[Path, ...]
    params: Mapping[str, Json]
    read: Callable[[], Iterable[ProteinBlock]]

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task; how many files it writes is known afterwards."""
        return [self.whole(self.source, (), self.params)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write all blocks."""
        saved = []
        for number, block in enumerate(self.read(), 1):
            content = fasta_bytes(block)
            saved.append(self.disk.save(self.layout.block(number), content, len(block)))
            report(len(block), 0)
        return TaskResult(task, tuple(saved))


@dataclass(frozen=True)
class BlockStage(Stage):
    """Has a model compute something of each block of proteins."""

    layout: BlockLayout
    disk: Disk

    runs_on: ClassVar[Literal["host", "worker"]] = "worker"
    version: ClassVar[int] = 1
    suffix: ClassVar[str]  # of the file that is made of a block

    @property
    @abstractmethod
    def params(self) -> dict[str, Json]:
        """What decides the outputs, beside the proteins."""

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per block."""
        tasks = []
        for number, block in enumerate(receipts.outputs(ReadingStage.name), 1):
            output = self.layout.output(number, self.suffix)
            receipt = self.layout.state / f"{output.name}.done"
            task = (self.name, self.version, (block.path,), (output,), receipt, self.params)
            tasks.append(Task(*task, weight=block.bytes, count=block.rows))
        return tasks
