"""The screen of ``train classifier`` and ``rcl train``: how far a training is."""

from __future__ import annotations

from rich.text import Text

from virnucpro.events import Notice
from virnucpro.formatting import clock_time, percent
from virnucpro.training.progress import EpochEnded, EpochProgress, TrainingEvent
from virnucpro.ui.step_screen import StepScreen
from virnucpro.ui.terminal import bar_line

TITLES = {"validation_loss": "validation", "auroc": "AUROC", "f1": "F1"}
AVERAGED_EPOCHS = 5  # latest epochs whose duration the forecast goes by


def epoch_text(event: EpochEnded) -> str:
    """Return the result of an epoch in one line."""
    best = "the best so far" if event.best == event.epoch else f"best: epoch {event.best}"
    return (
        f"epoch {event.epoch} of at most {event.epochs}: loss {event.loss:.4f}, "
        f"{metrics_text(event)} ({best})"
    )


def metrics_text(event: EpochEnded) -> str:
    """Return the metrics of the validation part that the screen has a name for."""
    return ", ".join(
        f"{title} {event.metrics[name]:.4f}"
        for name, title in TITLES.items()
        if name in event.metrics
    )


class TrainingScreen(StepScreen):
    """Shows the steps before a training, and its epochs; a log file has every epoch."""

    logs_lines = False

    _seconds: tuple[float, ...] = ()
    _ended: EpochEnded | None = None
    _seen: EpochProgress | None = None

    def show(self, event: Notice | TrainingEvent) -> None:
        """Show an event.

        Raises:
            OutputError: the log file cannot be written.
        """
        self.draw()
        if isinstance(event, Notice):
            self.notice(event)
            return
        if self.is_in_step:
            self.end()
            self.draw()
        if isinstance(event, EpochProgress):
            with self.lock:
                self._seen = event
        else:
            with self.lock:
                self._ended, self._seen = event, None
                self._seconds = (*self._seconds, event.seconds)[-AVERAGED_EPOCHS:]
                text = f"{epoch_text(event)}; {self._time_left()}"
            self.log.line(text)
            if self.verbose:
                self.say(text)
                self.last_line = self.clock()

    def picture(self, width: int, *, ascii_only: bool) -> Text:
        """Return the current step or epoch as a bar, with the figures of the epoch before."""
        if self.is_in_step:
            return super().picture(width, ascii_only=ascii_only)
        epoch, share = self._current_epoch()
        last = self._ended
        result = f"{metrics_text(last)}, " if last else ""
        figures = f"  {percent(share)}  {result}{self._time_left()}"
        return bar_line(f"{epoch}  ", share, figures, width, ascii_only=ascii_only)

    def line_parts(self) -> list[str]:
        """Return the current step or epoch, and the result of the epoch before, in words."""
        if self.is_in_step:
            return super().line_parts()
        if self._seen is None and self._ended is None:
            return []
        if self._seen is None:
            assert self._ended is not None
            return [f"{epoch_text(self._ended)}; {self._time_left()}"]
        epoch, share = self._current_epoch()
        return [f"{epoch}: {percent(share)} of its {self._seen.units}; {self._time_left()}"]

    def _current_epoch(self) -> tuple[str, float]:
        """Return which epoch is under way, and its share that is done, 0 to 1."""
        if self._seen is not None:
            epoch = f"epoch {self._seen.epoch} of at most {self._seen.epochs}"
            return epoch, self._seen.seen / max(self._seen.total, 1)
        if self._ended is not None:
            return f"epoch {self._ended.epoch} of at most {self._ended.epochs}", 1.0
        return "epoch 1", 0.0

    def _time_left(self) -> str:
        """Return the longest time that is left: early stopping may end the training at any time."""
        if not self._seconds or self._ended is None:
            return "time left unknown until the first epoch ends"
        seconds = sum(self._seconds) / len(self._seconds)
        return f"at most {clock_time(seconds * (self._ended.epochs - self._ended.epoch))} left"
