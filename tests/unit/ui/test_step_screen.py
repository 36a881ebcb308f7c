"""Progress of long commands and downloads, on a terminal and without one."""

from __future__ import annotations

import io
import time

from rich.console import Console

from tests.unit.ui.simulated import Hand, Terminal
from virnucpro.settings import DisplaySettings
from virnucpro.ui.step_screen import StepScreen


def screen_on(stream: io.StringIO, hand: Hand, **display: object) -> StepScreen:
    terminal = {"force_terminal": True, "color_system": None} if stream.isatty() else {}
    console = Console(file=stream, width=200, **terminal)  # type: ignore[arg-type]
    return StepScreen(DisplaySettings(**display), console, hand)  # type: ignore[arg-type]


def test_a_line_every_ten_seconds_without_a_terminal() -> None:
    stream, hand = io.StringIO(), Hand()
    with screen_on(stream, hand) as screen:
        screen.begin("reading", 400)
        for _ in range(4):
            hand.now += 5
            screen.advance(100)
            screen.tick()
        screen.begin("writing", 10)
        hand.now += 1
        screen.advance(10)
        screen.tick()
    assert stream.getvalue().splitlines() == [
        "reading: 50 %, 0:10 left",
        "reading: 100 %, 0:00 left",
        "reading took 0:20",
    ]


def test_a_bar_on_a_terminal_that_is_gone_afterwards() -> None:
    stream = Terminal()
    with screen_on(stream, Hand()) as screen:
        for title in ("reading", "writing"):
            screen.begin(title, 4)
            screen.advance(2)
        time.sleep(0.6)  # it is drawn four times per second
    text = stream.getvalue()
    assert "writing" in text
    assert "50 %" in text
    assert text.rsplit("\x1b[2K", 1)[1].strip() == ""  # the line is gone, the cursor is not
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
