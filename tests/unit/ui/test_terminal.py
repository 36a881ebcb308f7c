"""The screen as a whole: what it chooses, what it prints and logs, and what it leaves behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.ui.simulated import (
    FULL,
    STAGE,
    Hand,
    begin,
    file_task,
    gpu,
    host_stage,
    piped,
    terminal,
)
from virnucpro.contracts import FailedSequences
from virnucpro.errors import OutputError, UsageError
from virnucpro.events import (
    EpochEnded,
    Event,
    Notice,
    Progressed,
    StepAdvanced,
    StepStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.settings import DisplaySettings
from virnucpro.ui.log import LogFile
from virnucpro.ui.terminal import Screen

SHOW_CURSOR = "\x1b[?25h"
EVENTS: tuple[Event, ...] = (
    begin(),
    WorkerReady(0, gpu(0), STAGE, 12.3, {"precision": "bf16", "budget": 65536}),
    TaskStarted(0, file_task(0)),
    Progressed(0, 50, 5000),
    TaskFinished(0, file_task(0), 2.5),
)
Shown = Callable[..., tuple[str, str]]


def text_of(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    """What a screen prints and logs of events, each after a second or so many of ``seconds``."""

    def show(
        *events: Event,
        console: Console | None = None,
        seconds: tuple[float, ...] = (),
        **display: object,
    ) -> tuple[str, str]:
        console, hand, log = console or piped(), Hand(), tmp_path / "run.log"
        shown = DisplaySettings(**display)  # type: ignore[arg-type]
        with Screen(shown, log, console, hand, lambda device: FULL).shown() as screen:
            for number, event in enumerate(events):
                hand.now += seconds[number] if seconds else 0
                screen.show(event)
                screen.tick()
            for passed in (11, 5):  # and no event comes
                hand.now += passed
                screen.tick()
        return text_of(console), log.read_text() if log.exists() else ""

    return show


@pytest.mark.parametrize("host", ["", "node7"])
def test_the_log_names_the_gpu_and_the_seconds_of_each_file(shown, host):
    device = gpu(0, host=host)
    events = [*EVENTS, WorkerDied(0, device, "signal 9"), host_stage("Merging", 6)]
    events[1] = replace(EVENTS[1], device=device)
    _, log = shown(*events, TaskStarted(0, file_task(5)))
    name = f"{host} GPU 0 NVIDIA H200".strip()
    for line in (
        f"{name} (GPU-0) ready for {STAGE} after 12.3 s: precision bf16, budget 65536\n",
        f"{name} started output_0_ESM.pt (100 sequences)\n",
        f"{name} finished output_0_ESM.pt after 2.50 s\n",
        f"worker 0 on {name} died: signal 9\n",
        "host started output_5_ESM.pt",  # a host stage is not the work of a GPU
    ):
        assert line in log


@pytest.mark.parametrize("kind", ["dashboard", "plain", "quiet"])
def test_the_line_goes_to_the_log_whatever_is_shown(shown, kind):
    text, log = shown(
        *EVENTS,
        console=terminal() if kind == "dashboard" else piped(),
        level="WARNING" if kind == "quiet" else "INFO",
    )
    (line,) = [line for line in log.splitlines() if "[5/9] ESM-2" in line]
    for figure in ("1 of 10 files", "50 of 1,000", "GPU 0", "34/140 GiB", "99 %", "61 C"):
        assert figure in line
    assert text.count("[5/9] ESM-2, ") == (kind == "plain")


def test_the_dashboard_is_drawn_without_events_and_leaves_the_terminal_fine(tmp_path):
    console, log = terminal(), tmp_path / "run.log"
    before = threading.active_count()
    screen = Screen(DisplaySettings(), log, console, read=lambda device: FULL)
    with suppress(OutputError), screen.shown():
        for event in EVENTS:
            screen.show(event)
        screen.tick()
        drawn = len(text_of(console))
        time.sleep(0.6)
        assert len(text_of(console)) > drawn
        raise OutputError("full")
    text = text_of(console)
    assert "34/140 GiB" in text
    assert text.rindex(SHOW_CURSOR) > text.rindex("GPU 0")
    assert text.index(SHOW_CURSOR) < text.index("ESM-2")  # visible at all times
    time.sleep(0.3)
    assert threading.active_count() == before
    assert "ended by OutputError: full" in log.read_text()


@pytest.mark.parametrize(
    ("console", "display"),
    [
        (terminal(), {"progress": False}),
        (terminal(), {"level": "WARNING"}),
        (terminal(), {"level": "ERROR"}),
        (piped(force_terminal=True), {}),  # forced colours make no terminal
    ],
)
def test_no_dashboard_where_none_is_wanted(console, display):
    with Screen(DisplaySettings(**display), None, console, Hand()).shown() as screen:
        screen.show(begin())
    assert text_of(console) == ""


def test_ids_and_messages_are_literal(shown):
    failed = FailedSequences("ValueError", "[bold]no[/bold] \x1b[2J", ("[red]id[/red]",))
    for text in shown(
        begin(),
        TaskFinished(0, file_task(1), 1.0, (failed,)),
        Notice("warning", "[link=x]record[/link] :smile: 12"),
        Notice("info", "[/nothing]"),
    ):
        assert "ValueError: [bold]no[/bold] \\x1b[2J" in text
        assert "[link=x]record[/link] :smile: 12" in text
        assert "[/nothing]" in text
        assert "\x1b" not in text


def test_steps_are_lines_every_ten_seconds_without_a_terminal():
    console, hand = piped(), Hand()
    with Screen(DisplaySettings(), None, console, hand).shown() as screen:
        screen.show(StepStarted("reading", 400))
        for _ in range(4):
            hand.now += 5
            screen.show(StepAdvanced(100))
            screen.tick()
        screen.show(StepStarted("writing", 10))
        hand.now += 1
        screen.show(StepAdvanced(10))
        screen.tick()
    assert text_of(console).splitlines() == [
        "reading: 50 %, 0:10 left",
        "reading: 100 %, 0:00 left",
        "reading took 0:20",
    ]


def test_a_step_is_a_bar_on_a_terminal_that_is_gone_afterwards():
    console = terminal(200)
    with Screen(DisplaySettings(), None, console, Hand()).shown() as screen:
        for title in ("reading", "calling a\x1b[5B"):
            screen.show(StepStarted(title, 4))
            screen.show(StepAdvanced(2))
        time.sleep(0.6)  # it is drawn four times per second
    text = text_of(console)
    assert "calling a\\x1b[5B" in text
    assert "\x1b[5B" not in text
    assert text.rsplit("\x1b[2K", 1)[1].strip().removesuffix(SHOW_CURSOR) == ""  # it is gone
    assert text.rindex(SHOW_CURSOR) > text.rindex("\x1b[?25l")


def test_a_training_shows_and_logs_each_epoch(shown, tmp_path):
    row = {"epochs": 20, "loss": 0.5, "validation_loss": 0.4, "auroc": 0.9, "rate": 2e-4}
    log = tmp_path / "training.log"
    text, _ = shown(
        StepStarted("epoch 1 of at most 20", 100),
        EpochEnded({**row, "epoch": 1, "seconds": 6.0}, 1),
        Notice("warning", "3 frames are left out"),
        EpochEnded({**row, "epoch": 2, "seconds": 12.0}, 1),
        StepStarted("epoch 3 of at most 20", 100),
        StepAdvanced(66),
        seconds=(3, 3, 1, 2, 0, 11),
        log_file=log,
    )
    figures = "loss 0.5000, validation loss 0.4000, AUROC 0.9000; best so far: epoch 1"
    lines = text.splitlines()
    assert lines[:4] == [
        f"epoch 1 of at most 20: {figures}; at most 1:54 to the end",
        "warning: 3 frames are left out",
        f"epoch 2 of at most 20: {figures}; at most 3:36 to the end",
        "epoch 3 of at most 20: 66 %, 0:06 left",
    ]
    assert [line in log.read_text() for line in lines[:4]] == [True] * 4


@pytest.mark.parametrize("text", [">a\nACGT\n", "\nnotes\n"])
def test_a_log_is_not_written_into_another_file(tmp_path, text):
    (file := tmp_path / "contigs.fa").write_text(text)
    with pytest.raises(UsageError):
        LogFile(file).open()
    assert file.read_text() == text
