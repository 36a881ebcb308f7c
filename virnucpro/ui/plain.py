"""The line every ten seconds, for a log and for a screen that is no terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

LINE_SECONDS = 10.0
STOP_SECONDS = 3.0
SEPARATOR = " | "


def one_line(parts: Sequence[str]) -> str:
    """All parts in a single line."""
    return SEPARATOR.join(parts)


def folded(parts: Sequence[str], width: int) -> str:
    """The same on a terminal: broken between parts, the later lines indented.

    >>> print(folded(["stage", "GPU 0 idle", "GPU 1 idle", "host"], 25))
    stage
      GPU 0 idle | GPU 1 idle
      host
    """
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines) > 1 and len(lines[-1]) + len(SEPARATOR) + len(part) <= width:
            lines[-1] += SEPARATOR + part
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


class Ticker:
    """Calls a function at regular times from a thread of its own, until it is stopped."""

    def __init__(self, call: Callable[[], None], seconds: float = 1.0) -> None:
        self._call = call
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="virnucpro-ticker", daemon=True)

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._call()

    def start(self) -> None:
        """Begin; the first call comes after the first interval."""
        self._thread.start()

    def stop(self) -> bool:
        """End; whether the last call has come back. A driver that hangs must not hold us."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        return not self._thread.is_alive()
