"""Proteins that the workers of a run take block by block: a FASTA file, and a task, for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from virnucpro.contracts import Device, Json, Receipts, Stage, Task
from virnucpro.errors import InputError
from virnucpro.events import Emit
from virnucpro.executors.executor import open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout, existing_paths
from virnucpro.rcl.features import INDEX
from virnucpro.run.engine import execute
from virnucpro.run.run import Run
from virnucpro.settings import MachineSettings
from virnucpro.store.disk import Disk
from virnucpro.store.state import RunState

ProteinBlock = Sequence[tuple[str, str]]
"""Ids and residues of proteins that are computed together."""


class BlockLayout(Layout):
    """The files of a run whose tasks are blocks of proteins."""

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
class BlockStage(Stage):
    """Has a model compute something of each block of proteins.

    Attributes:
        layout: of the run.
        disk: what writes.
        blocks: proteins and residues of each block.
    """

    layout: BlockLayout
    disk: Disk
    blocks: tuple[tuple[int, int], ...]

    runs_on: ClassVar[Literal["host", "worker"]] = "worker"
    version: ClassVar[int] = 1

    @property
    @abstractmethod
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the files that are made of a block."""

    @property
    @abstractmethod
    def params(self) -> dict[str, Json]:
        """What decides the outputs, beside the proteins."""

    def outputs(self, suffix: str) -> list[Path]:
        """Return the outputs of all blocks with a suffix."""
        return [self.layout.output(number, suffix) for number in range(1, len(self.blocks) + 1)]

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per block."""
        tasks = []
        for number, (proteins, residues) in enumerate(self.blocks, 1):
            outputs = tuple(self.layout.output(number, suffix) for suffix in self.suffixes)
            receipt = self.layout.state / f"{outputs[0].name}.done"
            inputs = (self.layout.block(number),)
            task = Task(self.name, self.version, inputs, outputs, receipt, self.params)
            tasks.append(replace(task, weight=residues, count=proteins))
        return tasks


def save_blocks(
    layout: BlockLayout, disk: Disk, blocks: Iterable[ProteinBlock]
) -> tuple[tuple[int, int], ...]:
    """Write blocks that are not there yet; return the proteins and the residues of each."""
    sizes = []
    for number, block in enumerate(blocks, 1):
        content, path = fasta_bytes(block), layout.block(number)
        if not path.exists() or path.read_bytes() != content:
            disk.save(path, content)
        sizes.append((len(block), sum(len(sequence) for _, sequence in block)))
    return tuple(sizes)


def compute_blocks(
    stage: BlockStage,
    state: RunState,
    devices: Sequence[Device],
    machine: MachineSettings,
    command: str,
    emit: Emit,
    interruption: Interruption | None,
) -> int:
    """Compute all blocks that are not finished; return how many these were.

    Raises:
        InputError: a block could not be computed.
        VirNucProError: whatever ends a run; what was finished stays.
    """
    layout, disk = stage.layout, stage.disk
    outputs = [path for suffix in stage.suffixes for path in stage.outputs(suffix)]
    disk.sweep(layout.root, {path.name for path in outputs})
    # Not more workers than blocks: each takes seconds to start.
    executor = open_executor(devices[: max(len(stage.blocks), 1)], machine, interruption)
    run = Run(layout, disk, [stage], state, command=command)
    try:
        execute([run], executor, emit)
    finally:
        executor.close()
    if failed := [path for path in outputs if not path.exists()]:
        raise InputError(
            f"{len(failed):,} blocks of proteins could not be computed, {failed[0].name} among "
            f"them: the same command tries them again"
        )
    return run.computed.total()
