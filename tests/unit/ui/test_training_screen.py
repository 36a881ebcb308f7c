"""What a training shows without a terminal, and in its log."""

from __future__ import annotations

import io

from rich.console import Console

from virnucpro.events import Notice
from virnucpro.settings import DisplaySettings
from virnucpro.training.progress import EpochEnded, EpochProgress
from virnucpro.ui.step_screen import StepScreen


def shown(events, **display):
    """The text after events at the given seconds."""
    now = [0.0]
    console = Console(file=io.StringIO(), width=200)
    with StepScreen(DisplaySettings(**display), console, clock=lambda: now[0]) as screen:
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
    lines = shown(EVENTS)
    figures = "loss 0.5000, validation loss 0.4000, AUROC 0.9000"
    assert [line for line in lines if not line.startswith("epoch")] == [
        "reading the features",
        "warning: 3 frames are left out",
    ]
    assert (
        f"epoch 3 of at most 20: {figures}; best so far: epoch 2; at most 3:24 to the end" in lines
    )
    assert lines[-1] == "epoch 4 of at most 20: 66 %"


def test_every_epoch_is_shown_and_in_the_log(tmp_path):
    log = tmp_path / "training.log"
    lines = shown(EVENTS, log_file=log)
    for text in (lines, log.read_text().splitlines()):
        assert sum("AUROC" in line for line in text) == 3
