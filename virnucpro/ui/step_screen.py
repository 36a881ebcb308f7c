"""The screen of commands with steps of known size, and of those that train."""

from __future__ import annotations

from rich.console import RenderableType

from virnucpro.events import Event, Notice, Progressed
from virnucpro.formatting import clock_time, percent
from virnucpro.training.progress import EpochEnded, EpochProgress, TrainingEvent
from virnucpro.ui.terminal import LINE_SECONDS, ProgressScreen, bar_line

EARLIEST = 1.0  # seconds; before that, no time is forecast


class StepScreen(ProgressScreen):
    """Shows one step after the other on standard error: how far it is, and the time left."""

    _title = _unit = ""
    _note = ""  # stands behind the figures of each step
    _total: float | None = None
    _amount = _first_amount = _began = 0.0

    def begin(self, title: str, total: float) -> None:
        """Begin a step of ``total`` units; the step before it is done."""
        self.end()
        self._start(title, total, 0.0, "units")

    def advance(self, amount: float) -> None:
        """Report that ``amount`` more units of the step are done."""
        with self.lock:
            self._amount += amount

    def show_stage(self, event: Event) -> None:
        """Count the records of a stage that is carried out, and show notices."""
        if isinstance(event, Progressed):
            self.advance(event.sequences)
        elif isinstance(event, Notice):
            self.say(event.message)

    def _start(self, title: str, total: float | None, amount: float, unit: str) -> None:
        with self.lock:
            self._title, self._total, self._unit = title, total, unit
            self._amount = self._first_amount = amount
            self._began = self.clock()
        self.draw()

    def end(self) -> None:
        """End the step, and say how long it took if it took long."""
        seconds = self.clock() - self._began
        with self.lock:
            title, self._title = self._title, ""
        self.erase()
        if title and seconds >= LINE_SECONDS and self._unit == "units":
            self.say(f"{title} took {clock_time(seconds)}")

    def picture(self, width: int) -> RenderableType:
        """Return the step as a bar with its figures."""
        if not self._title:
            return bar_line("", None, "".join(self.line_parts()), width)
        share = None if self._total is None else self._share
        return bar_line(self._title, share, self._figures(), width)

    def line_parts(self) -> list[str]:
        """Return the step in words."""
        return [f"{self._title}: {self._figures()}"] if self._title else []

    @property
    def _share(self) -> float:
        return min(self._amount / self._total, 1.0) if self._total else 1.0

    def _figures(self) -> str:
        figures = []
        if self._total is not None:
            figures.append(percent(self._share))
            seconds, amount = self.clock() - self._began, self._amount - self._first_amount
            if seconds >= EARLIEST and amount > 0:
                rest = max(self._total - self._amount, 0.0)
                figures.append(f"{clock_time(rest * seconds / amount)} left")
        return ", ".join(figures) + self._note


TITLES = {"validation_loss": "validation", "auroc": "AUROC", "f1": "F1"}
AVERAGED_EPOCHS = 5  # latest epochs whose duration the forecast goes by


class TrainingScreen(StepScreen):
    """Shows the steps before a training, and its epochs; a log file has every epoch."""

    logs_lines = False

    _seconds: tuple[float, ...] = ()

    def show(self, event: Notice | TrainingEvent) -> None:
        """Show an event; OutputError where the log file cannot be written."""
        self.draw()
        if isinstance(event, Notice):
            self.notice(event)
        elif isinstance(event, EpochProgress):
            title = f"epoch {event.epoch} of at most {event.epochs}"
            if event.epochs == 1:
                title = "training"
            if title != self._title:
                self.end()
                self._start(title, event.total, event.seen, "epoch")
            with self.lock:
                self._amount = event.seen
        else:
            self._end_epoch(event)

    def _end_epoch(self, event: EpochEnded) -> None:
        self.end()
        row, epoch, epochs = event.row, int(event.row["epoch"]), int(event.row["epochs"])
        best = "the best so far" if event.best == epoch else f"best: epoch {event.best}"
        self._seconds = (*self._seconds, row["seconds"])[-AVERAGED_EPOCHS:]
        # Early stopping may end the training at any time.
        seconds = sum(self._seconds) / len(self._seconds) * (epochs - epoch)
        known = {title: row[n] for n, title in TITLES.items() if n in row}
        metrics = ", ".join(f"{title} {value:.4f}" for title, value in known.items())
        metrics = f"{metrics} ({best})".lstrip()
        with self.lock:
            self._note = f"; {metrics}; at most {clock_time(seconds)} to the end"
        result = f"epoch {epoch} of at most {epochs}: loss {row['loss']:.4f}{self._note}"
        self.draw()
        self.log.line(result)
        if self.verbose:
            self.say(result)
            self.last_line = self.clock()
