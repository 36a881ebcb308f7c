"""The log file: every event with its time, whatever is shown on the terminal."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from virnucpro.contracts import Device
from virnucpro.errors import OutputError, UsageError
from virnucpro.events import (
    Event,
    Notice,
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


@dataclass
class LogFile:
    """A text file of lines, each with its time. Without a path, nothing is written.

    A run opens its file at its first stage: before that it is not yet certain that it may touch
    its directory. What was logged earlier is written then. What writes raises OutputError.
    """

    _path: Path | None
    _stream: TextIO | None = None
    _waiting: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _workers: dict[int, str] = field(default_factory=dict)

    def open(self) -> None:
        """Open the file, unless it is open already."""
        if self._path is None or self._stream is not None:
            return
        with explain_write_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.is_file():
                with self._path.open("rb") as earlier:
                    if not re.match(rb"\d{4}-\d\d-|\Z", earlier.readline(8)):
                        raise UsageError(f"{self._path} is not a log: name another file")
            descriptor = open_without_links(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            self._stream = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def line(self, text: str) -> None:
        """Write a line. Any thread may call this."""
        if self._path is None:
            return
        with self._lock, explain_write_errors(self._path):
            self._waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n")
            if self._stream is not None:
                self._stream.writelines(self._waiting)
                self._stream.flush()
                self._waiting.clear()

    def event(self, event: Event) -> str | None:
        """Write a line for an event, and return its text; None for mere progress."""
        if isinstance(event, StageStarted):
            self._workers.clear()  # each stage announces its workers anew; the host is none
            self.open()
        elif isinstance(event, WorkerReady):
            self._workers[event.worker] = worker_name(event.worker, event.device)
        if text := describe(event, self._workers):
            self.line(text)
        return text

    def close(self, error: BaseException | None = None) -> None:
        """Close the file; ``error`` is what ended the command, where it did not succeed."""
        with suppress(OSError, OutputError):  # a full disk has been reported already
            if error is not None:
                self.line(f"ended by {type(error).__name__}: {error}")
            if self._stream is not None:
                self._stream.close()


def describe(event: Event, workers: Mapping[int, str]) -> str | None:
    """Return an event in words; None for one that only moves a progress bar.

    ``workers`` are the names of the workers by number; one without a name is this process.
    """
    name = workers.get(getattr(event, "worker", -1), "host")
    match event:
        case StageStarted(stage, number, todo):
            reasons = f" because {'; '.join(event.reasons)}" if event.reasons else ""
            return f"stage {number} {stage}: {counted(todo, 'task')} to do{reasons}"
        case StageFinished(stage, number, seconds):
            return f"stage {number} {stage} finished after {seconds_text(seconds)}"
        case WorkerReady(worker, device, stage, seconds):
            uuid = f" ({device.uuid})" if device.uuid else ""
            facts = ", ".join(f"{fact} {value}" for fact, value in event.facts.items())
            ready = f"{worker_name(worker, device)}{uuid} ready for {stage} after"
            return f"{ready} {seconds_text(seconds)}{f': {facts}' if facts else ''}"
        case TaskStarted(_, task):
            return f"{name} started {task.name} ({counted(task.count, 'sequence')})"
        case TaskFinished(_, task, seconds):
            given_up = (
                f", but gave up {counted(len(failed.ids), 'sequence')} ({failed.error}: "
                f"{failed.message})"
                for failed in event.failures
            )
            finished = f"{name} finished {task.name} after {seconds_text(seconds, 2)}"
            return "".join((finished, *given_up))
        case WorkerDied(worker, device, reason):
            return f"worker {worker} on {worker_name(worker, device)} died: {reason}"
        case WorkerReport(worker, device, stage, busy, idle, tasks):
            peak_memory = event.measured.peak_memory
            peak = f", peak memory {memory_size(peak_memory)}" if peak_memory else ""
            share = percent(idle / max(busy + idle, 1e-9), 1)
            return (
                f"{worker_name(worker, device)}: {counted(tasks, 'task')} of {stage}, idle "
                f"{share} of {seconds_text(busy + idle)}{peak}"
            )
        case Notice(level, message):
            return f"{level}: {message}"
    return None


def worker_label(worker: int, device: Device) -> str:
    """Return ``GPU 3``, or ``CPU 0`` with the worker's number, behind the node of a cluster."""
    label = f"GPU {device.index}" if device.kind == "cuda" else f"CPU {worker}"
    return f"{device.host} {label}" if device.host else label


def worker_name(worker: int, device: Device) -> str:
    """Return the label of a worker with the name of its GPU: ``GPU 3 NVIDIA H200``."""
    label = worker_label(worker, device)
    return f"{label} {device.name}" if device.kind == "cuda" else label
