"""The terminal: a progress bar, or a plain line every ten seconds; warnings always."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from virnucpro.events import Event, Notice, Progressed, StageFinished, StageStarted, TaskFailed
from virnucpro.layout import Layout
from virnucpro.settings import Display
from virnucpro.ui.log import RunLog, describe
from virnucpro.ui.meter import Meter, clock

LINE_SECONDS = 10.0


class Screen:
    """Shows events on standard error and writes them to the log."""

    def __init__(self, display: Display, layout: Layout) -> None:
        """Opens a log file that the user named.

        Raises:
            OutputError: it cannot be written.
        """
        self._display = display
        self._quiet = display.level in ("WARNING", "ERROR")
        automatic = layout.log if display.auto_log else None
        self._log = RunLog(display.log_file or automatic, at_once=display.log_file is not None)
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._meter = Meter()
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if self._console.is_terminal and display.progress and not self._quiet:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]}", markup=False),
                console=self._console,
                expand=True,
            )
            self._row = self._bar.add_task("starting", total=None, rate="")

    def show(self, event: Event) -> None:
        """Take note of an event."""
        self._log.show(event)
        self._meter.update(event)
        if isinstance(event, Notice):
            self._notice(event)
        elif isinstance(event, TaskFailed):
            self._print(f"warning: {describe(event)}", "yellow")
        elif self._bar is not None:
            self._move_bar()
        elif isinstance(event, StageStarted | StageFinished | Progressed):
            self._plain(event)
        detail = self._display.level == "DEBUG" and not isinstance(event, Notice | TaskFailed)
        if detail and (text := describe(event)):
            self._print(text, "dim")

    def _notice(self, notice: Notice) -> None:
        if notice.level == "warning":
            self._print(f"warning: {notice.message}", "yellow")
        elif not self._quiet:
            self._print(notice.message, "")

    def _print(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style))

    def _move_bar(self) -> None:
        assert self._bar is not None
        meter = self._meter
        left = "" if meter.remaining is None else f"{clock(meter.remaining)} left"
        self._bar.update(
            self._row,
            description=meter.title,
            completed=meter.sequences,
            total=meter.expected or None,
            rate=f"{meter.rate:,.0f}/s {left}",
        )

    def _plain(self, event: Event) -> None:
        now = time.monotonic()
        if self._quiet or now - self._last_line < LINE_SECONDS:
            return
        self._last_line = now
        self._print(self._meter.line(), "")

    def __enter__(self) -> Screen:
        """Start the display."""
        self._log.__enter__()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
        self._log.__exit__(kind, error, trace)
