"""What every long command shares: messages, a live picture or plain lines, and a log file.

Three threads meet here. The command's own thread reports what happened, rich redraws the picture
four times per second, and a ticker looks at the devices and writes the plain line. They share the
figures under one lock, which no thread holds while it prints or reads a device.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from virnucpro.errors import OutputError
from virnucpro.events import Notice
from virnucpro.executors.signals import Interruption, interruptible
from virnucpro.formatting import printable
from virnucpro.settings import DisplaySettings
from virnucpro.ui.log import LogFile
from virnucpro.ui.progress import Clock

LINE_SECONDS = 10.0  # between two plain lines
TICK_SECONDS = 1.0
STOP_SECONDS = 3.0  # how long the ticker is waited for: a driver that hangs must not hold us
SHORTEST_BAR = 6  # characters

_Screen = TypeVar("_Screen", bound="ProgressScreen")


class LastingConsole(Console):
    """A console whose reader may leave (``2>&1 | head``); the command continues without it."""

    def on_broken_pipe(self) -> None:
        """Print nothing more. The console of rich would end the program here."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class ProgressScreen(ABC):
    """Shows the progress of a command on standard error and writes it to a log file.

    On a terminal the picture of the subclass is redrawn in place and removed at the end. Without
    a terminal, and with ``--no-progress``, the same figures are printed as a line every ten
    seconds. The log file gets that line as well. Warnings are always printed. What writes to the
    log raises OutputError.
    """

    interruption: Interruption
    """The first signal that asked the command to end; there while the work is shown."""

    def __init__(
        self,
        display: DisplaySettings,
        console: Console | None = None,
        clock: Clock = time.monotonic,
        log: LogFile | None = None,
    ) -> None:
        """Choose between picture, plain lines and silence, as ``display`` and the terminal say.

        The log file is opened at once where the user named it.
        """
        self.quiet = display.quiet
        self.verbose = display.level == "DEBUG"
        self.console = console or LastingConsole(stderr=True, highlight=False)
        self.log = log or LogFile(display.log_file)
        if display.log_file is not None:  # the user named it
            self.log.open()
        self.clock = clock
        self.lock = threading.Lock()
        # FORCE_COLOR makes rich take any stream for a terminal, so the stream is asked as well.
        terminal = self.console.is_interactive and self.console.file.isatty()
        self.draws = terminal and display.progress and not self.quiet
        self._live: Live | None = None
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, name="virnucpro-ticker", daemon=True)
        self.last_line = clock()

    @abstractmethod
    def picture(self, width: int) -> RenderableType:
        """Return what is drawn now, in lines of at most ``width``. Called under the lock."""

    @abstractmethod
    def line_parts(self) -> list[str]:
        """Return the same figures in words; empty while there are none. Called under the lock."""

    def check(self) -> list[str]:
        """Look at what the events do not tell, once per second; return warnings to print."""
        return []

    def notice(self, notice: Notice) -> None:
        """Print a sentence for people and write it to the log."""
        if notice.level == "warning":
            self.say(f"warning: {notice.message}", "yellow", always=True)
        else:
            self.say(notice.message)
        self.log.line(f"{notice.level}: {notice.message}")

    def info(self, message: str) -> None:
        """Print a sentence and write it to the log."""
        self.notice(Notice("info", message))

    def warn(self, message: str) -> None:
        """Print a warning and write it to the log."""
        self.notice(Notice("warning", message))

    def say(self, text: str, style: str = "", *, always: bool = False) -> None:
        """Print a line above the picture: broken between words on a terminal, whole into a file.

        Where only warnings are to be shown, a line is printed if it is ``always``.
        """
        if always or not self.quiet:
            soft_wrap = not self.console.is_terminal
            try:
                self.console.print(Text(printable(text), style=style), soft_wrap=soft_wrap)
            except OSError:  # the disk that takes the messages is full
                self.console.on_broken_pipe()

    def draw(self) -> None:
        """Start the live picture where one is shown; it is drawn until :meth:`erase`."""
        if not self.draws or self._live is not None:
            return
        self._live = Live(
            console=self.console,
            get_renderable=self._current_picture,
            transient=True,
            redirect_stdout=False,
        )
        self._live.start()
        # A second Ctrl-C ends the program at once; the cursor must not stay hidden then.
        self.console.show_cursor(True)

    def erase(self) -> None:
        """Remove the picture."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _current_picture(self) -> RenderableType:
        with self.lock:
            return self.picture(self.console.width)

    def _tick_on(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            self.tick()

    def tick(self) -> None:
        """Do what is due once per second: check, print warnings, and write the plain line."""
        with suppress(OutputError):  # a full disk ends the command at its own next write
            for message in self.check():
                self.warn(message)
            with self.lock:
                due = self.clock() - self.last_line >= LINE_SECONDS
                line = " | ".join(self.line_parts()) if due else ""
            if line:
                self.last_line = self.clock()
                if not self.draws:
                    self.say(line)
                self.log.line(line)

    @contextmanager
    def shown(self: _Screen, warnings: Iterable[str] = ()) -> Iterator[_Screen]:
        """Show the work of the block, and end it cleanly at the first signal.

        Afterwards the terminal is as it was, and the log says what ended the block, if an error.
        """
        error: BaseException | None = None
        with interruptible() as self.interruption:
            self._ticker.start()
            try:
                for warning in warnings:
                    self.warn(warning)
                yield self
            except BaseException as raised:
                error = raised
                raise
            finally:
                self.erase()
                self._stopped.set()
                self._ticker.join(STOP_SECONDS)
                self.log.close(error)


def bar_line(title: str, share: float | None, figures: str, width: int) -> RenderableType:
    """Return one line: a title, figures, and between them a bar where there is room for it."""
    room = width - len(title) - len(figures) - 4
    if share is None or room < SHORTEST_BAR:
        text = f"{title}  {figures}".strip()
        return Text(text, no_wrap=True, overflow="crop")
    table = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(1.0, share, width=room, complete_style="green", finished_style="green")
    table.add_row(*([Text(title)] if title else []), bar, Text(figures))
    return table
