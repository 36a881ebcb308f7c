"""A clock that is set by hand, invented GPUs, tasks of work, and terminals in memory."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from virnucpro.contracts import Device, Task
from virnucpro.devices import GpuReading
from virnucpro.events import (
    Event,
    Progressed,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerReady,
)
from virnucpro.ui.dashboard import Dashboard

STAGE = "protein_embeddings"
FULL: GpuReading = (34 * 2**30, 140 * 2**30, 99, 61, 612.0)


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


def terminal(width: int = 80) -> Console:
    return Console(
        file=Terminal(), width=width, height=30, force_terminal=True, highlight=False,
        legacy_windows=False, color_system=None, _environ={"TERM": "xterm"},
    )  # fmt: skip


def piped(**options: object) -> Console:
    return Console(file=io.StringIO(), width=200, highlight=False, **options)  # type: ignore[arg-type]


def gpu(number: int, host: str = "") -> Device:
    name = "NVIDIA H200"
    return Device("cuda", number, name, f"GPU-{number}", 140 * 2**30, (9, 0), host=host)


def file_task(number: int, count: int = 100) -> Task:
    """The task of a split file."""
    source, output = Path(f"/run/output_{number}.fa"), Path(f"/run/output_{number}_ESM.pt")
    return Task(STAGE, 1, (source,), (output,), Path("/run/x.done"), count=count)


def begin(tasks: int = 10, count: int = 100) -> StageStarted:
    place = {"title": "ESM-2", "stages": 9, "on_workers": True}
    return StageStarted(STAGE, 5, tasks, tasks * count, **place)  # type: ignore[arg-type]


def host_stage(title: str, number: int, todo: int = 1, sequences: int = 0) -> StageStarted:
    place = {"title": title, "stages": 9, "on_workers": False}
    return StageStarted(title.lower(), number, todo, sequences, **place)  # type: ignore[arg-type]


class Worked:
    """A dashboard, and the clock by which its workers work."""

    def __init__(self, *devices: Device, stage: StageStarted | None = None) -> None:
        self.hand = Hand()
        self.board = Dashboard(self.hand)
        if devices:
            self.update(stage or begin())
        for number, device in enumerate(devices):
            self.update(WorkerReady(number, device, STAGE, 1.0))

    def update(self, *events: Event) -> None:
        for event in events:
            self.board.update(event)

    def work(self, worker: int, number: int, seconds: float) -> None:
        """Let a worker do a whole file of 100 sequences."""
        self.update(TaskStarted(worker, file_task(number)))
        self.hand.now += seconds
        self.update(Progressed(worker, 100, 7000))
        self.update(TaskFinished(worker, file_task(number), seconds))

    def lines(self, width: int = 80, encoding: str = "utf-8") -> list[str]:
        """The picture in a terminal."""
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        console = Console(file=stream, width=width, color_system=None, legacy_windows=False)
        console.print(self.board.picture(width))
        stream.seek(0)
        return stream.read().splitlines()
