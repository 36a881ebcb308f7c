"""Progress of long commands, on a terminal and without one."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from virnucpro.settings import DisplaySettings
from virnucpro.ui.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_every_ten_seconds_without_a_terminal():
    stream, clock = io.StringIO(), Clock()
    with Progress(DisplaySettings(), Console(file=stream, width=200), clock) as progress:
        progress.begin("reading", 400)
        for _ in range(4):
            clock.now += 5
            progress.advance(100)
        progress.begin("writing", 10)
        clock.now += 1
        progress.advance(10)
    assert stream.getvalue().splitlines() == [
        "reading: 50 %, 0:10 left",
        "reading: 100 %, 0:00 left",
        "reading took 0:20",
    ]


@pytest.mark.parametrize("level", ["WARNING", "ERROR"])
def test_quiet_shows_warnings_only(level):
    stream, clock = io.StringIO(), Clock()
    with Progress(DisplaySettings(level=level), Console(file=stream, width=200), clock) as progress:
        progress.begin("reading", 0)
        clock.now += 30
        progress.advance(1)
        progress.warn("odd\x1b[2J")
    assert stream.getvalue() == "warning: odd\\x1b[2J\n"


def test_a_bar_on_a_terminal_that_is_gone_afterwards():
    stream = Terminal()
    console = Console(file=stream, width=100, force_terminal=True, color_system=None)
    with Progress(DisplaySettings(), console, Clock()) as progress:
        progress.begin("reading", 4)
        progress.advance(1)
        progress.begin("writing", 4)
        progress.advance(2)
        time.sleep(0.3)  # it is drawn ten times a second
    text = stream.getvalue()
    assert "writing" in text
    assert "50%" in text
    assert (
        text.rsplit("\x1b[2K", 1)[1].strip() == "\x1b[?25h"
    )  # the line is gone, the cursor is not
