"""The log file: every event with its time, whatever is shown on the terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from virnucpro.errors import OutputError
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    ReportFinished,
    ReportStarted,
    SequencesFailed,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
    WorkerReport,
)
from virnucpro.formatting import counted, memory_size, percent, printable, seconds_text
from virnucpro.store.disk import explain_write_errors, open_without_links
from virnucpro.ui.labels import worker_name


class LogFile:
    """A text file of lines, each with its time. Without a path, nothing is written.

    A run opens its file at its first stage: before that it is not yet certain that it may touch
    its directory. What was logged earlier is written then.
    """

    def __init__(self, path: Path | None, *, open_now: bool = False) -> None:
        """``open_now`` opens the file at once, because the user named it.

        Raises:
            OutputError: the file cannot be written.
        """
        self._path = path
        self._stream: TextIO | None = None
        self._waiting: list[str] = []
        self._lock = threading.Lock()
        if open_now:
            self.open()

    def open(self) -> None:
        """Open the file, unless it is open already.

        Raises:
            OutputError: the file cannot be written.
        """
        if self._path is None or self._stream is not None:
            return
        with explain_write_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = open(  # noqa: SIM115
                self._path,
                "a",
                encoding="utf-8",
                errors="backslashreplace",
                opener=open_without_links,
            )

    def line(self, text: str) -> None:
        """Write a line. Any thread may call this.

        Raises:
            OutputError: the file cannot be written.
        """
        if self._path is None:
            return
        with self._lock:
            self._waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n")
            if self._stream is not None:
                with explain_write_errors(self._path):
                    self._stream.writelines(self._waiting)
                    self._stream.flush()
                self._waiting.clear()

    def close(self, error: BaseException | None = None) -> None:
        """Close the file; ``error`` is what ended the command, where it did not succeed."""
        with suppress(OSError, OutputError):  # a full disk has been reported already
            if error is not None:
                self.line(f"ended by {type(error).__name__}: {error}")
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()


class EventLog:
    """Writes the events of a run to a log file."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._workers: dict[int, str] = {}

    def write(self, event: Event) -> str | None:
        """Write a line for an event, and return its text; None for mere progress.

        Raises:
            OutputError: the file cannot be written.
        """
        if isinstance(event, StageStarted):
            self._workers.clear()  # each stage announces its workers anew; the host is none
            self._log.open()
        elif isinstance(event, WorkerReady):
            self._workers[event.worker] = worker_name(event.worker, event.device)
        if text := describe(event, self._workers):
            self._log.line(text)
        return text


def describe(event: Event, workers: Mapping[int, str] | None = None) -> str | None:
    """Return an event in words; None for one that only moves a progress bar.

    ``workers`` are the names of the workers by number; one without a name is this process.
    """
    names = workers or {}
    match event:
        case StageStarted():
            reasons = f" because {'; '.join(event.reasons)}" if event.reasons else ""
            tasks = counted(event.todo, "task")
            return f"stage {event.number} {event.stage}: {tasks} to do{reasons}"
        case StageFinished(stage, number, seconds):
            return f"stage {number} {stage} finished after {seconds_text(seconds)}"
        case ReportStarted(records):
            return f"report of {counted(records, 'record')}"
        case ReportFinished(seconds):
            return f"report written after {seconds_text(seconds)}"
        case WorkerReady(worker, device, stage, seconds):
            uuid = f" ({device.uuid})" if device.uuid else ""
            facts = ", ".join(f"{name} {value}" for name, value in event.facts.items())
            details = f": {facts}" if facts else ""
            name = worker_name(worker, device)
            return f"{name}{uuid} ready for {stage} after {seconds_text(seconds)}{details}"
        case TaskStarted(worker, task):
            sequences = counted(task.count, "sequence")
            return f"{names.get(worker, 'host')} started {task.name} ({sequences})"
        case TaskFinished(worker, task, seconds):
            duration = seconds_text(seconds, 2)
            return f"{names.get(worker, 'host')} finished {task.name} after {duration}"
        case SequencesFailed(worker, task, failures):
            reasons = "; ".join(
                f"{counted(len(failed.ids), 'sequence')} ({failed.error}: {failed.message})"
                for failed in failures
            )
            return f"{names.get(worker, 'host')} gave up in {task.name}: {reasons}"
        case WorkerDied(worker, device, reason):
            return f"worker {worker} on {worker_name(worker, device)} died: {reason}"
        case WorkerReport():
            seconds = event.busy + event.idle
            peak_memory = event.figures.peak_memory
            peak = f", peak memory {memory_size(peak_memory)}" if peak_memory else ""
            return (
                f"{worker_name(event.worker, event.device)}: {counted(event.tasks, 'task')} of "
                f"{event.stage}, idle {percent(event.idle / max(seconds, 1e-9), 1)} of "
                f"{seconds_text(seconds)}{peak}"
            )
        case Notice(level, message):
            return f"{level}: {message}"
        case Progressed():
            return None
