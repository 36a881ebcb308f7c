"""A stage for the executors' tests: it measures sequences, and fails where their ids say so.

Ids that begin with ``poison`` raise, ``exit`` end the process, ``killed`` end it by SIGKILL, and
``full`` report a full disk.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from virnucpro.bio.fasta import read_fasta
from virnucpro.checkpoint.disk import Disk
from virnucpro.contracts import Device, Done, Failed, Receipts, Report, Session, Task
from virnucpro.errors import OutputError


@dataclass(frozen=True)
class Counting:
    """Writes ``id length`` lines for the records of FASTA files, in spans of ``span``."""

    files: tuple[Path, ...]
    folder: Path
    span: int = 10
    seconds_a_base: float = 0.0
    opening: Literal["well", "raises", "dies"] = "well"

    name = "counting"
    version = 1
    kind: Literal["gpu"] = "gpu"

    def plan(self, receipts: Receipts | None = None) -> list[Task]:
        tasks = []
        for path in self.files:
            rows = sum(1 for _ in read_fasta(path))
            out = self.folder / f"{path.stem}.txt"
            task = Task("counting", 1, (path,), (out,), out.with_suffix(".done"), count=rows)
            tasks.append(task)
        return tasks

    def split(self, task: Task) -> list[Task]:
        bounds = range(0, task.count, self.span)
        return [self._piece(task, a, min(a + self.span, task.count)) for a in bounds]

    def _piece(self, task: Task, start: int, stop: int) -> Task:
        out = self.folder / f"{task.inputs[0].stem}.parts" / f"{start:06d}-{stop:06d}.txt"
        weight = sum(len(s) for _, s in read_fasta(task.inputs[0], start, stop))
        return replace(
            task,
            outputs=(out,),
            receipt=out.with_suffix(".txt.done"),
            span=(start, stop),
            count=stop - start,
            weight=weight,
        )

    def halve(self, task: Task) -> tuple[Task, Task] | None:
        assert task.span is not None
        start, stop = task.span
        middle = (start + stop) // 2
        if stop - start < 2:
            return None
        return self._piece(task, start, middle), self._piece(task, middle, stop)

    def ids(self, task: Task) -> tuple[str, ...]:
        assert task.span is not None
        return tuple(name for name, _ in read_fasta(task.inputs[0], *task.span))

    def join(self, task: Task, parts: Sequence[Done], failed: Sequence[Failed]) -> Done:
        text = b"".join(part.outputs[0].path.read_bytes() for part in parts)
        out = Disk().save(task.outputs[0], text, text.count(b"\n"))
        lost = [{"error": f.error, "message": f.message, "ids": list(f.ids)} for f in failed]
        return Done(task, (out,), {"failed": lost} if lost else {})

    def open(self, device: Device) -> Session:
        if self.opening == "raises":
            raise ValueError("this model is damaged")
        if self.opening == "dies":
            os._exit(9)
        return self._count

    def _count(self, task: Task, report: Report) -> Done:
        assert task.span is not None
        lines = []
        for name, sequence in read_fasta(task.inputs[0], *task.span):
            _misbehave(name)
            time.sleep(self.seconds_a_base * len(sequence))
            lines.append(f"{name} {len(sequence)}\n")
            report(1, len(sequence))
        return Done(task, (Disk().save(task.outputs[0], "".join(lines).encode(), len(lines)),))


def _misbehave(name: str) -> None:
    if name.startswith("poison"):
        raise ValueError(f"cannot digest {name}")
    if name.startswith("exit"):
        os._exit(7)
    if name.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("full"):
        raise OutputError("the disk is full")
