"""How far the current stage is, how fast it goes and how long it will take."""

from __future__ import annotations

import time

from virnucpro.events import Event, Progressed, StageStarted

TITLES = {
    "chunking": "Chunking",
    "translation": "Translation",
    "splitting": "Splitting",
    "dnabert": "DNABERT-S",
    "esm": "ESM-2",
    "merging": "Merging",
    "prediction": "Prediction",
    "consensus": "Consensus",
    "output": "Output",
}
STAGES = len(TITLES)


class Meter:
    """Counts the sequences and tokens of a stage. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self.stage = ""
        self.number = 0
        self.sequences = self.expected = 0
        self.tokens = self.expected_tokens = 0
        self._started = time.monotonic()

    def update(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, StageStarted):
            self.stage, self.number = event.stage, event.number
            self.sequences = self.tokens = 0
            self.expected, self.expected_tokens = event.sequences, event.tokens
            self._started = time.monotonic()
        elif isinstance(event, Progressed):
            self.sequences += event.sequences
            self.tokens += event.tokens

    @property
    def title(self) -> str:
        """``[4/9] DNABERT-S``."""
        return f"[{self.number}/{STAGES}] {TITLES.get(self.stage, self.stage)}"

    @property
    def rate(self) -> float:
        """Sequences a second since the stage began."""
        return self.sequences / max(time.monotonic() - self._started, 1e-9)

    @property
    def remaining(self) -> float | None:
        """Seconds to the end of the stage; None while there is nothing to judge by."""
        if not self.sequences or not self.expected:
            return None
        return max(0, self.expected - self.sequences) / self.rate

    def line(self) -> str:
        """All of it in one line of plain text."""
        parts = [f"{self.title}: {self.sequences:,}"]
        if self.expected:
            share = 100 * self.sequences / self.expected
            parts[0] += f" of {self.expected:,} ({share:.0f} %)"
        parts.append(f"{self.rate:,.0f}/s")
        if self.remaining is not None:
            parts.append(f"{clock(self.remaining)} left")
        return ", ".join(parts)


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``.

    >>> clock(3723), clock(123)
    ('1:02:03', '2:03')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
