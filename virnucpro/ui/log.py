"""The log file: every event with its time, whatever is shown on the terminal."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TextIO

from virnucpro.errors import OutputError
from virnucpro.events import (
    Event,
    FileFinished,
    Notice,
    Progressed,
    StageFinished,
    StageStarted,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
    WorkerReport,
)
from virnucpro.formatting import counted, memory_size, printable, seconds_text
from virnucpro.store.disk import unwritable
from virnucpro.ui.words import full_label, piece


def describe(event: Event, places: Mapping[int, str] | None = None) -> str | None:
    """An event in words; None for one that is only for a progress bar.

    ``places`` are the devices of the workers; one without is this process itself.
    """
    match event:
        case StageStarted():
            why = f" because {'; '.join(event.reasons)}" if event.reasons else ""
            return f"stage {event.number} {event.stage}: {counted(event.todo, 'piece')} to do{why}"
        case StageFinished():
            return (
                f"stage {event.number} {event.stage} finished after {seconds_text(event.seconds)}"
            )
        case TaskStarted(worker, task):
            return f"{_place(worker, places)} started {piece(task)} ({task.count:,} sequences)"
        case TaskFinished(worker, task, seconds):
            return (
                f"{_place(worker, places)} finished {piece(task)} after {seconds_text(seconds, 2)}"
            )
        case TaskFailed(worker, failed):
            what = f"{piece(failed.task)}: {failed.error}: {failed.message}"
            return f"{_place(worker, places)} gave up {what}"
        case WorkerReady() | WorkerDied() | WorkerReport():
            return _of_worker(event)
        case Notice(level, message):
            return f"{level}: {message}"
        case FileFinished(_, task):
            return f"{task.outputs[0].name} is complete: {task.count:,} sequences"
        case Progressed():
            return None


def _place(worker: int, places: Mapping[int, str] | None) -> str:
    return (places or {}).get(worker, "host")


def _of_worker(event: WorkerReady | WorkerDied | WorkerReport) -> str:
    where = full_label(event.worker, event.device)
    match event:
        case WorkerReady(_, device, stage, seconds):
            uuid = f" ({device.uuid})" if device.uuid else ""
            facts = ", ".join(f"{name} {value}" for name, value in event.facts.items())
            known = f": {facts}" if facts else ""
            return f"{where}{uuid} ready for {stage} after {seconds_text(seconds)}{known}"
        case WorkerDied():
            return f"worker {event.worker} on {where} died: {event.reason}"
        case WorkerReport():
            share = 100 * event.idle / max(event.busy + event.idle, 1e-9)
            peak = f", peak memory {memory_size(event.peak_memory)}" if event.peak_memory else ""
            return (
                f"{where}: {counted(event.tasks, 'piece')} of {event.stage}, "
                f"idle {share:.1f} % of {seconds_text(event.busy + event.idle)}{peak}"
            )


@dataclass
class _File:
    """What became of a file that is worked on in spans."""

    sequences: int = 0
    pieces: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class RunLog:
    """Appends to a log file.

    ``path`` is opened at the first stage: before that it is not yet certain that the run may
    touch its directory. What happened earlier is written then.
    """

    def __init__(self, path: Path | None, *, at_once: bool = False) -> None:
        """``at_once`` opens the file now: the user named it.

        Raises:
            OutputError: the file cannot be written.
        """
        self._path = path
        self._stream: TextIO | None = None
        self._early: list[str] = []
        self._lock = threading.Lock()
        self._places: dict[int, str] = {}
        self._files: dict[str, _File] = {}
        if at_once:
            self._open()

    def _open(self) -> None:
        if self._path is None:
            return
        with unwritable(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self._path.open("a", encoding="utf-8", errors="backslashreplace")

    def show(self, event: Event) -> str | None:
        """Write a line for an event, and return its text.

        Raises:
            OutputError: the file cannot be written.
        """
        if isinstance(event, StageStarted):
            self._places.clear()  # each stage announces its workers anew; the host's have none
            if self._stream is None:
                self._open()
        elif isinstance(event, WorkerReady):
            self._places[event.worker] = full_label(event.worker, event.device)
        elif isinstance(event, TaskFinished) and event.task.span is not None:
            self._count(event)
        elif isinstance(event, StageFinished):
            self._list_files()
        if text := describe(event, self._places):
            self.line(text)
        return text

    def _count(self, event: TaskFinished) -> None:
        file = self._files.setdefault(event.task.inputs[0].name, _File())
        file.sequences += event.task.count
        file.seconds += event.seconds
        file.pieces[_place(event.worker, self._places)] += 1

    def _list_files(self) -> None:
        for name in sorted(self._files, key=lambda name: (len(name), name)):  # 2 before 10
            file = self._files[name]
            where = ", ".join(f"{place} ({n})" for place, n in sorted(file.pieces.items()))
            done = f"{file.sequences:,} sequences in {counted(file.pieces.total(), 'piece')}"
            self.line(f"{name}: {done}, {seconds_text(file.seconds, 2)} of work, on {where}")
        self._files.clear()

    def line(self, text: str) -> None:
        """Write a line. Safe to call from any thread.

        Raises:
            OutputError: the file cannot be written.
        """
        with self._lock:
            self._early.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n")
            if self._stream is not None and self._path is not None:
                with unwritable(self._path):
                    self._stream.writelines(self._early)
                    self._stream.flush()
                self._early.clear()

    def __enter__(self) -> RunLog:
        """The log itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Note how the run ended, and close."""
        with suppress(OSError, OutputError):  # a full disk has been said already
            if kind is not None:
                self.line(f"ended by {kind.__name__}: {error}")
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
