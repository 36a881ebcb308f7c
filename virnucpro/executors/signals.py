"""Ctrl-C, SIGTERM and SIGUSR1 (Slurm's early warning): the first ends a run in good order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from virnucpro.errors import RunInterruptedError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interruption:
    """The first signal that asked the run to end.

    It is raised as :class:`RunInterruptedError` where it arrives (every write is atomic), except in
    a
    block that holds it: a pool of workers reads ``number`` and lets the tasks in flight finish.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._held = False

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """A signal arrived. A second one ends the process at once; its workers die with it.

        Raises:
            Interrupted: for the first one, unless it is held.
        """
        if self.number is not None:
            os._exit(RunInterruptedError(self.number).exit_code)
        self.number = number
        if not self._held:
            raise RunInterruptedError(number)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only take note of a signal in this block.

        Raises:
            Interrupted: at the end of the block, when one arrived in it and nothing was raised.
        """
        before, self._held = self.number, True
        try:
            yield
        finally:
            self._held = False
        if self.number is not None and before is None:
            raise RunInterruptedError(self.number)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Catch the signals in the block; see :class:`Interruption`."""
    interruption = Interruption()
    earlier = {number: signal.signal(number, interruption.receive) for number in SIGNALS}
    try:
        yield interruption
    finally:
        for number, previous in earlier.items():
            signal.signal(number, previous)


@contextmanager
def blocked() -> Iterator[None]:
    """Keep the signals waiting; a process started in the block never sees one sent to its group."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
