"""Proteins that the workers of a run take block by block: a FASTA file, and a task, for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from virnucpro.contracts import Json, ReportProgress, Task, TaskResult, WorkerStage
from virnucpro.errors import ResumeRefusedError
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout, existing_paths
from virnucpro.run.recipe import on_workers
from virnucpro.run.run import Run
from virnucpro.stages.base import HostStage
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger
from virnucpro.store.work import read_state
from virnucpro.workers.scheduler import Workers

ProteinBlock = Sequence[tuple[str, str]]
"""Ids and residues of proteins that are computed together."""


class BlockLayout(Layout):
    """The files of a run whose tasks are blocks of proteins; ``names`` are its results, by kind.

    What is made of a block is a result, too, where it is ``kept``.
    """

    def __init__(self, root: Path, stem: str, names: Mapping[str, str], *, kept: bool) -> None:
        super().__init__(root, stem)
        self.results = {kind: root / name for kind, name in names.items()}
        self.outputs = root if kept else self.state

    def block(self, number: int) -> Path:
        """Return the FASTA file of block ``number``, from 1."""
        return self.state / f"proteins_{number:04d}.fa"

    def output(self, number: int, suffix: str) -> Path:
        """Return what is made of a block."""
        return self.outputs / f"{self.stem}_{number:04d}.{suffix}"

    def top_files(self) -> list[Path]:
        """The files of this run in the output directory, also those of an earlier state."""
        earlier = None
        with suppress(ResumeRefusedError):  # a newer version wrote it, and --force starts over
            earlier = read_state(self)
        names = earlier.decided_by.get("files", ()) if earlier else ()
        files = [self.root / Path(str(name)).name for name in names]
        outputs = sorted(self.root.glob(f"{self.stem}_[0-9][0-9][0-9][0-9]*.safetensors"))
        return [*self.results.values(), self.run_record, *files, *outputs]

    def intermediate_files(self) -> list[Path]:
        """What a finished run does not need: its blocks, what is made of them, and receipts."""
        suffixes = (".fa", ".msgpack", ".done")
        files = [path for path in self.files_in_state() if path.suffix in suffixes]
        return [path for path in files if path != self.finished]

    def owned(self) -> list[Path]:
        """All files of this run that exist, those of its state last."""
        return existing_paths(*self.top_files(), *self.files_in_state())


@dataclass(frozen=True)
class ReadingStage(HostStage):
    """Writes the proteins as FASTA files, in blocks; ``params`` and ``source`` decide them."""

    name, title = "reading_proteins", "Reading proteins"

    layout: BlockLayout
    source: tuple[Path, ...]
    params: Mapping[str, Json]
    read: Callable[[], Iterable[ProteinBlock]]

    def task(self, ledger: Ledger) -> Task:
        """Return the task; how many files it writes is known afterwards."""
        return self.whole(self.source, (), self.params)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write all blocks."""
        saved = []
        for number, block in enumerate(self.read(), 1):
            content = fasta_bytes(block)
            saved.append(self.disk.save(self.layout.block(number), content, len(block)))
            report(len(block), 0)
        return TaskResult(task, tuple(saved))


@dataclass(frozen=True)
class BlockStage(WorkerStage):
    """Has a model compute something of each block of proteins; ``params`` decide what."""

    layout: BlockLayout
    disk: Disk
    params: Mapping[str, Json]

    suffix: ClassVar[str]  # of the file that is made of a block

    def tasks(self, ledger: Ledger) -> list[Task]:
        """Return one task per block; the receipts stand with the state of the run."""
        tasks = []
        for number, block in enumerate(ledger.outputs(ReadingStage.name), 1):
            task = Task(
                self.name,
                self.version,
                inputs=(block.path,),
                outputs=(self.layout.output(number, self.suffix),),
                receipt=self.layout.receipt(f"{self.name}_{number:04d}"),
                params=self.params,
                weight=block.bytes,
                count=block.rows,
                number=number,
            )
            tasks.append(task)
        return tasks


def carry_out_tasks(run: Run, stage: WorkerStage, tasks: Sequence[Task], workers: Workers) -> None:
    """Have workers carry out those tasks of a stage of one run that are not proved."""
    run.expect(stage, tasks)
    todo = []
    for task in tasks:
        if reason := run.ledger.reason(task):
            todo.append(replace(task, reason=reason))
        else:
            run.note(task)
    for _ in on_workers([run], stage, todo, workers, run.show):
        pass
