"""No test of this folder may hang, and none leaves a process behind."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator

import pytest

SECONDS = 1800  # a bound for a hang, not a measurement: machines of CI are slow and shared


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"the test takes more than {SECONDS} s")

    earlier = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, earlier)
    assert not multiprocessing.active_children()
