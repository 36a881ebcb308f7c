"""The screen of commands with steps of known size, and of those that train."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.text import Text

from virnucpro.events import EpochEnded, EpochProgress, Event, Notice, Progressed
from virnucpro.formatting import clock_time, percent, printable
from virnucpro.ui.terminal import LINE_SECONDS, ProgressScreen, bar_line

EARLIEST = 1.0  # seconds; before that, no time is forecast
TITLES = {"loss": "loss", "validation_loss": "validation loss", "auroc": "AUROC", "f1": "F1"}
"""The columns of the history of a training that are shown, with their names for people."""


class StepScreen(ProgressScreen):
    """Shows one step after the other on standard error: how far it is, and the time left."""

    _title = ""
    _total = 0.0
    _amount = _first_amount = _began = 0.0

    def begin(self, title: str, total: float, amount: float = 0.0) -> None:
        """End the step before, and begin one of ``total`` units, of which ``amount`` are done."""
        self.end()
        with self.lock:
            self._title, self._total, self._began = printable(title), total, self.clock()
            self._amount = self._first_amount = amount
        self.draw()

    def advance(self, amount: float) -> None:
        """Report that ``amount`` more units of the step are done."""
        with self.lock:
            self._amount += amount

    def show(self, event: Event) -> None:
        """Show a notice, the records of a report that is written, or the epochs of a training."""
        match event:
            case Notice():
                self.notice(event)
            case Progressed():
                self.advance(event.sequences)
            case EpochProgress(epoch, epochs, seen, total):
                title = f"epoch {epoch} of at most {epochs}" if epochs > 1 else "training"
                if title != self._title:
                    self.begin(title, total, seen)
                self.advance(seen - self._amount)
            case EpochEnded(row, best):
                with self.lock:
                    self._title = ""
                epoch, epochs = int(row["epoch"]), int(row["epochs"])
                shown = (f"{t} {row[name]:.4f}" for name, t in TITLES.items() if name in row)
                left = clock_time(row["seconds"] * (epochs - epoch))  # it may stop earlier
                self.info(
                    f"epoch {epoch} of at most {epochs}: {', '.join(shown)}; best so far: epoch "
                    f"{best}; at most {left} to the end"
                )

    @contextmanager
    def shown(self, warnings: Iterable[str] = ()) -> Iterator[StepScreen]:
        """Show the steps of the block, the last of which ends with it."""
        with super().shown(warnings):
            yield self
            self.end()

    def end(self) -> None:
        """End the step, and say how long it took if it took long."""
        seconds = self.clock() - self._began
        with self.lock:
            title, self._title = self._title, ""
        self.erase()
        if title and seconds >= LINE_SECONDS:
            self.say(f"{title} took {clock_time(seconds)}")

    def picture(self, width: int) -> RenderableType:
        """Return the step as a bar with its figures."""
        if not self._title:
            return Text()
        return bar_line(self._title, self._share, self._figures(), width)

    def line_parts(self) -> list[str]:
        """Return the step in words."""
        return [f"{self._title}: {self._figures()}"] if self._title else []

    @property
    def _share(self) -> float:
        return min(self._amount / self._total, 1.0) if self._total else 1.0

    def _figures(self) -> str:
        seconds, amount = self.clock() - self._began, self._amount - self._first_amount
        if seconds < EARLIEST:
            return percent(self._share)
        if amount <= 0:
            return f"{percent(self._share)}, {clock_time(seconds)} so far"
        rest = max(self._total - self._amount, 0.0)
        return f"{percent(self._share)}, {clock_time(rest * seconds / amount)} left"
