"""The screen of the commands that train: how far a training is."""

from __future__ import annotations

from virnucpro.events import Notice
from virnucpro.formatting import clock_time, percent
from virnucpro.training.progress import EpochEnded, EpochProgress, TrainingEvent
from virnucpro.ui.step_screen import StepScreen

TITLES = {"validation_loss": "validation", "auroc": "AUROC", "f1": "F1"}
AVERAGED_EPOCHS = 5  # latest epochs whose duration the forecast goes by


class TrainingScreen(StepScreen):
    """Shows the steps before a training, and its epochs; a log file has every epoch."""

    logs_lines = False

    _seconds: tuple[float, ...] = ()
    _metrics = _result = ""
    _left = "time left unknown until the first epoch ends"

    def show(self, event: Notice | TrainingEvent) -> None:
        """Show an event; OutputError where the log file cannot be written."""
        self.draw()
        if isinstance(event, Notice):
            self.notice(event)
        elif isinstance(event, EpochProgress):
            one = event.epochs == 1  # the time left is that of its own steps
            title = "training" if one else f"epoch {event.epoch} of at most {event.epochs}"
            if title != self._title:
                self.end()
                self._start(title, event.total, event.seen, "units" if one else "epoch")
            with self.lock:
                self._amount = event.seen
        else:
            self._end_epoch(event)

    def _end_epoch(self, event: EpochEnded) -> None:
        self.end()
        best = "the best so far" if event.best == event.epoch else f"best: epoch {event.best}"
        with self.lock:
            self._seconds = (*self._seconds, event.seconds)[-AVERAGED_EPOCHS:]
            # Early stopping may end the training at any time.
            seconds = sum(self._seconds) / len(self._seconds) * (event.epochs - event.epoch)
            self._left = f"at most {clock_time(seconds)} left"
            self._metrics = ", ".join(
                f"{title} {event.metrics[name]:.4f}"
                for name, title in TITLES.items()
                if name in event.metrics
            )
            self._result = (
                f"epoch {event.epoch} of at most {event.epochs}: loss {event.loss:.4f}"
                f"{self._metrics and ', '}{self._metrics} ({best}); {self._left}"
            )
        self.draw()
        self.log.line(self._result)
        if self.verbose:
            self.say(self._result)
            self.last_line = self.clock()

    def line_parts(self) -> list[str]:
        """Return the current step or epoch, or the result of the epoch before, in words."""
        return super().line_parts() or ([self._result] if self._result else [])

    def _figures(self) -> str:
        if self._unit != "epoch":
            return super()._figures()
        return ", ".join(filter(None, (percent(self._share), self._metrics, self._left)))
