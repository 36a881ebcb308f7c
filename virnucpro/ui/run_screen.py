"""The screen of ``predict`` and ``train embed``: the dashboard of a run."""

from __future__ import annotations

import time

from rich.console import Console, Group

from virnucpro.events import Event, Notice, ReportFinished, SequencesFailed, StageFinished
from virnucpro.formatting import clock_time
from virnucpro.layout import Layout, SamplesFolder
from virnucpro.settings import DisplaySettings
from virnucpro.ui.dashboard import Dashboard
from virnucpro.ui.log import LogFile
from virnucpro.ui.progress import Clock, StageProgress
from virnucpro.ui.readings import GpuReader
from virnucpro.ui.terminal import LINE_SECONDS, ProgressScreen
from virnucpro.ui.worker_warnings import WorkerWatch


class RunScreen(ProgressScreen):
    """Shows the events of a run on standard error and writes them to the log of the run."""

    def __init__(
        self,
        display: DisplaySettings,
        layout: Layout | SamplesFolder,
        console: Console | None = None,
        gpus: GpuReader | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Open a log file that the user named; that of the run is opened at its first stage."""
        automatic = layout.log if display.auto_log else None
        log = LogFile(display.log_file or automatic, open_now=display.log_file is not None)
        super().__init__(display, console, clock, log)
        self._gpus = gpus or GpuReader()
        self._board = Dashboard(StageProgress(clock))
        self._watch = WorkerWatch(self._board.progress)

    def show(self, event: Event) -> None:
        """Show an event; OutputError where the log file cannot be written."""
        self.draw()
        if isinstance(event, Notice):
            self.notice(event)
            return
        text = self.log.event(event)
        with self.lock:
            self._board.progress.update(event)
        if isinstance(event, SequencesFailed):
            self.say(f"warning: {text}", "yellow", always=True)
        elif text and self.verbose:
            self.say(text, "dim")
        elif isinstance(event, StageFinished | ReportFinished) and event.seconds >= LINE_SECONDS:
            self.say(f"{self._board.progress.title} took {clock_time(event.seconds)}")

    def check(self) -> list[str]:
        """Read the GPUs, and return warnings about workers."""
        with self.lock:
            devices = {worker.number: worker.device for worker in self._board.progress.workers}
        readings = {number: self._gpus.read(device) for number, device in devices.items()}
        with self.lock:
            self._board.readings = {number: r for number, r in readings.items() if r}
            return self._watch.check(self.clock())

    def picture(self, width: int) -> Group:
        """Return the dashboard."""
        return self._board.picture(width)

    def line_parts(self) -> list[str]:
        """Return the dashboard in words."""
        return self._board.line_parts()

    def release(self) -> None:
        """Let go of the driver's library."""
        self._gpus.close()
