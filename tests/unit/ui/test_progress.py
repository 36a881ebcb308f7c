"""The figures of a stage from events, with a clock set by hand."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from tests.unit.ui.simulated import STAGE, Worked, begin, file_task, gpu, host_stage, screen_of
from virnucpro.contracts import Device, FailedSequences
from virnucpro.events import (
    Progressed,
    SequencesFailed,
    StageFinished,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.ui.progress import WINDOW, WorkerProgress, worker_warnings


def test_a_worker_has_its_part_of_what_is_done() -> None:
    stage = Worked(gpu(0), gpu(1))
    for number, worker in enumerate((0, 0, 0, 1)):
        stage.work(worker, number, 5)
    progress = stage.progress
    first, second = progress.workers
    assert (first.tasks, first.sequences) == (3, 300)
    assert second.sequences == 100
    assert (progress.sequences, progress.tasks_done, progress.share) == (400, 4, 0.4)


def test_remaining_time_goes_by_sequences() -> None:
    stage = Worked(gpu(0))
    stage.work(0, 0, 20)  # 100 of 1,000 sequences
    assert stage.progress.remaining == pytest.approx(180)


@pytest.mark.parametrize(
    ("share_done", "seconds", "left"),
    [(0, 60, None), (1, 5, None), (1, 11, 11 * 99), (2, 5, 5 * 49), (2, 0.5, None)],
)
def test_no_forecast_at_the_start(share_done: int, seconds: float, left: float | None) -> None:
    stage = Worked()
    stage.update(begin(tasks=1))
    stage.hand.now += 300  # loading the model takes its time, which is no measure of the work
    stage.update(WorkerReady(0, gpu(0), STAGE, 300), TaskStarted(0, file_task(0)))
    stage.hand.now += seconds
    if share_done:
        stage.update(Progressed(0, share_done, share_done * 70))
    assert stage.progress.remaining == (left and pytest.approx(left))


def test_what_a_dead_worker_had_begun_is_taken_back() -> None:
    stage = Worked(gpu(0))
    stage.work(0, 0, 5)
    stage.update(TaskStarted(0, file_task(100)), Progressed(0, 60, 4200))
    assert stage.progress.sequences == 160
    stage.update(WorkerDied(0, gpu(0), "signal 9"))
    assert (stage.progress.sequences, stage.progress.workers[0].state) == (100, "dead")
    stage.update(WorkerReady(0, gpu(0), STAGE, 1.0))
    stage.work(0, 100, 5)
    done = stage.progress.sequences, stage.progress.share, stage.progress.workers[0].state
    assert done == (200, 0.2, "idle")


def test_trials_and_failures_end_at_all_done() -> None:
    stage = Worked(gpu(0), stage=begin(tasks=1))
    for sequences in (80, 50):  # of an attempt that failed, and of a trial
        stage.update(TaskStarted(0, file_task(1)))
        stage.update(Progressed(0, sequences, 0), Progressed(0, -sequences, 0))
    rest = replace(file_task(1), count=99)
    stage.update(TaskStarted(0, rest))
    stage.hand.now += 1
    failed = FailedSequences("ValueError", "bad", ("r",))
    stage.update(Progressed(0, 99, 0), SequencesFailed(0, rest, (failed,)))
    stage.update(TaskFinished(0, rest, 1.0))
    progress = stage.progress
    done = progress.sequences, progress.share, progress.failed, progress.workers[0].state
    assert done == (100, 1.0, 1, "idle")


def test_the_next_stage_knows_the_workers_but_not_the_dead() -> None:
    stage = Worked(gpu(0), gpu(1), gpu(2))
    stage.update(WorkerDied(1, gpu(1), "lost"), host_stage("Merging", 6))
    assert stage.progress.workers == []
    stage.update(begin())
    states = [(worker.number, worker.state) for worker in stage.progress.workers]
    assert states == [(0, "loading"), (2, "loading")]
    stage.update(begin(tasks=0))
    assert stage.progress.workers == []


def test_a_rate_is_of_the_last_half_minute_or_of_rare_reports() -> None:
    worker = WorkerProgress(0, gpu(0), 0.0, 0.0, deque([(0.0, 0, 0)]))
    for second in range(1, 161):
        worker.count(*((100, 1000) if second <= 100 else (10, 100)), second)
    assert worker.per_second(160) == pytest.approx((10, 100), rel=0.01)
    assert worker.per_second(160 + WINDOW) == pytest.approx((5, 50), rel=0.1)
    rare = WorkerProgress(0, gpu(0), 0.0, 0.0, deque([(0.0, 0, 0)]))
    for minute in range(1, 30):
        rare.count(600, 0, 60.0 * minute)
        assert rare.per_second(60.0 * minute) == pytest.approx((10, 0))


def test_the_time_left_is_that_of_the_whole_command() -> None:
    nucleotides = replace(begin(), stage="nucleotides", ahead={STAGE: 500, "x": 0})
    stage = Worked(gpu(0), stage=nucleotides)
    progress = stage.progress
    assert progress.run_remaining == (None, True)
    stage.work(0, 0, 20)
    assert progress.run_remaining == (pytest.approx(180), False)  # proteins are not measured yet
    assert "at least 3:00 left" in screen_of(progress).heading
    stage.update(begin(), WorkerReady(0, gpu(0), STAGE, 1.0))
    for number in range(10):
        stage.work(0, number, 10)
    stage.update(StageFinished(STAGE, 5, 100.0))
    # Of the next part of the data set, the proteins are known from this one: 10 per second.
    ahead = {STAGE: 500, "nucleotides": 0}
    stage.update(replace(nucleotides, ahead=ahead), WorkerReady(0, gpu(0), "nucleotides", 1.0))
    stage.work(0, 0, 20)
    assert progress.run_remaining == (pytest.approx(180 + 50), True)
    assert "3:50 left" in screen_of(progress).heading


def test_a_gpu_without_a_sign_of_life_is_told_once_until_it_moves_again() -> None:
    stage = Worked(gpu(0), Device("cpu"), gpu(2))
    stage.update(TaskStarted(0, file_task(0)), TaskStarted(1, file_task(1)))

    def said_after(seconds: float) -> list[str]:
        stage.hand.now += seconds
        return worker_warnings(stage.progress.workers, stage.hand.now)

    assert said_after(599) == []
    (said,) = said_after(1)
    assert said.startswith("GPU 0 NVIDIA H200 has made no progress for 10:00 on output_0_ESM.pt")
    assert said_after(700) == []
    stage.update(Progressed(0, 1, 1))
    assert said_after(0) == []
    assert len(said_after(700)) == 1
