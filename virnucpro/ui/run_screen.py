"""The screen of ``predict`` and ``train embed``: the dashboard of a run."""

from __future__ import annotations

import time

from rich.console import Console, Group

from virnucpro.events import Event, Notice, ReportFinished, SequencesFailed, StageFinished
from virnucpro.formatting import clock_time
from virnucpro.layout import Layout, SamplesFolder
from virnucpro.settings import DisplaySettings
from virnucpro.ui.dashboard import Dashboard
from virnucpro.ui.log import EventLog, LogFile
from virnucpro.ui.rate import Clock
from virnucpro.ui.readings import GpuReader, GpuReading, HostReading, NvmlReader, read_host
from virnucpro.ui.stage_progress import StageProgress
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
        """Open a log file that the user named; that of the run is opened at its first stage.

        Raises:
            OutputError: the file cannot be written.
        """
        automatic = layout.log if display.auto_log else None
        log = LogFile(display.log_file or automatic, open_now=display.log_file is not None)
        super().__init__(display, console, clock, log)
        self._events = EventLog(log)
        self._gpus = gpus or NvmlReader()
        self._progress = StageProgress(clock)
        self._watch = WorkerWatch(self._progress)
        self._readings: dict[int, GpuReading] = {}
        self._host: HostReading | None = None

    def show(self, event: Event) -> None:
        """Show an event.

        Raises:
            OutputError: the log file cannot be written.
        """
        self.draw()
        if isinstance(event, Notice):
            self.notice(event)
            return
        text = self._events.write(event)
        with self.lock:
            self._progress.update(event)
            title = self._progress.title
        if isinstance(event, SequencesFailed):
            self._print(f"warning: {text}", "yellow")
        elif text and self.verbose:
            self.say(text, "dim")
        elif isinstance(event, StageFinished | ReportFinished) and event.seconds >= LINE_SECONDS:
            self.say(f"{title} took {clock_time(event.seconds)}")

    def check(self) -> list[str]:
        """Read the GPUs and the host, and return warnings about workers."""
        with self.lock:
            devices = {worker.number: worker.device for worker in self._progress.workers}
        readings = {number: self._gpus.read(device) for number, device in devices.items()}
        host = read_host()
        with self.lock:
            self._readings = {number: reading for number, reading in readings.items() if reading}
            self._host = host
            return self._watch.check(self.clock())

    def picture(self, width: int, *, ascii_only: bool) -> Group:
        """Return the dashboard."""
        return self._dashboard().picture(width, ascii_only=ascii_only)

    def line_parts(self) -> list[str]:
        """Return the dashboard in words."""
        return self._dashboard().line_parts()

    def _dashboard(self) -> Dashboard:
        return Dashboard(self._progress, self._readings, self._host)

    def release(self) -> None:
        """Let go of the driver's library."""
        self._gpus.close()
