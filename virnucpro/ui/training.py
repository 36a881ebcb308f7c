"""How far a training is: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from virnucpro.events import Notice
from virnucpro.formatting import clock_time, printable
from virnucpro.settings import DisplaySettings
from virnucpro.training.classifier.progress import EpochEnded, Seen, TrainingEvent
from virnucpro.ui.log import RunLog
from virnucpro.ui.meter import Clock
from virnucpro.ui.plain import LINE_SECONDS
from virnucpro.ui.screen import LastingConsole


def epoch_text(event: EpochEnded) -> str:
    """An epoch in a line."""
    best = "the best so far" if event.best == event.epoch else f"best: epoch {event.best}"
    return (
        f"epoch {event.epoch} of at most {event.epochs}: loss {event.loss:.4f}, validation "
        f"{event.validation_loss:.4f}, AUROC {event.auroc:.4f} ({best})"
    )


class TrainingScreen:
    """Shows a training on standard error; a log file has every epoch."""

    def __init__(
        self,
        display: DisplaySettings,
        console: Console | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Opens a log file that the user named.

        Raises:
            OutputError: it cannot be written.
        """
        self._console = console or LastingConsole(stderr=True, highlight=False)
        self._quiet = display.level in ("WARNING", "ERROR")
        self._every = display.level == "DEBUG"
        self._log = RunLog(display.log_file, at_once=True)
        self._clock = clock
        self._last_line = clock()
        self._seconds: list[float] = []
        self._epoch: EpochEnded | None = None
        terminal = self._console.is_interactive and self._console.file.isatty()
        self._bar: Progress | None = None
        if terminal and display.progress and not self._quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("epoch 1", total=None, text="")

    def show(self, event: Notice | TrainingEvent) -> None:
        """Take note of an event."""
        if isinstance(event, Notice):
            self._notice(event)
        elif isinstance(event, EpochEnded):
            self._ended(event)
        else:
            self._seen(event)

    def _notice(self, notice: Notice) -> None:
        self._log.line(f"{notice.level}: {notice.message}")
        if notice.level == "warning":
            self._print(f"warning: {notice.message}", "yellow")
        elif not self._quiet:
            self._print(notice.message, "")

    def _ended(self, event: EpochEnded) -> None:
        self._epoch = event
        self._seconds = [*self._seconds[-4:], event.seconds]
        text = f"{epoch_text(event)}; {self._left(event.epoch)}"
        self._log.line(text)
        due = self._clock() - self._last_line >= LINE_SECONDS and self._bar is None
        if (due or self._every) and not self._quiet:
            self._last_line = self._clock()
            self._print(text, "")

    def _seen(self, event: Seen) -> None:
        where = f"epoch {event.epoch} of at most {event.epochs}"
        if self._bar is not None:
            last = self._epoch
            figures = f"loss {last.validation_loss:.4f}, AUROC {last.auroc:.4f}, " if last else ""
            text = figures + self._left(event.epoch - 1)
            self._bar.update(
                self._task,
                description=where,
                completed=event.frames,
                total=event.total,
                text=text,
            )
        elif not self._quiet and self._clock() - self._last_line >= LINE_SECONDS:
            self._last_line = self._clock()
            share = 100 * event.frames / event.total
            self._print(f"{where}: {share:.0f} % of its frames; {self._left(event.epoch - 1)}", "")

    def _left(self, done: int) -> str:
        """The most that it can still take: early stopping may end it any time."""
        if not self._seconds or self._epoch is None:
            return "time left unknown until the first epoch ends"
        seconds = sum(self._seconds) / len(self._seconds)
        return f"at most {clock_time(seconds * (self._epoch.epochs - done))} left"

    def _print(self, text: str, style: str) -> None:
        self._console.print(Text(printable(text), style=style), soft_wrap=True)

    def __enter__(self) -> TrainingScreen:
        """Start the display."""
        self._log.__enter__()
        if self._bar is not None:
            self._bar.start()
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
        if self._bar is not None:
            self._bar.stop()
        self._log.__exit__(kind, error, trace)
