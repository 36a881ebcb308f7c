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
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from virnucpro.errors import OutputError
from virnucpro.events import Notice
from virnucpro.formatting import printable
from virnucpro.settings import DisplaySettings
from virnucpro.ui.log import LogFile
from virnucpro.ui.rate import Clock

LINE_SECONDS = 10.0  # between two plain lines
STOP_SECONDS = 3.0  # how long the ticker is waited for: a driver that hangs must not hold us
PICTURES_PER_SECOND = 4.0
SEPARATOR = " | "
SHORTEST_BAR = 6  # characters

_Screen = TypeVar("_Screen", bound="ProgressScreen")


class LastingConsole(Console):
    """A console whose reader may leave (``2>&1 | head``); the command continues without it."""

    def on_broken_pipe(self) -> None:
        """Print nothing more. The console of rich would end the program here."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Ticker:
    """Calls a function at regular intervals from its own thread until it is stopped."""

    def __init__(self, call: Callable[[], None], seconds: float = 1.0) -> None:
        self._call = call
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="virnucpro-ticker", daemon=True)

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._call()

    def start(self) -> None:
        """Start the thread; the first call comes after the first interval."""
        self._thread.start()

    def stop(self) -> bool:
        """Stop the thread, and return whether its last call has returned."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        return not self._thread.is_alive()


class ProgressScreen(ABC):
    """Shows the progress of a command on standard error and writes it to a log file.

    On a terminal the picture of the subclass is redrawn in place and removed at the end. Without
    a terminal, and with ``--no-progress``, the same figures are printed as a line every ten
    seconds. The log file gets that line as well. Warnings are always printed.

    Attributes:
        logs_lines: whether the log file gets the plain lines; the log of a training, which has
            every epoch, does not need them.
    """

    logs_lines = True

    def __init__(
        self,
        display: DisplaySettings,
        console: Console | None = None,
        clock: Clock = time.monotonic,
        log: LogFile | None = None,
    ) -> None:
        """Choose between picture, plain lines and silence, as ``display`` and the terminal say.

        ``console`` takes the place of standard error; ``clock`` gives seconds and never goes back.
        Without ``log``, the log file that the user named is opened, if any.

        Raises:
            OutputError: the log file cannot be written.
        """
        self.quiet = display.quiet
        self.verbose = display.level == "DEBUG"
        self.console = console or LastingConsole(stderr=True, highlight=False)
        self.log = log or LogFile(display.log_file, open_now=True)
        self.clock = clock
        self.lock = threading.Lock()
        # FORCE_COLOR makes rich take any stream for a terminal, so the stream is asked as well.
        terminal = self.console.is_interactive and self.console.file.isatty()
        self.draws = terminal and display.progress and not self.quiet
        self._live: Live | None = None
        self._ticker = Ticker(self.tick)
        self.last_line = clock()

    @abstractmethod
    def picture(self, width: int, *, ascii_only: bool) -> RenderableType:
        """Return what is drawn now, in lines of at most ``width``. Called under the lock."""

    @abstractmethod
    def line_parts(self) -> list[str]:
        """Return the same figures in words; empty while there are none. Called under the lock."""

    def check(self) -> list[str]:
        """Look at what the events do not tell, once per second; return warnings to print."""
        return []

    def end(self) -> None:
        """End what is under way; called when the command has succeeded."""
        return

    def release(self) -> None:
        """Let go of what :meth:`check` uses, at the end."""
        return

    def notice(self, notice: Notice) -> None:
        """Print a sentence for people and write it to the log.

        Raises:
            OutputError: the log file cannot be written.
        """
        self.log.line(f"{notice.level}: {notice.message}")
        self._print_notice(notice)

    def warn(self, message: str) -> None:
        """Print a warning and write it to the log.

        Raises:
            OutputError: the log file cannot be written.
        """
        self.notice(Notice("warning", message))

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the picture, unless only warnings are to be shown."""
        if not self.quiet:
            self._print(text, style)

    def _print_notice(self, notice: Notice) -> None:
        if notice.level == "warning":
            self._print(f"warning: {notice.message}", "yellow")
        else:
            self.say(notice.message)

    def _print(self, text: str, style: str) -> None:
        # On a terminal, lines are broken between words; a file gets each message as one line.
        soft_wrap = not self.console.is_terminal
        self.console.print(Text(printable(text), style=style), soft_wrap=soft_wrap)

    def draw(self) -> None:
        """Start the live picture where one is shown; it is drawn until :meth:`erase`."""
        if not self.draws or self._live is not None:
            return
        self._live = Live(
            console=self.console,
            get_renderable=self._current_picture,
            refresh_per_second=PICTURES_PER_SECOND,
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
        options = self.console.options
        with self.lock:
            return self.picture(options.max_width, ascii_only=options.ascii_only)

    def tick(self) -> None:
        """Do what is due once per second: check, print warnings, and write the plain line."""
        warnings = [Notice("warning", message) for message in self.check()]
        now = self.clock()
        parts = []
        if now - self.last_line >= LINE_SECONDS:
            with self.lock:
                parts = self.line_parts()
        if parts:
            self.last_line = now
        for warning in warnings:
            self._print_notice(warning)
        if parts and not self.draws:
            folds = self.console.is_terminal
            self.say(folded(parts, self.console.width) if folds else one_line(parts))
        # A full disk ends the command at its own next write, with the words for it.
        with suppress(OutputError):
            for warning in warnings:
                self.log.line(f"{warning.level}: {warning.message}")
            if parts and self.logs_lines:
                self.log.line(one_line(parts))

    def __enter__(self: _Screen) -> _Screen:
        """Start the display."""
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was, and write to the log how the command ended."""
        if error is None:
            self.end()
        self.erase()
        if self._ticker.stop():
            self.release()
        self.log.close(error)


def one_line(parts: Sequence[str]) -> str:
    """Return all parts in a single line."""
    return SEPARATOR.join(parts)


def folded(parts: Sequence[str], width: int) -> str:
    """Return the parts in lines of ``width``, broken between parts, the later lines indented.

    >>> print(folded(["stage", "GPU 0 idle", "GPU 1 idle", "host"], 25))
    stage
      GPU 0 idle | GPU 1 idle
      host
    """
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines) > 1 and len(lines[-1]) + len(SEPARATOR) + len(part) <= width:
            lines[-1] += SEPARATOR + part
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def bar(share: float, width: int, style: str, *, ascii_only: bool) -> Text:
    """Return a bar of ``width`` characters, filled by ``share`` (0 to 1), readable uncoloured."""
    full, half, empty = ("#", "#", "-") if ascii_only else ("━", "╸", "─")
    halves = min(2 * width, int(2 * share * width + 1e-9))
    if share > 0:
        halves = max(1, halves)
    filled = full * (halves // 2) + half * (halves % 2)
    return Text.assemble((filled, style), (empty * (width - len(filled)), "dim"))


def bar_line(title: str, share: float, figures: str, width: int, *, ascii_only: bool) -> Text:
    """Return one line: a title, a bar in the room that is left, and figures."""
    room = width - len(title) - len(figures)
    if room < SHORTEST_BAR:
        return cropped(Text(f"{title}{figures}".strip()), width, ascii_only=ascii_only)
    return Text(title) + bar(share, room, "green", ascii_only=ascii_only) + Text(figures)


def cropped(text: Text, width: int, *, ascii_only: bool) -> Text:
    """Return ``text`` cut to one line of ``width``."""
    text.no_wrap = True
    text.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    return text
