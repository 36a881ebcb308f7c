"""The rate of the last half minute: soon right after a change, and still calm to look at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]

WINDOW = 30.0  # seconds
SLOT = 1.0  # seconds; a host stage reports every record, and not each report can be kept
FEWEST_SLOTS = 10  # kept at any age: on a CPU one batch may take longer than the window
EARLIEST = 1.0  # seconds; before that, a rate is noise


@dataclass
class WorkAmount:
    """An amount of work: sequences, tokens, and weight as planned (see :class:`Task`)."""

    sequences: float = 0
    tokens: float = 0
    weight: float = 0

    def add(self, other: WorkAmount, factor: float = 1) -> None:
        """Add ``factor`` times ``other`` to this amount."""
        self.sequences += other.sequences * factor
        self.tokens += other.tokens * factor
        self.weight += other.weight * factor


@dataclass
class TimeSlot:
    """The work reported between two times that are at most :data:`SLOT` seconds apart."""

    first: float
    last: float
    amount: WorkAmount


class RecentRate:
    """Adds up work as it is reported and forgets what is older than the window."""

    def __init__(self, now: float) -> None:
        self._begin = now
        self._slots: deque[TimeSlot] = deque()

    def add(self, now: float, amount: WorkAmount) -> None:
        """Take work into account that was finished since the last call."""
        if self._slots and now - self._slots[-1].first < SLOT:
            slot = self._slots[-1]
            slot.last = now
            slot.amount.add(amount)
            return
        own = WorkAmount(amount.sequences, amount.tokens, amount.weight)
        self._slots.append(TimeSlot(now, now, own))
        while len(self._slots) > FEWEST_SLOTS and self._slots[0].last < now - WINDOW:
            self._begin = self._slots.popleft().last

    def per_second(self, now: float) -> WorkAmount | None:
        """Return the work per second; None while it is too early to tell."""
        elapsed = now - self._begin
        if elapsed < EARLIEST or not self._slots:
            return None
        total = WorkAmount()
        for slot in self._slots:
            total.add(slot.amount, 1 / elapsed)
        return total
