"""Ctrl-C, SIGTERM and SIGUSR1 (the early warning of Slurm): the first one ends a run cleanly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from virnucpro.errors import RunInterruptedError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@dataclass
class Interruption:
    """The first signal that asked the run to end.

    It is raised as :class:`RunInterruptedError` where it arrives (every write is atomic), except in
    a block that holds it: there the scheduler reads ``number`` and lets the tasks in flight finish.
    """

    number: int | None = None
    is_held: bool = False  # nothing is raised then
    was_raised: bool = False

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Receive a signal. A second one ends the process at once; its workers die with it.

        Raises:
            RunInterruptedError: for the first one, unless it is held.
        """
        if self.number is not None:
            os._exit(RunInterruptedError(self.number).exit_code)
        self.number = number
        if not self.is_held:
            self.was_raised = True
            raise RunInterruptedError(number)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only record a signal in this block.

        Raises:
            RunInterruptedError: at the end of the block, if a signal arrived in it and nothing
                else was raised.
        """
        earlier_number, self.is_held = self.number, True
        try:
            yield
        finally:
            self.is_held = False
        if self.number is not None and earlier_number is None:
            raise RunInterruptedError(self.number)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Catch the signals in the block; see :class:`Interruption`.

    Python only prints an error that is raised in a destructor or in the callback of a weak
    reference. A signal that arrives there ends the process at once, as a second one does. What is
    raised in a call that torch makes from C++ may become an error of its own, such as one about a
    damaged file of weights: an error after the signal is taken for it.

    Raises:
        RunInterruptedError: a signal arrived.
    """
    interruption = Interruption()
    previous_hook = sys.unraisablehook

    def unraisable_hook(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, RunInterruptedError):
            os._exit(unraisable.exc_value.exit_code)
        previous_hook(unraisable)

    previous_handlers = {number: signal.signal(number, interruption.receive) for number in SIGNALS}
    sys.unraisablehook = unraisable_hook
    try:
        yield interruption
    except Exception as error:
        if interruption.number is None or not interruption.was_raised:
            raise
        raise RunInterruptedError(interruption.number) from error
    finally:
        interruption.is_held = True
        sys.unraisablehook = previous_hook
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Hold the signals back; a process started in the block starts with them held back too."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
