"""A stage for the executors' tests: it measures sequences, and fails where their ids say so.

What goes wrong is the word an id begins with:

    poison   raises                     exit     ends the process
    killed   ends it by SIGKILL         segfault ends it by SIGSEGV
    full     reports a full disk        hang     never comes back
    cuda     a sticky device error
    report   is killed while it reports, before the task is finished
    unwritable  raises when the task is computed and about to be written
    fat      takes all memory unless it is alone in its batch; ``obese`` even then
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from virnucpro.contracts import (
    Device,
    FailedSequences,
    Measurements,
    Receipts,
    ReportProgress,
    Session,
    Stage,
    Task,
    TaskFigures,
    TaskResult,
)
from virnucpro.errors import OutputError
from virnucpro.io.fasta import read_fasta
from virnucpro.store.disk import Disk

Opening = Literal["well", "segfault", "dies on 1", "hangs on 1", "third time"]


@dataclass(frozen=True)
class Counting(Stage):
    """Writes ``id length`` lines for the records of FASTA files.

    ``wrong`` is the index of a device that computes wrong values only. ``batch`` is in sequences.
    """

    files: tuple[Path, ...]
    folder: Path
    seconds_per_base: float = 0.0
    opening: Opening = "well"
    wrong: int = -9
    batch: int = 8
    disk: Disk = field(default_factory=Disk)

    name, title = "counting", "Counting"
    runs_on: ClassVar[Literal["host", "worker"]] = "worker"
    divisible = True

    def plan(self, receipts: Receipts | None = None) -> list[Task]:
        tasks = []
        for path in self.files:
            lengths = [len(sequence) for _, sequence in read_fasta(path)]
            out = self.folder / f"{path.stem}.txt"
            receipt = out.with_suffix(".done")
            task = Task("counting", 1, (path,), (out,), receipt, {}, sum(lengths), len(lengths))
            tasks.append(task)
        return tasks

    def open(self, device: Device) -> Session:
        if self.opening == "third time":
            for error in (OSError(116, "Stale file handle"), MemoryError("CUDA out of memory")):
                if _first_time(self.folder / f"{type(error).__name__}-{device.index}"):
                    raise error
        if self.opening == "segfault":
            ctypes.string_at(0)
        if self.opening == "dies on 1" and device.index == 1:
            os._exit(9)
        if self.opening == "hangs on 1" and device.index == 1:
            time.sleep(3600)
        return CountingSession(self, device)


class CountingSession(Session):
    """Counts in batches of so many records at most; ``shrink`` halves them."""

    def __init__(self, stage: Counting, device: Device) -> None:
        self._stage = stage
        self._device = device
        self._batch = stage.batch
        self._reader = ThreadPoolExecutor(1)
        self._prepared: tuple[Task, Future[list[tuple[str, str]]]] | None = None
        self.facts = {"budget": self._batch, "unit": "sequences"}

    def shrink(self) -> bool:
        if self._batch == 1:
            return False
        self._batch //= 2
        return True

    def measured(self) -> Measurements:
        return Measurements(1000 * self._batch)

    def check(self) -> None:
        if self._device.index == self._stage.wrong:
            raise ArithmeticError("not finite")

    def prepare(self, task: Task) -> None:
        self._prepared = task, self._reader.submit(self._read, task)

    def _read(self, task: Task) -> list[tuple[str, str]]:
        return list(read_fasta(task.inputs[0], *(task.trial or (0, None))))

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        prepared, self._prepared = self._prepared, None
        is_prepared = prepared is not None and prepared[0] == task
        records = prepared[1].result() if prepared and is_prepared else self._read(task)
        start = task.trial[0] if task.trial else 0
        excluded = {failed.row - start: failed for failed in task.excluded}
        failures = tuple(
            FailedSequences(failed.error, failed.message, (records[row][0],))
            for row, failed in excluded.items()
            if 0 <= row < len(records)
        )
        records = [record for row, record in enumerate(records) if row not in excluded]
        lines = []
        for batch in _batches(records, self._batch):
            _fill_memory([name for name, _ in batch])
            time.sleep(self._stage.seconds_per_base * sum(len(text) for _, text in batch))
            for name, sequence in batch:
                _misbehave(name)
                lines.append(f"{name} {len(sequence)}\n")
                report(1, len(sequence))

        def write() -> TaskResult:
            self.check()
            if any(name.startswith("report") for name, _ in records):
                os.kill(os.getpid(), signal.SIGKILL)
            if any(name.startswith("unwritable") for name, _ in records):
                raise ArithmeticError("a result is not a number")
            if task.trial is not None:
                return TaskResult(task, ())
            output = self._stage.disk.save(task.outputs[0], "".join(lines).encode(), len(lines))
            return TaskResult(task, (output,), TaskFigures(failures=failures))

        return write


def _batches(records: list[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    for start in range(0, len(records), size):
        yield records[start : start + size]


def _first_time(mark: Path) -> bool:
    first = not mark.exists()
    mark.touch()
    return first


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
        case "hang":
            time.sleep(3600)
        case "cuda":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
