"""The terminal: a dashboard, or a plain line every ten seconds; warnings always.

Three threads: the run's own calls :meth:`Screen.show`, rich redraws the dashboard four times a
second, and a ticker reads the gauges, looks for stalls and writes the line. They share the meter
under one lock, which nobody holds while printing or reading a device.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from virnucpro.errors import OutputError
from virnucpro.events import Event, Notice, StageFinished, TaskFailed
from virnucpro.formatting import clock_time, printable
from virnucpro.layout import Layout
from virnucpro.settings import DisplaySettings
from virnucpro.ui.dashboard import frame
from virnucpro.ui.figures import Figures, plain_parts
from virnucpro.ui.host import HostReading, read_host
from virnucpro.ui.log import RunLog
from virnucpro.ui.meter import Clock, Meter
from virnucpro.ui.nvml import Gauges, Nvml, Reading
from virnucpro.ui.plain import LINE_SECONDS, Ticker, folded, one_line
from virnucpro.ui.watch import Watch

FRAMES_A_SECOND = 4.0


class LastingConsole(Console):
    """A console whose reader may leave (``2>&1 | head``): the run goes on without it."""

    def on_broken_pipe(self) -> None:
        """Say nothing more; rich would end the program here."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Screen:
    """Shows events on standard error and writes them to the log."""

    def __init__(
        self,
        display: DisplaySettings,
        layout: Layout,
        console: Console | None = None,
        gauges: Gauges | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Opens a log file that the user named.

        Raises:
            OutputError: it cannot be written.
        """
        self._display = display
        self._quiet = display.level in ("WARNING", "ERROR")
        automatic = layout.log if display.auto_log else None
        self._log = RunLog(display.log_file or automatic, at_once=display.log_file is not None)
        self._console = console or LastingConsole(stderr=True, highlight=False)
        self._gauges = gauges or Nvml()
        self._clock = clock
        self._lock = threading.Lock()
        self._meter = Meter(clock)
        self._watch = Watch(self._meter)
        self._readings: dict[int, Reading] = {}
        self._host: HostReading | None = None
        self._last_line = clock()
        self._ticker = Ticker(self.tick)
        self._live: Live | None = None
        if self._drawing:
            self._live = Live(
                console=self._console,
                get_renderable=self._frame,
                refresh_per_second=FRAMES_A_SECOND,
                transient=True,
                redirect_stdout=False,
            )

    @property
    def _drawing(self) -> bool:
        """Whether a dashboard is shown. ``FORCE_COLOR`` makes rich believe in any terminal."""
        terminal = self._console.is_interactive and self._console.file.isatty()
        return terminal and self._display.progress and not self._quiet

    def show(self, event: Event) -> None:
        """Take note of an event."""
        text = self._log.show(event)
        with self._lock:
            self._meter.update(event)
            title = self._meter.title
        if isinstance(event, Notice):
            self._notice(event)
        elif isinstance(event, TaskFailed):
            self._print(f"warning: {text}", "yellow")
        elif text and self._display.level == "DEBUG":
            self._print(text, "dim")
        elif self._quiet:
            return
        elif isinstance(event, StageFinished) and event.seconds >= LINE_SECONDS:
            self._print(f"{title} took {clock_time(event.seconds)}", "")

    def _notice(self, notice: Notice) -> None:
        if notice.level == "warning":
            self._print(f"warning: {notice.message}", "yellow")
        elif not self._quiet:
            self._print(notice.message, "")

    def _print(self, text: str, style: str) -> None:
        self._console.print(Text(printable(text), style=style), soft_wrap=True)

    def _frame(self) -> Group:
        """The dashboard as it is now; called by rich."""
        options = self._console.options
        with self._lock:
            return frame(self._figures(), options.max_width, ascii_only=options.ascii_only)

    def tick(self) -> None:
        """Once a second: read the gauges, look after the workers, and write the line when due."""
        with self._lock:
            devices = {worker.number: worker.device for worker in self._meter.workers}
        read = {number: self._gauges.read(device) for number, device in devices.items()}
        host = read_host()
        with self._lock:
            self._readings = {number: reading for number, reading in read.items() if reading}
            self._host = host
            warnings = self._watch.check(self._clock())
            parts = self._parts_when_due()
        for warning in warnings:
            self._notice(Notice("warning", warning))
        if parts and self._live is None and not self._quiet:
            folds = self._console.is_terminal
            self._print(folded(parts, self._console.width) if folds else one_line(parts), "")
        # A full disk ends the run at its own next write, with the words for it.
        with suppress(OutputError):
            for warning in warnings:
                self._log.show(Notice("warning", warning))
            if parts:
                self._log.line(one_line(parts))

    def _parts_when_due(self) -> list[str]:
        now = self._clock()
        if not self._meter.number or now - self._last_line < LINE_SECONDS:
            return []
        self._last_line = now
        return plain_parts(self._figures())

    def _figures(self) -> Figures:
        return Figures(self._meter, self._readings, self._host)

    def __enter__(self) -> Screen:
        """Start the display."""
        self._log.__enter__()
        self._ticker.start()
        if self._live is not None:
            self._live.start()
            # A second Ctrl-C ends the program at once; the cursor must not stay hidden then.
            self._console.show_cursor(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
        if self._ticker.stop():
            self._gauges.close()
        self._log.__exit__(kind, error, trace)
