"""The picture: what is in it at every width, and that no line is wider than the terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.ui.simulated import FULL, Worked, begin, file_task, gpu, host_stage, screen_of
from virnucpro.contracts import Device, FailedSequences
from virnucpro.events import Progressed, SequencesFailed, TaskFinished, TaskStarted, WorkerDied
from virnucpro.ui.dashboard import RunScreen


def lines_of(board: RunScreen, width: int = 80, encoding: str = "utf-8") -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=stream, width=width, color_system=None, legacy_windows=False)
    console.print(board.picture(width))
    stream.seek(0)
    return stream.read().splitlines()


def running(*devices: Device, tasks: int = 12, scale: int = 1, done: int = 1) -> Worked:
    """A stage in which each worker has done ``tasks`` tasks of 5 s, but for the last ``done``."""
    stage = Worked(*devices, stage=begin(1200, 1000 * scale))
    for n in range(tasks):
        stage.hand.now += 5
        for number in range(len(devices)):
            task = file_task(n, 1000 * scale)
            stage.update(
                TaskStarted(number, task), Progressed(number, 1000 * scale, 160_000 * scale)
            )
            if n < tasks - done:
                stage.update(TaskFinished(number, task, 5.0))
    return stage


def board_of(count: int = 8, scale: int = 1) -> RunScreen:
    stage = running(*map(gpu, range(count)), scale=scale)
    return screen_of(stage.progress, dict.fromkeys(range(count), FULL))


def cluster(nodes: int, gpus: int, name: str = "node") -> Worked:
    devices = [gpu(n, host=f"{name}{node}") for node in range(nodes) for n in range(gpus)]
    return running(*devices, tasks=4, done=0)


def test_the_name_of_a_file_cannot_move_the_cursor() -> None:
    stage = Worked(gpu(0))
    stage.update(TaskStarted(0, replace(file_task(0), outputs=(Path("a\x1b[5B_rcl_0001.bin"),))))
    assert " a\\x1b[5B_rcl_0001.bin " in lines_of(screen_of(stage.progress), 150)[-1]


def test_eight_gpus_in_eighty_columns() -> None:
    lines = lines_of(board_of())
    assert len(lines) == 12
    assert lines[0].startswith("[5/9] ESM-2  88 of 1,200 files  11:")
    assert "96,000 of 1,200,000 seq" in lines[1]
    assert "8.0 %" in lines[1]
    titles = ["tasks", "sequences", "part", "seq/s", "tok/s", "memory", "util", "temp"]
    assert lines[3].split() == titles
    for number, row in enumerate(lines[4:]):
        assert row.startswith(f"GPU {number} ")
        for figure in (" 11 ", "12,000", "12 %", "200", "32.0k", "34/140 GiB", "99 %", "61 C"):
            assert figure in row, (figure, row)
    wide = "\n".join(lines_of(board_of(2), 140))
    assert "612 W" in wide
    assert "0:00 output_11_ESM.pt" in wide
    words = board_of(2).line_parts()
    assert words[1] == "24,000 of 1,200,000 seq 400/s 64.0k tok/s (2.0 %)"
    assert words[2].startswith(
        "GPU 0: tasks 11, sequences 12,000, part 50 %, seq/s 200, tok/s 32.0k"
    )
    assert "memory 34/140 GiB, util 99 %, temp 61 C, power 612 W" in words[3]


@pytest.mark.parametrize(
    ("used", "shown"), [(0.12, "0.12/141 GiB"), (4.1, "4.1/141 GiB"), (140.4, "140/141 GiB")]
)
@pytest.mark.parametrize("width", [62, 80, 140])
def test_the_memory_of_a_gpu_is_shown_whole(used: float, shown: str, width: int) -> None:
    board = board_of(1)
    board.readings = {0: (int(used * 2**30), 141 * 2**30, 99, 61, 612.0)}
    assert f" {shown} " in lines_of(board, width)[4]


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 66, 72, 76, 79, 80, 99, 100, 120, 140, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_terminal(width: int, encoding: str) -> None:
    name = "gpu-node.of.a.cluster.example.org-"
    boards = [
        (board_of(8), "GPU", 8),
        (board_of(16, 10_000), "GPU", 16),  # more than eight of one machine keep their rows
        (screen_of(cluster(2, 4, name).progress), "gpu-no", 8),
        (screen_of(cluster(20, 4, name).progress), "gpu-no", 20),
    ]
    for board, start, rows in boards:
        lines = lines_of(board, width, encoding)
        assert max(map(len, lines)) <= width
        assert sum(line.startswith(start) for line in lines) == rows  # not folded


def test_the_state_of_a_worker_and_failures_are_seen() -> None:
    stage = running(*map(gpu, range(3)))
    board = screen_of(stage.progress)
    failures = (FailedSequences("E", "m", ("a", "b", "c")),)
    stage.update(WorkerDied(1, gpu(1), "signal 9"), SequencesFailed(2, file_task(11), failures))
    stage.update(TaskFinished(2, file_task(11), 5.0))
    assert " idle " not in "\n".join(lines_of(board))  # between two tasks it does not flicker
    stage.hand.now += 3
    lines = lines_of(board)
    assert lines[0].endswith("  3 failed")
    assert " dead " in lines[5]
    assert " idle " in lines[6]
    assert "memory" not in lines[3], "without readings their columns are gone"
    board.readings = {0: (None, None, 50, None, None)}
    assert " 50 %" in lines_of(board)[4]
    stage.update(begin())
    assert "loading the model" in lines_of(board)[0]


def test_a_host_stage_is_a_single_bar() -> None:
    stage = Worked()
    board = screen_of(stage.progress)
    assert (lines_of(board), board.line_parts()) == ([], [])
    stage.update(host_stage("Chunking", 1))
    stage.hand.now += 65
    stage.update(Progressed(0, 130_000, 0))
    assert lines_of(board) == ["[1/9] Chunking  1:05 so far", "130,000  2,000/s"]
    stage.update(host_stage("Translation", 2, sequences=1000))
    stage.hand.now += 20
    stage.update(Progressed(0, 500, 0))
    first, second = lines_of(board)
    assert first == "[2/9] Translation  0:20 left"
    assert second.startswith("━━━━━")
    assert second.rstrip().endswith(" 50.0 %    500 of 1,000     25/s")
    stage.update(host_stage("Output", 9, sequences=1), Progressed(0, 1, 0))
    assert lines_of(board)[0].endswith("writing the report and the last files")


def test_many_workers_are_shown_as_one_row_per_node() -> None:
    stage = cluster(3, 4)
    board = screen_of(stage.progress)
    lines = lines_of(board)
    assert lines[3].split() == ["busy", "tasks", "sequences", "part", "seq/s", "tok/s"]
    assert [line.split()[0] for line in lines[4:]] == ["node0", "node1", "node2"]
    for figure in (" 4/4 ", " 16 ", "16,000", "33 %", " 800 "):
        assert figure in lines[4], figure
    stage.update(WorkerDied(5, gpu(1), "signal 9"))
    assert " 3/4 " in lines_of(board)[5]
    assert board.line_parts()[3].startswith("node1: busy 3/4, tasks 16, sequences 16,000")
    stage.hand.now += 3
    assert lines_of(board)[4].split()[-1] == "idle"
    few = lines_of(screen_of(cluster(2, 4).progress))
    names = [f"node{node} GPU {number}" for node in range(2) for number in range(4)]
    assert [line[:11] for line in few[4:]] == names
