"""The log file: every event with its time, whatever is shown on the terminal."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import TextIO

from virnucpro.checkpoint.disk import unwritable
from virnucpro.events import (
    Event,
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


def describe(event: Event) -> str | None:
    """An event in words; None for one that is only for a progress bar."""
    match event:
        case StageStarted():
            why = f" because {'; '.join(event.reasons)}" if event.reasons else ""
            return f"stage {event.number} {event.stage}: {event.todo} pieces to do{why}"
        case StageFinished():
            return f"stage {event.number} {event.stage} finished after {event.seconds:.1f} s"
        case WorkerReady(worker, device, stage, seconds):
            where = f"{device.name} {device.uuid}".strip()
            return f"worker {worker} on {where} ready for {stage} after {seconds:.1f} s"
        case TaskStarted(worker, task):
            return f"worker {worker} started {task.name} ({task.count} sequences)"
        case TaskFinished(worker, task, seconds):
            return f"worker {worker} finished {task.name} after {seconds:.2f} s"
        case TaskFailed(worker, failed):
            return f"worker {worker} gave up {failed.task.name}: {failed.error}: {failed.message}"
        case WorkerDied(worker, device, reason):
            return f"worker {worker} on {device.name} died: {reason}"
        case WorkerReport():
            share = 100 * event.idle / max(event.busy + event.idle, 1e-9)
            peak = f", peak memory {event.peak_memory / 2**30:.2f} GiB" if event.peak_memory else ""
            return (
                f"worker {event.worker} on {event.device.name}: {event.tasks} pieces of "
                f"{event.stage}, idle {share:.1f} % of {event.busy + event.idle:.1f} s{peak}"
            )
        case Notice(level, message):
            return f"{level}: {message}"
        case Progressed():
            return None


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
        if at_once:
            self._open()

    def _open(self) -> None:
        if self._path is None:
            return
        with unwritable(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self._path.open("a", encoding="utf-8", errors="backslashreplace")

    def show(self, event: Event) -> None:
        """Write a line for an event."""
        if isinstance(event, StageStarted) and self._stream is None:
            self._open()
        if text := describe(event):
            self.line(text)

    def line(self, text: str) -> None:
        """Write a line."""
        self._early.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if self._stream is not None:
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
        if kind is not None:
            self.line(f"ended by {kind.__name__}: {error}")
        if self._stream is not None:
            self._stream.close()
