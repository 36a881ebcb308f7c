"""The screen as a whole: what it chooses, what it prints and logs, and what it leaves behind."""

from __future__ import annotations

import io
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.ui.simulated import FULL, FixedReader, Hand, begin, file_task, gpu, terminal
from virnucpro.contracts import Device, FailedSequences, SessionFigures
from virnucpro.errors import OutputError
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    SequencesFailed,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
    WorkerReport,
)
from virnucpro.layout import Layout, RunLayout
from virnucpro.settings import DisplaySettings
from virnucpro.ui.log import EventLog, LogFile, describe
from virnucpro.ui.run_screen import RunScreen
from virnucpro.ui.terminal import Ticker

SHOW_CURSOR = "\x1b[?25h"


def _events() -> list[Event]:
    task = file_task(0)
    return [
        begin(),
        WorkerReady(0, gpu(0), "protein_embeddings", 12.3, {"precision": "bf16", "budget": 65536}),
        TaskStarted(0, task),
        Progressed(0, 50, 5000),
        TaskFinished(0, task, 2.5),
    ]


def _piped() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return RunLayout(tmp_path, "x", 500)


def test_the_log_names_the_gpu_and_the_seconds_of_each_file(layout: Layout) -> None:
    with RunScreen(DisplaySettings(), layout, _piped(), FixedReader()) as screen:
        for event in _events():
            screen.show(event)
        screen.show(StageFinished("protein_embeddings", 5, 3.0))
    log = layout.log.read_text()
    assert (
        "GPU 0 NVIDIA H200 (GPU-0) ready for protein_embeddings after 12.3 s: precision bf16, budget 65536"
        in log
    )
    assert "GPU 0 NVIDIA H200 started output_0_ESM.pt (100 sequences)" in log
    assert "GPU 0 NVIDIA H200 finished output_0_ESM.pt after 2.50 s" in log


def test_the_log_names_the_node_and_the_gpu(layout: Layout) -> None:
    device = replace(gpu(3), host="node7")
    with RunScreen(DisplaySettings(), layout, _piped(), FixedReader()) as screen:
        screen.show(begin())
        screen.show(WorkerReady(0, device, "protein_embeddings", 12.3))
        screen.show(TaskStarted(0, file_task(0)))
        screen.show(TaskFinished(0, file_task(0), 2.5))
        screen.show(WorkerDied(0, device, "signal 9"))
        screen.show(StageFinished("protein_embeddings", 5, 3.0))
    log = layout.log.read_text()
    name = "node7 GPU 3 NVIDIA H200"
    assert f"{name} (GPU-3) ready for protein_embeddings" in log
    assert f"{name} finished output_0_ESM.pt" in log
    assert f"worker 0 on {name} died: signal 9" in log


@pytest.mark.parametrize("shown", ["dashboard", "plain", "quiet"])
def test_the_line_goes_to_the_log_whatever_is_shown(layout: Layout, shown: str) -> None:
    hand = Hand()
    console = terminal() if shown == "dashboard" else _piped()
    display = DisplaySettings(level="WARNING" if shown == "quiet" else "INFO")
    with RunScreen(display, layout, console, FixedReader(FULL), hand) as screen:
        for event in _events():
            screen.show(event)
        screen.tick()
        hand.now += 11  # and no event comes
        screen.tick()
        hand.now += 5
        screen.tick()
    lines = [line for line in layout.log.read_text().splitlines() if "[5/9] ESM-2" in line]
    assert len(lines) == 1
    for figure in ("1 of 10 files", "50 of 1,000", "GPU 0", "34/140 GiB", "99 %", "61 C", "host"):
        assert figure in lines[0]
    plain = [line for line in _text(console).splitlines() if line.startswith("[5/9] ESM-2,")]
    assert len(plain) == (1 if shown == "plain" else 0)


def test_the_dashboard_is_drawn_without_events_and_leaves_the_terminal_fine(layout: Layout) -> None:
    console, reader = terminal(), FixedReader(FULL)
    before = threading.active_count()

    def interrupted() -> None:
        with RunScreen(DisplaySettings(), layout, console, reader) as screen:
            for event in _events():
                screen.show(event)
            screen.tick()
            drawn = len(_text(console))
            time.sleep(0.6)
            assert len(_text(console)) > drawn
            raise OutputError("full")

    with pytest.raises(OutputError):
        interrupted()
    text = _text(console)
    assert "34/140 GiB" in text
    assert text.rindex(SHOW_CURSOR) > text.rindex("GPU 0")
    assert text.index(SHOW_CURSOR) < text.index("ESM-2")  # visible at all times
    assert reader.closed
    time.sleep(0.3)
    assert threading.active_count() == before
    assert "ended by OutputError: full" in layout.log.read_text()


@pytest.mark.parametrize(
    "display",
    [
        DisplaySettings(progress=False),
        DisplaySettings(level="WARNING"),
        DisplaySettings(level="ERROR"),
    ],
)
def test_no_dashboard_where_none_is_wanted(layout: Layout, display: DisplaySettings) -> None:
    console = terminal()
    with RunScreen(display, layout, console, FixedReader()) as screen:
        screen.show(begin())
    assert _text(console) == ""


def test_forced_colours_make_no_terminal(layout: Layout) -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with RunScreen(DisplaySettings(), layout, console, FixedReader()) as screen:
        screen.show(begin())
    assert _text(console) == ""


def test_ids_and_messages_are_literal(layout: Layout) -> None:
    console = _piped()
    failed = FailedSequences("ValueError", "[bold]no[/bold] \x1b[2J", ("[red]id[/red]",))
    with RunScreen(DisplaySettings(), layout, console, FixedReader()) as screen:
        screen.show(begin())
        screen.show(SequencesFailed(0, file_task(1), (failed,)))
        screen.show(Notice("warning", "[link=x]record[/link] :smile: 12"))
        screen.show(Notice("info", "[/nothing]"))
    for text in (_text(console), layout.log.read_text()):
        assert "ValueError: [bold]no[/bold] \\x1b[2J" in text
        assert "[link=x]record[/link] :smile: 12" in text
        assert "[/nothing]" in text
        assert "\x1b" not in text


def test_a_stall_is_on_the_screen_and_in_the_log_once(layout: Layout) -> None:
    hand, console = Hand(), _piped()
    with RunScreen(
        DisplaySettings(level="WARNING"), layout, console, FixedReader(), hand
    ) as screen:
        for event in (*_events(), TaskStarted(0, file_task(100))):
            screen.show(event)
        for _ in range(5):
            hand.now += 61
            screen.tick()
    for text in (_text(console), layout.log.read_text()):
        assert text.count("warning: GPU 0 NVIDIA H200 has made no progress for 1:01") == 1


def test_a_long_stage_leaves_a_line(layout: Layout) -> None:
    console = _piped()
    with RunScreen(DisplaySettings(), layout, console, FixedReader()) as screen:
        screen.show(begin())
        screen.show(StageFinished("protein_embeddings", 5, 3723))
    assert _text(console) == "[5/9] ESM-2 took 1:02:03\n"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (TaskFinished(0, file_task(0), 1.5), "host finished output_0_ESM.pt after 1.50 s"),
        (WorkerReady(1, Device("cpu"), "protein_embeddings", 1), "CPU 1 ready for protein_embeddings after 1.0 s"),
        (WorkerDied(3, gpu(1), "signal 9"), "worker 3 on GPU 1 NVIDIA H200 died: signal 9"),
        (
            WorkerReport(0, gpu(2), "protein_embeddings", 90, 10, 7, SessionFigures(peak_memory=2**31)),
            "GPU 2 NVIDIA H200: 7 tasks of protein_embeddings, idle 10.0 % of 100.0 s, peak memory 2.0 GiB",
        ),
        (StageStarted("protein_embeddings", 5, 2, 3, 0, 0, ("input changed (3x)",), title="ESM-2", stages=9, on_workers=True), "stage 5 protein_embeddings: 3 tasks to do because input changed (3x)"),
        (Progressed(0, 1, 1), None),
    ],
)  # fmt: skip
def test_events_in_words(event: Event, text: str | None) -> None:
    assert describe(event) == text


def test_a_host_stage_is_not_the_work_of_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with closing(LogFile(path, open_now=True)) as log:
        writer = EventLog(log)
        for event in (
            *_events(),
            StageStarted("merging", 6, 1, 1, 0, 0, title="Merging", stages=9, on_workers=False),
            TaskStarted(0, file_task(5)),
        ):
            writer.write(event)
    assert "host started output_5_ESM.pt" in path.read_text()


def test_a_full_disk_is_an_error_with_advice() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    with (
        pytest.raises(OutputError, match="free some space"),
        closing(LogFile(full, open_now=True)) as log,
    ):
        log.line("a")


def test_a_ticker_stops() -> None:
    calls: list[float] = []
    ticker = Ticker(lambda: calls.append(time.monotonic()), 0.01)
    ticker.start()
    time.sleep(0.2)
    assert ticker.stop()
    count = len(calls)
    assert count > 2
    time.sleep(0.05)
    assert len(calls) == count
