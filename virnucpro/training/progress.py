"""How a long command tells its caller how far it is."""

from __future__ import annotations

from typing import Protocol


class StepProgress(Protocol):
    """Receives the progress of work that consists of steps of known size.

    ``virnucpro.ui`` shows it on the terminal; the work itself never prints.
    """

    def begin(self, title: str, total: float) -> None:
        """Begin a step of ``total`` units. The step before it is finished."""
        ...

    def advance(self, amount: float) -> None:
        """Report that ``amount`` more units of the current step are finished."""
        ...
