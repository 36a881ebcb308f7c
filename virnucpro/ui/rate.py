"""Speed over the last half minute: soon right after a change, and still calm to look at."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW = 30.0  # seconds
SLOT = 1.0  # seconds; a host stage reports every record, and each must not be kept
FEWEST = 10  # slots kept whatever their age: on a CPU one batch may take longer than the window
SOONEST = 1.0  # seconds; before that a rate is noise


@dataclass
class Amount:
    """Work: sequences, tokens, and weight as planned (see :class:`Task`)."""

    sequences: float = 0
    tokens: float = 0
    weight: float = 0

    def add(self, other: Amount, times: float = 1) -> None:
        """Add ``other``."""
        self.sequences += other.sequences * times
        self.tokens += other.tokens * times
        self.weight += other.weight * times


@dataclass
class _Slot:
    first: float
    last: float
    amount: Amount


class Rate:
    """Amounts as they come in; what is older than the window is forgotten."""

    def __init__(self, now: float) -> None:
        self._begin = now
        self._slots: deque[_Slot] = deque()

    def add(self, now: float, amount: Amount) -> None:
        """Take note of work finished since the last call."""
        if self._slots and now - self._slots[-1].first < SLOT:
            slot = self._slots[-1]
            slot.last = now
            slot.amount.add(amount)
            return
        self._slots.append(_Slot(now, now, Amount(amount.sequences, amount.tokens, amount.weight)))
        while len(self._slots) > FEWEST and self._slots[0].last < now - WINDOW:
            self._begin = self._slots.popleft().last

    def pace(self, now: float) -> Amount | None:
        """Amounts a second; None while it is too early to tell."""
        elapsed = now - self._begin
        if elapsed < SOONEST or not self._slots:
            return None
        total = Amount()
        for slot in self._slots:
            total.add(slot.amount, 1 / elapsed)
        return total
