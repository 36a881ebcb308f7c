"""The dashboard: its numbers from events, and its picture at every width of a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.ui.simulated import FULL, STAGE, Worked, begin, file_task, gpu, host_stage
from virnucpro.contracts import Device, FailedSequences
from virnucpro.events import (
    Progressed,
    StageFinished,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)


def running(*devices: Device, scale: int = 1) -> Worked:
    """A stage in which each worker has done 11 tasks in 60 s, and all but the end of another."""
    stage = Worked(*devices, stage=begin(1200, 1000 * scale))
    for n in range(12):
        stage.hand.now += 5
        for number in range(len(devices)):
            task = file_task(n, 1000 * scale)
            stage.update(TaskStarted(number, task))
            stage.update(Progressed(number, 1000 * scale, 160_000 * scale))
            if n < 11:
                stage.update(TaskFinished(number, task, 5.0))
            stage.board.readings[number] = FULL
    return stage


def test_eight_gpus_in_eighty_columns():
    lines = running(*map(gpu, range(8))).lines()
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
    two = running(*map(gpu, range(2)))
    assert "612 W" in "\n".join(two.lines(140))
    words = two.board.line_parts()
    assert words[1] == "24,000 of 1,200,000 seq 400/s 64.0k tok/s (2.0 %)"
    assert words[2].startswith("GPU 0: tasks 11, sequences 12,000, part 50 %, seq/s 200, tok/s 32")
    assert "memory 34/140 GiB, util 99 %, temp 61 C, power 612 W" in words[3]


@pytest.mark.parametrize("width", [62, 80, 140])
def test_the_memory_of_a_gpu_is_shown_whole(width):
    stage = running(gpu(0))
    for used, shown in ((0.12, "0.12/141 GiB"), (4.1, "4.1/141 GiB"), (140.4, "140/141 GiB")):
        stage.board.readings = {0: (int(used * 2**30), 141 * 2**30, 99, 61, 612.0)}
        assert f" {shown} " in stage.lines(width)[4]


@pytest.mark.parametrize("width", [20, 40, 60, 66, 76, 79, 80, 99, 120, 140, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_terminal(width, encoding):
    nodes = [f"gpu-node.of.a.cluster.example.org-{node}" for node in range(4)]
    for stage, start, rows in (
        (running(*map(gpu, range(8))), "GPU", 8),
        (running(*map(gpu, range(16)), scale=10_000), "GPU", 16),
        (running(*(gpu(n, host) for host in nodes for n in range(4))), "gpu-no", 16),
    ):
        lines = stage.lines(width, encoding)
        assert max(map(len, lines)) <= width
        assert sum(line.startswith(start) for line in lines) == rows  # not folded


def test_the_state_of_a_worker_and_failures_are_seen():
    stage = running(*map(gpu, range(3)))
    stage.board.readings = {}
    failures = (FailedSequences("E", "m", ("a", "b", "c")),)
    stage.update(WorkerDied(1, gpu(1), "signal 9"))
    stage.update(TaskFinished(2, file_task(11), 5.0, failures))
    lines = stage.lines()
    assert lines[0].endswith("  3 failed")
    assert " dead " in lines[5]
    assert " idle " in lines[6]
    assert "memory" not in lines[3], "without readings their columns are gone"
    stage.board.readings = {0: (None, None, 50, None, None)}
    assert " 50 %" in stage.lines()[4]
    stage.update(begin())  # of the next stage, the dead are not known
    lines = stage.lines()[4:]
    assert [line.split()[:3] for line in lines] == [["GPU", "0", "0"], ["GPU", "2", "0"]]
    assert all(" loading " in line for line in lines)


def test_a_silent_gpu_is_told_once_until_it_moves_again():
    stage = running(gpu(0), gpu(1))
    stage.hand.now += 599
    assert stage.board.stalls() == []
    stage.update(Progressed(1, 1, 1))
    stage.hand.now += 1
    assert [text.split()[:2] for text in stage.board.stalls()] == [["GPU", "0"]]
    assert stage.board.stalls() == []
    stage.update(Progressed(0, 1, 1))
    stage.hand.now += 600
    assert len(stage.board.stalls()) == 2


def test_a_host_stage_is_a_single_bar():
    stage = Worked()
    assert (stage.lines(), stage.board.line_parts()) == ([], [])
    stage.update(host_stage("Chunking", 1))
    stage.hand.now += 65
    stage.update(Progressed(0, 130_000, 0))
    assert stage.lines() == ["[1/9] Chunking  1:05 so far", "130,000  2,000/s"]
    stage.update(host_stage("Translation", 2, sequences=1000))
    stage.hand.now += 20
    stage.update(Progressed(0, 500, 0))
    first, second = stage.lines()
    assert first == "[2/9] Translation  0:20 left"
    assert second.startswith("━━━━━")
    assert second.rstrip().endswith(" 50.0 %    500 of 1,000     25/s")


def test_what_a_dead_worker_had_begun_is_taken_back():
    stage = Worked(gpu(0))
    stage.work(0, 0, 5)
    stage.update(TaskStarted(0, file_task(100)), Progressed(0, 60, 4200))
    assert stage.board.sequences == 160
    stage.update(WorkerDied(0, gpu(0), "signal 9"))
    assert (stage.board.sequences, stage.board.workers[0].state) == (100, "dead")
    stage.update(WorkerReady(0, gpu(0), STAGE, 1.0))
    stage.work(0, 100, 5)
    assert (stage.board.sequences, stage.board.share) == (200, 0.2)


def test_trials_and_failures_end_at_all_done():
    stage = Worked(gpu(0), stage=begin(tasks=1))
    for sequences in (80, 50):  # of an attempt that failed, and of a trial
        stage.update(TaskStarted(0, file_task(1)))
        stage.update(Progressed(0, sequences, 0), Progressed(0, -sequences, 0))
    rest = replace(file_task(1), count=99)
    failed = FailedSequences("ValueError", "bad", ("r",))
    stage.update(TaskStarted(0, rest), Progressed(0, 99, 0))
    stage.update(TaskFinished(0, rest, 1.0, (failed,)))
    assert (stage.board.sequences, stage.board.share, stage.board.failed) == (100, 1.0, 1)


def test_the_time_left_is_that_of_the_whole_command():
    nucleotides = replace(begin(), stage="nucleotides", ahead=(STAGE,))
    stage = Worked()
    stage.update(nucleotides)
    stage.hand.now += 300  # loading the model takes its time, which is no measure of the work
    stage.update(WorkerReady(0, gpu(0), STAGE, 300))
    assert stage.board.time == "5:00 so far"
    stage.work(0, 0, 20)  # 100 of 1,000
    assert stage.board.time == "at least 3:00 left"  # proteins are not measured yet
    stage.update(begin(), WorkerReady(0, gpu(0), STAGE, 1.0))
    for number in range(10):
        stage.work(0, number, 10)
    stage.update(StageFinished(STAGE, 5, 100.0))
    # Of the next part of the data set, the proteins are known from this one: 10 per second.
    stage.update(nucleotides, WorkerReady(0, gpu(0), "nucleotides", 1.0))
    stage.work(0, 0, 20)
    assert stage.board.time == "4:40 left"  # 180 and 100 seconds
