"""Progress of long commands and of trainings, on a terminal and without one."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.ui.simulated import Hand, Terminal
from virnucpro.errors import UsageError
from virnucpro.events import EpochEnded, EpochProgress, Notice
from virnucpro.settings import DisplaySettings
from virnucpro.ui.log import LogFile
from virnucpro.ui.step_screen import StepScreen


def screen_on(stream: io.StringIO, hand: Hand, **display: object) -> StepScreen:
    terminal = {"force_terminal": True, "color_system": None} if stream.isatty() else {}
    console = Console(file=stream, width=200, **terminal)  # type: ignore[arg-type]
    return StepScreen(DisplaySettings(**display), console, hand)  # type: ignore[arg-type]


def test_a_line_every_ten_seconds_without_a_terminal() -> None:
    stream, hand = io.StringIO(), Hand()
    with screen_on(stream, hand).shown() as screen:
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
    with screen_on(stream, Hand()).shown() as screen:
        for title in ("reading", "writing"):
            screen.begin(title, 4)
            screen.advance(2)
        time.sleep(0.6)  # it is drawn four times per second
    text = stream.getvalue()
    assert text.rsplit("\x1b[2K", 1)[1].strip() == ""  # the line is gone, the cursor is not
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_the_name_of_a_file_in_a_title_cannot_move_the_cursor() -> None:
    stream = Terminal()
    with screen_on(stream, Hand()).shown() as screen:
        screen.begin("calling a\x1b[5B", 4)
        time.sleep(0.3)
    assert "calling a\\x1b[5B" in stream.getvalue()
    assert "\x1b[5B" not in stream.getvalue()


def test_a_training_shows_and_logs_each_epoch(tmp_path: Path) -> None:
    row = {"epochs": 20, "loss": 0.5, "validation_loss": 0.4, "auroc": 0.9, "rate": 2e-4}
    stream, hand, log = io.StringIO(), Hand(), tmp_path / "training.log"
    with screen_on(stream, hand, log_file=log).shown() as screen:
        for seconds, event in (
            (3, EpochProgress(1, 20, 50, 100)),
            (3, EpochEnded({**row, "epoch": 1, "seconds": 6.0}, 1)),
            (1, Notice("warning", "3 frames are left out")),
            (11, EpochEnded({**row, "epoch": 2, "seconds": 12.0}, 1)),
            (11, EpochProgress(3, 20, 66, 100)),
        ):
            hand.now += seconds
            screen.show(event)
            screen.tick()
    lines = stream.getvalue().splitlines()
    figures = "loss 0.5000, validation loss 0.4000, AUROC 0.9000; best so far: epoch 1"
    assert lines == [
        f"epoch 1 of at most 20: {figures}; at most 1:54 to the end",
        "warning: 3 frames are left out",
        f"epoch 2 of at most 20: {figures}; at most 3:36 to the end",
        "epoch 3 of at most 20: 66 %",
    ]
    assert [line in log.read_text() for line in lines] == [True] * 4


@pytest.mark.parametrize("text", [">a\nACGT\n", "\nnotes\n"])
def test_a_log_is_not_written_into_another_file(tmp_path: Path, text: str) -> None:
    (file := tmp_path / "contigs.fa").write_text(text)
    with pytest.raises(UsageError, match="is not a log"):
        LogFile(file).open()
    assert file.read_text() == text
