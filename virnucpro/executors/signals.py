"""Ctrl-C, SIGTERM and SIGUSR1 (Slurm's early warning): the first ends a run in good order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from virnucpro.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise :class:`Interrupted` in the block on the first signal; a second one ends at once."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if received:
            os._exit(130 if received[0] == signal.SIGINT else 143)
        received.append(number)
        raise Interrupted(number)

    earlier = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, previous in earlier.items():
            signal.signal(number, previous)
