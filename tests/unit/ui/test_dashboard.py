"""The picture: what is in it at every width, and that no line is wider than the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.unit.ui.simulated import FULL, Hand, begin, file_task, gpu
from virnucpro.contracts import Device, FailedSequences
from virnucpro.events import (
    Progressed,
    SequencesFailed,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.ui.dashboard import Dashboard
from virnucpro.ui.readings import GpuReading, HostReading, read_host
from virnucpro.ui.stage_progress import StageProgress
from virnucpro.ui.terminal import bar, folded, one_line


def _lines(board: Dashboard, width: int, *, ascii_only: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(board.picture(width, ascii_only=ascii_only))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def _running(workers: int = 8, scale: int = 1, hand: Hand | None = None) -> Dashboard:
    hand = hand or Hand()
    progress = StageProgress(hand)
    progress.update(begin(1200, 1000 * scale, 168_000 * scale))
    for number in range(workers):
        progress.update(WorkerReady(number, gpu(number), "protein_embeddings", 1.0))
    for n in range(12):
        hand.now += 5
        for number in range(workers):
            task = file_task(n, 1000 * scale, 168_000 * scale)
            progress.update(TaskStarted(number, task))
            progress.update(Progressed(number, 1000 * scale, 160_000 * scale))
            if n < 11:
                progress.update(TaskFinished(number, task, 5.0))
    readings = dict.fromkeys(range(workers), FULL)
    return Dashboard(progress, readings, HostReading(3 * 2**30, 4.2))


def test_eight_gpus_in_eighty_columns() -> None:
    lines = _lines(_running(), 80)
    assert len(lines) <= 13
    text = "\n".join(lines)
    assert lines[0].startswith("[5/9] ESM-2  88 of 1,200 files  11:")
    assert "96,000 of 1,200,000 seq" in lines[1]
    assert "8.0 %" in lines[1]
    for title in ("tasks", "sequences", "part", "seq/s", "tok/s", "memory", "util", "temp"):
        assert title in text
    for number in range(8):
        row = next(line for line in lines if line.startswith(f"GPU {number}"))
        for figure in (" 11 ", "12,000", "12 %", "200", "32.0k", "34/140 GiB", "99 %", "61°C"):
            assert figure in row, (figure, row)
    assert lines[-1] == "host 3.0 GiB, load 4.2"


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 66, 72, 76, 79, 80, 99, 100, 120, 140, 200])
@pytest.mark.parametrize("scale", [1, 10_000])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, scale: int, ascii_only: bool) -> None:
    board = _running(8, scale)
    lines = _lines(board, width, ascii_only=ascii_only)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("GPU") for line in lines) == 8  # one line a GPU, not folded
    if ascii_only:
        assert "\n".join(lines).isascii()


def test_a_wide_terminal_has_room_for_power_and_the_task() -> None:
    text = "\n".join(_lines(_running(2), 140))
    assert "612 W" in text
    assert "0:00 output_11_ESM.pt" in text


def test_the_state_of_a_worker_and_failures_are_seen() -> None:
    hand = Hand()
    board = _running(3, hand=hand)
    progress = board.progress
    progress.update(WorkerDied(1, gpu(1), "signal 9"))
    failures = (FailedSequences("E", "m", ("a", "b", "c")),)
    progress.update(SequencesFailed(2, file_task(11), failures))
    progress.update(TaskFinished(2, file_task(11), 5.0))
    assert " idle " not in "\n".join(_lines(board, 80))  # between two tasks it does not flicker
    hand.now += 3
    lines = _lines(board, 80)
    assert lines[0].endswith("  3 failed")
    assert " dead " in next(line for line in lines if line.startswith("GPU 1"))
    assert " idle " in next(line for line in lines if line.startswith("GPU 2"))
    progress.update(begin())
    assert "loading the model" in _lines(board, 80)[0]


def test_without_readings_their_columns_are_gone() -> None:
    board = Dashboard(_running(2).progress)
    assert "memory" not in "\n".join(_lines(board, 80))
    partial = Dashboard(board.progress, {0: GpuReading(utilisation=50)})
    assert " 50 %" in "\n".join(_lines(partial, 80))


def test_a_host_stage_is_a_single_bar() -> None:
    hand = Hand()
    progress = StageProgress(hand)
    assert _lines(Dashboard(progress), 80) == []
    progress.update(
        StageStarted("chunking", 1, 1, 1, 0, 0, title="Chunking", stages=9, on_workers=False)
    )
    hand.now += 65
    progress.update(Progressed(0, 130_000, 0))
    assert _lines(Dashboard(progress), 80) == ["[1/9] Chunking  1:05 so far", "130,000  2,000/s"]
    progress.update(
        StageStarted(
            "translation", 2, 1, 1, 1000, 0, title="Translation", stages=9, on_workers=False
        )
    )
    hand.now += 20
    progress.update(Progressed(0, 500, 0))
    first, second = _lines(Dashboard(progress), 80)
    assert first == "[2/9] Translation  0:20 left"
    assert "━─" in second
    assert second.endswith(" 50.0 %    500 of 1,000     25/s")


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, "────"), (0.001, "╸───"), (0.25, "━───"), (0.4, "━╸──"), (1, "━━━━")],
)
def test_a_bar(share: float, drawn: str) -> None:
    assert bar(share, 4, "", ascii_only=False).plain == drawn


def test_the_plain_line_has_the_same_figures() -> None:
    board = _running(2)
    line = one_line(board.line_parts())
    assert line.startswith("[5/9] ESM-2, 22 of 1,200 files, ")
    assert (
        "24,000 of 1,200,000 seq 400/s 64.0k tok/s (2.0 %) | GPU 0 11 tasks 12,000 (50 %)" in line
    )
    assert "200/s 32.0k tok/s 34/140 GiB 99 % 61 C 612 W | GPU 1" in line
    assert line.endswith("host 3.0 GiB, load 4.2")
    assert max(map(len, folded(board.line_parts(), 80).splitlines())) <= 80


def test_a_cpu_worker_is_named_by_its_number() -> None:
    progress = StageProgress(Hand())
    progress.update(begin())
    for number in range(2):
        progress.update(WorkerReady(number, Device("cpu"), "protein_embeddings", 1.0))
    assert "CPU 1 0 tasks 0 (0 %) idle" in one_line(Dashboard(progress).line_parts())


def test_the_host_can_be_read() -> None:
    assert read_host().memory > 1 << 20


def _cluster(nodes: int, gpus: int, hand: Hand | None = None, name: str = "node") -> Dashboard:
    """A stage on so many nodes, 20 s after its beginning; each worker has finished 4 tasks."""
    hand = hand or Hand()
    progress = StageProgress(hand)
    progress.update(begin(1200, 1000, 168_000))
    workers = [
        replace(gpu(number), host=f"{name}{node}")
        for node in range(nodes)
        for number in range(gpus)
    ]
    for number, device in enumerate(workers):
        progress.update(WorkerReady(number, device, "protein_embeddings", 1.0))
    for n in range(4):
        for number in range(len(workers)):
            progress.update(TaskStarted(number, file_task(n, 1000, 168_000)))
        hand.now += 5
        for number in range(len(workers)):
            progress.update(Progressed(number, 1000, 168_000))
            progress.update(TaskFinished(number, file_task(n, 1000, 168_000), 5.0))
    return Dashboard(progress)


def test_many_workers_are_shown_as_one_row_per_node() -> None:
    hand = Hand()
    board = _cluster(3, 4, hand)
    lines = _lines(board, 80)
    assert lines[3].split() == ["busy", "tasks", "sequences", "part", "seq/s", "tok/s"]
    assert [line.split()[0] for line in lines[4:]] == ["node0", "node1", "node2"]
    for figure in (" 4/4 ", " 16 ", "16,000", "33 %", " 800 ", "134k"):
        assert figure in lines[4], figure
    board.progress.update(WorkerDied(5, gpu(1), "signal 9"))
    assert " 3/4 " in _lines(board, 80)[5]
    line = one_line(board.line_parts())
    assert "node1 3/4 workers 16 tasks 16,000 (33 %) 600/s 101k tok/s | node2 4/4 workers" in line
    hand.now += 3
    assert _lines(board, 80)[4].split()[-1] == "idle"


def test_up_to_eight_workers_of_a_cluster_are_named_with_their_nodes() -> None:
    lines = _lines(_cluster(2, 4), 80)
    assert [line[:11] for line in lines[4:]] == [
        f"node{node} GPU {number}" for node in range(2) for number in range(4)
    ]
    assert "node1 GPU 3 4 tasks" in one_line(_cluster(2, 4).line_parts())


def test_more_than_eight_gpus_of_one_machine_keep_their_rows() -> None:
    assert sum(line.startswith("GPU") for line in _lines(_running(16), 80)) == 16


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120])
@pytest.mark.parametrize("nodes", [2, 20])
def test_no_line_about_nodes_is_wider_than_the_terminal(width: int, nodes: int) -> None:
    lines = _lines(_cluster(nodes, 4, name="gpu-node.of.a.cluster.example.org-"), width)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("gpu-node") for line in lines) == (8 if nodes == 2 else 20)
