"""What every long command shows: messages, a live picture or plain lines, and a log file.

Three threads meet here. The command's own thread reports what happened, rich redraws the picture
four times per second, and a ticker looks at the devices and writes the plain line. They share the
numbers under one lock, which no thread holds while it prints or reads a device.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from virnucpro.contracts import Device
from virnucpro.devices import GpuReading, read_gpu
from virnucpro.errors import OutputError
from virnucpro.events import (
    EpochEnded,
    Event,
    Notice,
    Progressed,
    StageFinished,
    StepAdvanced,
    StepStarted,
    TaskFinished,
)
from virnucpro.formatting import clock_time, printable
from virnucpro.settings import DisplaySettings
from virnucpro.ui.dashboard import NOTHING, Clock, Dashboard
from virnucpro.ui.log import LogFile
from virnucpro.workers.signals import Interruption, interruptible

LINE_SECONDS = 10.0  # between two plain lines, and of a stage or step whose time is told
TICK_SECONDS = 1.0
STOP_SECONDS = 3.0  # how long the ticker is waited for: a driver that hangs must not hold us
HISTORY = {"loss": "loss", "validation_loss": "validation loss", "auroc": "AUROC", "f1": "F1"}
"""The columns of the history of a training that are shown, with their names for people."""


class LastingConsole(Console):
    """A console whose reader may leave (``2>&1 | head``); the command continues without it."""

    def on_broken_pipe(self) -> None:
        """Print nothing more. The console of rich would end the program here."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Screen:
    """Shows the progress of a command on standard error and writes it to a log file.

    On a terminal the dashboard is redrawn in place and removed at the end. Without a terminal, and
    with ``--no-progress``, the same numbers are printed as a line every ten seconds. The log file
    gets that line as well. Warnings are always printed. What writes to the log raises OutputError.
    """

    interruption: Interruption
    """The first signal that asked the command to end; there while the work is shown."""

    def __init__(
        self,
        display: DisplaySettings,
        log: Path | None = None,
        console: Console | None = None,
        clock: Clock = time.monotonic,
        read: Callable[[Device], GpuReading | None] = read_gpu,
    ) -> None:
        """Choose between picture, plain lines and silence, as ``display`` and the terminal say.

        A log file that the user named is opened at once, that of a run at its first stage.
        """
        self.quiet = display.quiet
        self.verbose = display.level == "DEBUG"
        self.console = console or LastingConsole(stderr=True, highlight=False)
        self.log = LogFile(display.log_file or (log if display.auto_log else None))
        if display.log_file is not None:
            self.log.open()
        self.clock, self._read = clock, read
        self.lock = threading.Lock()
        self.board = Dashboard(clock)
        # FORCE_COLOR makes rich take any stream for a terminal, so the stream is asked as well.
        terminal = self.console.is_interactive and self.console.file.isatty()
        self.draws = terminal and display.progress and not self.quiet
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, name="virnucpro-ticker", daemon=True)
        self.last_line = clock()

    # --- what happens

    def show(self, event: Event) -> None:
        """Show an event; OutputError where the log file cannot be written."""
        match event:
            case Notice(level, message):
                (self.warn if level == "warning" else self.info)(message)
                return
            case StepStarted(title, total):
                self.end()
                with self.lock:
                    self.board.begin(replace(NOTHING, title=printable(title), sequences=total))
                return
            case StepAdvanced(amount):
                with self.lock:
                    self.board.update(Progressed(0, amount, 0))
                return
            case EpochEnded(row, best):
                self._leave()
                epoch, epochs = int(row["epoch"]), int(row["epochs"])
                shown = (f"{t} {row[name]:.4f}" for name, t in HISTORY.items() if name in row)
                left = clock_time(row["seconds"] * (epochs - epoch))  # it may stop earlier
                self.info(
                    f"epoch {epoch} of at most {epochs}: {', '.join(shown)}; best so far: epoch "
                    f"{best}; at most {left} to the end"
                )
                return
        text = self.log.event(event)
        with self.lock:
            self.board.update(event)
        if isinstance(event, TaskFinished) and event.failures:
            self.say(f"warning: {text}", "yellow", always=True)
        elif text and self.verbose:
            self.say(text, "dim")
        elif isinstance(event, StageFinished):
            self._tell_seconds(event.seconds)

    def end(self) -> None:
        """End the step, and say how long it took if it took long."""
        if self.board.title and not self.board.stage.number:
            self._tell_seconds(self.clock() - self.board.began)
            self._leave()

    def _leave(self) -> None:
        with self.lock:
            self.board.begin(NOTHING)

    def _tell_seconds(self, seconds: float) -> None:
        if seconds >= LINE_SECONDS:
            self.say(f"{self.board.title} took {clock_time(seconds)}")

    # --- sentences

    def info(self, message: str) -> None:
        """Print a sentence and write it to the log."""
        self.say(message)
        self.log.line(f"info: {message}")

    def warn(self, message: str) -> None:
        """Print a warning and write it to the log."""
        self.say(f"warning: {message}", "yellow", always=True)
        self.log.line(f"warning: {message}")

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

    # --- the picture, and the plain line

    def _picture(self) -> RenderableType:
        with self.lock:
            return self.board.picture(self.console.width)

    def _tick_on(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            self.tick()

    def tick(self) -> None:
        """Do what is due once per second: read GPUs, warn of stalls, and write the plain line."""
        with self.lock:
            devices = {number: worker.device for number, worker in self.board.workers.items()}
        readings = {number: self._read(device) for number, device in devices.items()}
        with self.lock:
            self.board.readings = {number: r for number, r in readings.items() if r}
            stalls = self.board.stalls()
            due = self.clock() - self.last_line >= LINE_SECONDS
            line = " | ".join(self.board.line_parts()) if due else ""
        for stall in stalls:
            self.warn(stall)
        if line:
            self.last_line = self.clock()
            if not self.draws:
                self.say(line)
            with suppress(OutputError):  # a full disk ends the command at its own next write
                self.log.line(line)

    @contextmanager
    def shown(self, warnings: Iterable[str] = ()) -> Iterator[Screen]:
        """Show the work of the block, and end it cleanly at the first signal.

        Afterwards the terminal is as it was, and the log says what ended the block, if an error.
        """
        error: BaseException | None = None
        with ExitStack() as stack:
            self.interruption = stack.enter_context(interruptible())
            if self.draws:
                live = Live(
                    console=self.console,
                    get_renderable=self._picture,
                    transient=True,
                    redirect_stdout=False,
                )
                stack.enter_context(live)
                # A second Ctrl-C ends the program at once; the cursor must not stay hidden then.
                self.console.show_cursor(True)
            self._ticker.start()
            try:
                for warning in warnings:
                    self.warn(warning)
                yield self
                self.end()
            except BaseException as raised:
                error = raised
                raise
            finally:
                self._stopped.set()
                self._ticker.join(STOP_SECONDS)
                self.log.close(error)
