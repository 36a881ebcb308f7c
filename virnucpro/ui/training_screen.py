"""The screen of the commands that train: how far a training is."""

from __future__ import annotations

from virnucpro.events import Notice
from virnucpro.formatting import clock_time
from virnucpro.training.progress import EpochEnded, EpochProgress, TrainingEvent
from virnucpro.ui.step_screen import StepScreen

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
        best = "the best so far" if event.best == event.epoch else f"best: epoch {event.best}"
        self._seconds = (*self._seconds, event.seconds)[-AVERAGED_EPOCHS:]
        # Early stopping may end the training at any time.
        seconds = sum(self._seconds) / len(self._seconds) * (event.epochs - event.epoch)
        known = {title: event.metrics[n] for n, title in TITLES.items() if n in event.metrics}
        metrics = ", ".join(f"{title} {value:.4f}" for title, value in known.items())
        metrics = f"{metrics} ({best})".lstrip()
        with self.lock:
            self._note = f"; {metrics}; at most {clock_time(seconds)} to the end"
        result = f"epoch {event.epoch} of at most {event.epochs}: loss {event.loss:.4f}{self._note}"
        self.draw()
        self.log.line(result)
        if self.verbose:
            self.say(result)
            self.last_line = self.clock()
