"""The screen as a whole: what it chooses, what it prints and logs, and what it leaves behind."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.ui.simulated import FULL, STAGE, Hand, begin, file_task, gpu, host_stage, terminal
from virnucpro.contracts import FailedSequences
from virnucpro.errors import OutputError
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    SequencesFailed,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.layout import Layout
from virnucpro.settings import DisplaySettings
from virnucpro.ui.dashboard import RunScreen

SHOW_CURSOR = "\x1b[?25h"
EVENTS: tuple[Event, ...] = (
    begin(),
    WorkerReady(0, gpu(0), STAGE, 12.3, {"precision": "bf16", "budget": 65536}),
    TaskStarted(0, file_task(0)),
    Progressed(0, 50, 5000),
    TaskFinished(0, file_task(0), 2.5),
)
Shown = Callable[..., tuple[str, str]]


def piped(**options: object) -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False, **options)  # type: ignore[arg-type]


@pytest.fixture
def shown(tmp_path: Path) -> Shown:
    """What a screen prints and logs of events; after each of ``ticks`` seconds it ticks."""

    def show(
        *events: Event,
        console: Console | None = None,
        ticks: tuple[float, ...] = (),
        **display: object,
    ) -> tuple[str, str]:
        console, hand, layout = console or piped(), Hand(), Layout(tmp_path, "x", 500)
        shown = DisplaySettings(**display)  # type: ignore[arg-type]
        with RunScreen(shown, layout, console, lambda device: FULL, hand).shown() as screen:
            for event in events:
                screen.show(event)
            for seconds in ticks:
                hand.now += seconds
                screen.tick()
        return console.file.getvalue(), layout.log.read_text()  # type: ignore[attr-defined]

    return show


@pytest.mark.parametrize("host", ["", "node7"])
def test_the_log_names_the_gpu_and_the_seconds_of_each_file(shown: Shown, host: str) -> None:
    device = gpu(3, host=host)
    _, log = shown(
        begin(),
        WorkerReady(0, device, STAGE, 12.3, {"precision": "bf16", "budget": 65536}),
        TaskStarted(0, file_task(0)),
        TaskFinished(0, file_task(0), 2.5),
        WorkerDied(0, device, "signal 9"),
        host_stage("Merging", 6),
        TaskStarted(0, file_task(5)),
    )
    name = f"{host} GPU 3 NVIDIA H200".strip()
    for line in (
        f"{name} (GPU-3) ready for {STAGE} after 12.3 s: precision bf16, budget 65536\n",
        f"{name} started output_0_ESM.pt (100 sequences)\n",
        f"{name} finished output_0_ESM.pt after 2.50 s\n",
        f"worker 0 on {name} died: signal 9\n",
        "host started output_5_ESM.pt",  # a host stage is not the work of a GPU
    ):
        assert line in log


@pytest.mark.parametrize("kind", ["dashboard", "plain", "quiet"])
def test_the_line_goes_to_the_log_whatever_is_shown(shown: Shown, kind: str) -> None:
    text, log = shown(
        *EVENTS,
        console=terminal() if kind == "dashboard" else piped(),
        level="WARNING" if kind == "quiet" else "INFO",
        ticks=(0, 11, 5),  # and no event comes
    )
    (line,) = [line for line in log.splitlines() if "[5/9] ESM-2" in line]
    for figure in ("1 of 10 files", "50 of 1,000", "GPU 0", "34/140 GiB", "99 %", "61 C"):
        assert figure in line
    assert text.count("[5/9] ESM-2, ") == (kind == "plain")


def test_the_dashboard_is_drawn_without_events_and_leaves_the_terminal_fine(tmp_path: Path) -> None:
    console, layout = terminal(), Layout(tmp_path, "x", 500)
    before = threading.active_count()

    def interrupted() -> None:
        with RunScreen(DisplaySettings(), layout, console, lambda device: FULL).shown() as screen:
            for event in EVENTS:
                screen.show(event)
            screen.tick()
            drawn = len(console.file.getvalue())  # type: ignore[attr-defined]
            time.sleep(0.6)
            assert len(console.file.getvalue()) > drawn  # type: ignore[attr-defined]
            raise OutputError("full")

    with pytest.raises(OutputError):
        interrupted()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "34/140 GiB" in text
    assert text.rindex(SHOW_CURSOR) > text.rindex("GPU 0")
    assert text.index(SHOW_CURSOR) < text.index("ESM-2")  # visible at all times
    time.sleep(0.3)
    assert threading.active_count() == before
    assert "ended by OutputError: full" in layout.log.read_text()


@pytest.mark.parametrize(
    ("console", "display"),
    [
        (terminal(), {"progress": False}),
        (terminal(), {"level": "WARNING"}),
        (terminal(), {"level": "ERROR"}),
        (piped(force_terminal=True), {}),  # forced colours make no terminal
    ],
)
def test_no_dashboard_where_none_is_wanted(shown: Shown, console: Console, display: dict) -> None:
    assert shown(begin(), console=console, **display)[0] == ""


def test_ids_and_messages_are_literal(shown: Shown) -> None:
    failed = FailedSequences("ValueError", "[bold]no[/bold] \x1b[2J", ("[red]id[/red]",))
    for text in shown(
        begin(),
        SequencesFailed(0, file_task(1), (failed,)),
        Notice("warning", "[link=x]record[/link] :smile: 12"),
        Notice("info", "[/nothing]"),
    ):
        assert "ValueError: [bold]no[/bold] \\x1b[2J" in text
        assert "[link=x]record[/link] :smile: 12" in text
        assert "[/nothing]" in text
        assert "\x1b" not in text


def test_a_stall_is_on_the_screen_and_in_the_log_once(shown: Shown) -> None:
    events = (*EVENTS, TaskStarted(0, file_task(100)))
    for text in shown(*events, level="WARNING", ticks=(301,) * 5):
        assert text.count("warning: GPU 0 NVIDIA H200 has made no progress for 10:02") == 1
