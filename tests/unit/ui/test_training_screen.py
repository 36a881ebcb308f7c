"""What a training shows without a terminal, and in its log."""

from __future__ import annotations

import io

from rich.console import Console

from virnucpro.events import Notice
from virnucpro.settings import DisplaySettings
from virnucpro.training.progress import EpochEnded, EpochProgress
from virnucpro.ui.step_screen import TrainingScreen


def shown(events, **display):
    """The text after events at the given seconds."""
    now = [0.0]
    console = Console(file=io.StringIO(), width=200)
    with TrainingScreen(DisplaySettings(**display), console, clock=lambda: now[0]) as screen:
        for second, event in events:
            now[0] = second
            screen.show(event)
            screen.tick()
    return console.file.getvalue().splitlines()


def epoch(number, best=None, seconds=6.0):
    row = {"epoch": number, "epochs": 20, "loss": 0.5, "validation_loss": 0.4, "auroc": 0.9}
    return EpochEnded({**row, "rate": 2e-4, "seconds": seconds}, best or number)


EVENTS = [
    (0, Notice("info", "reading the features")),
    (3, EpochProgress(1, 20, 50, 100, "frames")),
    (6, epoch(1)),
    (12, epoch(2)),
    (13, Notice("warning", "3 frames are left out")),
    (18, epoch(3, best=2, seconds=12.0)),
    (22, EpochProgress(4, 20, 66, 100, "frames")),
]


def test_a_line_every_ten_seconds():
    assert shown(EVENTS) == [
        "reading the features",
        "warning: 3 frames are left out",
        "epoch 4 of at most 20: 66 %; validation 0.4000, AUROC 0.9000 "
        "(best: epoch 2); at most 2:16 to the end",
    ]


def test_every_epoch_in_the_log_and_with_verbose(tmp_path):
    log = tmp_path / "training.log"
    lines = shown(EVENTS, level="DEBUG", log_file=log)
    for text in (lines, log.read_text().splitlines()):
        assert sum("AUROC" in line for line in text) == 3
    assert "best: epoch 2" in log.read_text()
