"""Progress of a download."""

from __future__ import annotations

import sys
import time

import click

from virnucpro.formatting import byte_size, clock_time

PLAIN_SECONDS = 10  # between progress lines without a terminal, as everywhere in the program
SHOWN_SECONDS = 0.2


class TransferMeter:
    """One moving line on a terminal, else a plain line now and then; nothing where ``quiet``."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name = name
        self._quiet = quiet
        self._moving = sys.stderr.isatty()
        self._next = 0.0 if self._moving else time.monotonic() + PLAIN_SECONDS
        self._first: tuple[float, int] | None = None  # when the first bytes were here, and how many
        self._shown = False

    def __call__(self, have: int, total: int | None) -> None:
        """``have`` bytes are here, of ``total`` where that is known."""
        now = time.monotonic()
        self._first = self._first or (now, have)
        if self._quiet or (now < self._next and not (self._moving and have == total)):
            return
        self._next = now + (SHOWN_SECONDS if self._moving else PLAIN_SECONDS)
        part = f" of {byte_size(total)}, {100 * have / total:.0f} %" if total else ""
        text = f"{self._name}: {byte_size(have)}{part}{self._left(now, have, total)}"
        click.echo(f"\r{text}\x1b[K" if self._moving else text, nl=not self._moving, err=True)
        self._shown = True

    def _left(self, now: float, have: int, total: int | None) -> str:
        assert self._first is not None
        began, had = self._first
        if not total or have <= had or now - began < 1:
            return ""
        seconds = (total - have) * (now - began) / (have - had)
        return f", {clock_time(seconds)} left"

    def close(self) -> None:
        """Leave the line."""
        if self._moving and self._shown:
            click.echo(err=True)
