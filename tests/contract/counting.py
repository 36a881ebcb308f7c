"""A stage for the tests of workers: it measures sequences, and fails where their ids say so.

What goes wrong is the word an id begins with:

    poison   raises                     exit     ends the process
    killed   ends it by SIGKILL         segfault ends it by SIGSEGV
    full     reports a full disk        cuda     a sticky device error
    report   is killed while it reports, before the task is finished
    unwritable  raises when the task is computed and about to be written
    fat      takes all memory unless it is alone in its batch; ``obese`` even then
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.contracts import (
    Device,
    FailedSequences,
    Measurements,
    ReportProgress,
    Session,
    Task,
    TaskFigures,
    TaskResult,
    WorkerStage,
)
from virnucpro.errors import OutputError
from virnucpro.io.fasta import read_fasta
from virnucpro.store.disk import Disk

Opening = Literal["well", "segfault", "dies on 1", "hangs on 1"]


@dataclass(frozen=True)
class Counting(WorkerStage):
    """Writes ``id length`` lines for the records of FASTA files."""

    files: tuple[Path, ...]
    folder: Path
    seconds_per_base: float = 0.0
    opening: Opening = "well"

    name, title = "counting", "Counting"
    divisible = True

    def tasks(self) -> list[Task]:
        tasks = []
        for path in self.files:
            lengths = [len(sequence) for _, sequence in read_fasta(path)]
            out = self.folder / f"{path.stem}.txt"
            receipt = out.with_suffix(".done")
            task = Task("counting", 1, (path,), (out,), receipt, {}, sum(lengths), len(lengths))
            tasks.append(task)
        return tasks

    def open(self, device: Device) -> Session:
        if self.opening == "segfault":
            ctypes.string_at(0)
        if self.opening == "dies on 1" and device.index == 1:
            os._exit(9)
        if self.opening == "hangs on 1" and device.index == 1:
            time.sleep(3600)
        return CountingSession(self)


class CountingSession(Session):
    """Counts in batches of so many records at most; ``shrink`` halves them."""

    def __init__(self, stage: Counting) -> None:
        self._stage = stage
        self._batch = 8
        self.facts = {"budget": self._batch, "unit": "sequences"}

    def shrink(self) -> bool:
        if self._batch == 1:
            return False
        self._batch //= 2
        return True

    def measured(self) -> Measurements:
        return Measurements(1000 * self._batch)

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        start, stop = task.trial or (0, None)
        rows = dict(enumerate(read_fasta(task.inputs[0], start, stop), start))
        failures = tuple(
            FailedSequences(failed.error, failed.message, (rows.pop(failed.row)[0],))
            for failed in task.excluded
            if failed.row in rows
        )
        records = list(rows.values())
        lines = []
        for first in range(0, len(records), self._batch):
            batch = records[first : first + self._batch]
            _fill_memory([name for name, _ in batch])
            time.sleep(self._stage.seconds_per_base * sum(len(text) for _, text in batch))
            for name, sequence in batch:
                _misbehave(name)
                lines.append(f"{name} {len(sequence)}\n")
                report(1, len(sequence))

        def write() -> TaskResult:
            if any(name.startswith("report") for name, _ in records):
                os.kill(os.getpid(), signal.SIGKILL)
            if any(name.startswith("unwritable") for name, _ in records):
                raise ArithmeticError("a result is not a number")
            if task.trial is not None:
                return TaskResult(task, ())
            output = Disk().save(task.outputs[0], "".join(lines).encode(), len(lines))
            return TaskResult(task, (output,), TaskFigures(failures=failures))

        return write


def _fill_memory(names: list[str]) -> None:
    fat = any(name.startswith("fat") for name in names) and len(names) > 1
    if fat or any(name.startswith("obese") for name in names):
        raise MemoryError("tried to allocate too much")


def _misbehave(name: str) -> None:
    match name.rstrip("0123456789"):
        case "poison":
            raise ValueError(f"cannot digest {name}")
        case "exit":
            os._exit(7)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "full":
            raise OutputError("the disk is full")
        case "cuda":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
