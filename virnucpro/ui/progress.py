"""How far a long command is: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from virnucpro.formatting import clock_time, printable
from virnucpro.settings import DisplaySettings
from virnucpro.ui.meter import Clock
from virnucpro.ui.plain import LINE_SECONDS
from virnucpro.ui.screen import LastingConsole


class Progress:
    """Steps of known size, one after the other, on standard error."""

    def __init__(
        self,
        display: DisplaySettings,
        console: Console | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._console = console or LastingConsole(stderr=True, highlight=False)
        self._quiet = display.level in ("WARNING", "ERROR")
        self._clock = clock
        self._title = ""
        self._total = self._done = 0.0
        self._began = self._last_line = clock()
        drawing = self._console.is_interactive and self._console.file.isatty()
        self._bars: Bars | None = None
        if drawing and display.progress and not self._quiet:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )

    def begin(self, title: str, total: float) -> None:
        """A step of ``total`` units begins; the one before it is done."""
        self._close()
        self._title, self._total, self._done = title, total, 0.0
        self._began = self._last_line = self._clock()
        if self._bars is not None:
            self._bars.add_task(title, total=total)

    def advance(self, amount: float) -> None:
        """So many units more are done."""
        self._done += amount
        if self._bars is not None:
            self._bars.advance(self._bars.task_ids[-1], amount)
        elif self._clock() - self._last_line >= LINE_SECONDS:
            self._last_line = self._clock()
            self._print(f"{self._title}: {self._far()}")

    def warn(self, message: str) -> None:
        """A sentence that is shown even with ``--quiet``."""
        self._console.print(Text(printable(f"warning: {message}"), "yellow"), soft_wrap=True)

    def _far(self) -> str:
        share = min(self._done / self._total, 1.0) if self._total else 1.0
        left = (self._clock() - self._began) * (1 / share - 1) if share else 0.0
        return f"{100 * share:.0f} %, {clock_time(left)} left" if share else "0 %"

    def _print(self, text: str) -> None:
        if not self._quiet:
            self._console.print(Text(printable(text)), soft_wrap=True)

    def _close(self) -> None:
        """Say what the step took, where it took long."""
        seconds = self._clock() - self._began
        if self._title and seconds >= LINE_SECONDS:
            self._print(f"{self._title} took {clock_time(seconds)}")
        if self._bars is not None:
            for task in self._bars.task_ids:
                self._bars.remove_task(task)
        self._title = ""

    def __enter__(self) -> Progress:
        """Start the display."""
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        if kind is None:
            self._close()
        if self._bars is not None:
            self._bars.stop()
