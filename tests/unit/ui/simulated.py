"""A clock that is set by hand, invented GPUs, tasks of work, and a terminal in memory."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from virnucpro.contracts import Device, Task
from virnucpro.events import StageStarted
from virnucpro.ui.readings import GpuReading


class Hand:
    """A clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class FixedReader:
    """Readings that are given; remembers whether it was closed."""

    def __init__(self, reading: GpuReading | None = None) -> None:
        self.reading = reading
        self.closed = False

    def read(self, device: Device) -> GpuReading | None:
        return self.reading

    def close(self) -> None:
        self.closed = True


FULL = GpuReading(34 * 2**30, 140 * 2**30, 99, 61, 612.0)


def terminal(width: int = 80, **options: object) -> Console:
    return Console(
        file=Terminal(), width=width, height=30, force_terminal=True, highlight=False,
        legacy_windows=False, _environ={"TERM": "xterm"}, **options,
    )  # type: ignore[arg-type] # fmt: skip


def gpu(number: int, name: str = "NVIDIA H200") -> Device:
    return Device("cuda", number, name, f"GPU-{number}", 140 * 2**30, (9, 0))


def file_task(number: int, count: int = 100, weight: int = 10_000) -> Task:
    """The task of a split file."""
    return Task(
        "protein_embeddings",
        1,
        (Path(f"/run/output_{number}.fa"),),
        (Path(f"/run/output_{number}_ESM.pt"),),
        Path("/run/x.done"),
        {},
        weight,
        count,
    )


def begin(tasks: int = 10, count: int = 100, weight: int = 10_000) -> StageStarted:
    return StageStarted(
        "protein_embeddings",
        5,
        1,
        tasks,
        tasks * count,
        tasks * weight,
        title="ESM-2",
        stages=9,
        on_workers=True,
    )
