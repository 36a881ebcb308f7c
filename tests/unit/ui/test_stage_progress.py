"""Dashboard from events, with a clock set by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.ui.simulated import Hand, begin, file_task, gpu
from virnucpro.contracts import FailedSequences
from virnucpro.events import (
    Progressed,
    ReportStarted,
    SequencesFailed,
    StageAhead,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.ui.dashboard import Dashboard
from virnucpro.ui.rate import WINDOW, RecentRate, WorkAmount
from virnucpro.ui.stage_progress import StageProgress


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def progress(hand: Hand) -> StageProgress:
    return StageProgress(hand)


def _work(
    progress: StageProgress, hand: Hand, worker: int, start: int, seconds: float, steps: int = 4
) -> None:
    task = file_task(start)
    progress.update(TaskStarted(worker, task))
    for _ in range(steps):
        hand.now += seconds / steps
        progress.update(Progressed(worker, 100 // steps, 7000 // steps))
    progress.update(TaskFinished(worker, task, seconds))


def test_a_worker_has_its_part_of_what_is_done(progress: StageProgress, hand: Hand) -> None:
    progress.update(begin())
    for number in range(2):
        progress.update(WorkerReady(number, gpu(number), "protein_embeddings", 1.0))
    for start, worker in ((0, 0), (100, 0), (200, 0), (300, 1)):
        _work(progress, hand, worker, start, 5)
    first, second = progress.workers
    assert (first.tasks, first.sequences, first.finished.tokens) == (3, 300, 21_000)
    assert (progress.part(first.sequences), progress.part(second.sequences)) == (0.75, 0.25)
    assert (progress.sequences, progress.tasks_done, progress.share) == (400, 4, 0.4)
    assert first.usual_seconds == 5


def test_remaining_time_goes_by_weight_not_by_tokens_as_counted(
    progress: StageProgress, hand: Hand
) -> None:
    progress.update(begin())
    progress.update(WorkerReady(0, gpu(0), "protein_embeddings", 1.0))
    _work(progress, hand, 0, 0, 20)  # 100 of 1,000 sequences; the tokens differ from the weight
    assert progress.remaining == pytest.approx(180)


@pytest.mark.parametrize(
    ("share_done", "seconds", "told"),
    [(0, 60, False), (1, 5, False), (1, 11, True), (2, 5, True), (2, 0.5, False)],
)
def test_no_forecast_at_the_start(
    progress: StageProgress, hand: Hand, share_done: int, seconds: float, told: bool
) -> None:
    progress.update(begin(tasks=1))
    hand.now += 300  # loading the model takes its time, which is no measure of the work
    progress.update(WorkerReady(0, gpu(0), "protein_embeddings", 300))
    progress.update(TaskStarted(0, file_task(0)))
    hand.now += seconds
    if share_done:
        progress.update(Progressed(0, share_done, share_done * 70))
    assert (progress.remaining is not None) is told
    if told:
        assert progress.remaining == pytest.approx(seconds * (100 - share_done) / share_done)


def test_what_a_dead_worker_had_begun_is_taken_back(progress: StageProgress, hand: Hand) -> None:
    progress.update(begin())
    progress.update(WorkerReady(0, gpu(0), "protein_embeddings", 1.0))
    _work(progress, hand, 0, 0, 5)
    progress.update(TaskStarted(0, file_task(100)))
    progress.update(Progressed(0, 60, 4200))
    assert progress.sequences == 160
    progress.update(WorkerDied(0, gpu(0), "signal 9"))
    assert (progress.sequences, progress.workers[0].state) == (100, "dead")
    progress.update(WorkerReady(0, gpu(0), "protein_embeddings", 1.0))
    _work(progress, hand, 0, 100, 5)
    assert (progress.sequences, progress.share, progress.workers[0].state) == (200, 0.2, "idle")


def test_trials_and_failures_end_at_all_done(progress: StageProgress, hand: Hand) -> None:
    progress.update(begin(tasks=1))
    progress.update(WorkerReady(0, gpu(0), "protein_embeddings", 1.0))
    for sequences in (80, 50):  # of an attempt that failed, and of a trial
        progress.update(TaskStarted(0, file_task(1)))
        progress.update(Progressed(0, sequences, 0))
        progress.update(Progressed(0, -sequences, 0))
    rest = replace(file_task(1), count=99)
    progress.update(TaskStarted(0, rest))
    hand.now += 1
    progress.update(Progressed(0, 99, 0))
    progress.update(SequencesFailed(0, rest, (FailedSequences("ValueError", "bad", ("r",)),)))
    progress.update(TaskFinished(0, rest, 1.0))
    done = (progress.sequences, progress.share, progress.failed, progress.workers[0].state)
    assert done == (100, 1.0, 1, "idle")


def test_the_next_stage_knows_the_workers_but_not_the_dead(progress: StageProgress) -> None:
    progress.update(begin())
    for number in range(3):
        progress.update(WorkerReady(number, gpu(number), "nucleotide_embeddings", 1.0))
    progress.update(WorkerDied(1, gpu(1), "lost"))
    progress.update(
        StageStarted("merging", 6, 1, 1, 0, 0, title="Merging", stages=9, on_workers=False)
    )
    assert progress.workers == []
    progress.update(begin())
    assert [(w.number, w.state) for w in progress.workers] == [(0, "loading"), (2, "loading")]
    progress.update(
        StageStarted("protein_embeddings", 5, 10, 0, 0, 0, title="ESM-2", stages=9, on_workers=True)
    )
    assert progress.workers == []


def test_a_stage_of_the_host(progress: StageProgress, hand: Hand) -> None:
    progress.update(
        StageStarted(
            "translation", 2, 1, 1, 1000, 0, title="Translation", stages=9, on_workers=False
        )
    )
    progress.update(TaskStarted(0, file_task(0, 1000, 0)))
    hand.now += 10
    for _ in range(250):
        progress.update(Progressed(0, 1, 0))
    assert (progress.title, progress.workers, progress.share) == ("[2/9] Translation", [], 0.25)
    assert progress.remaining == pytest.approx(30)
    progress.update(
        StageStarted("chunking", 1, 1, 1, 0, 0, title="Chunking", stages=9, on_workers=False)
    )
    assert (progress.share, progress.remaining) == (None, None)
    progress.update(
        StageStarted("merging", 6, 4, 4, 0, 0, title="Merging", stages=9, on_workers=False)
    )
    progress.update(TaskStarted(0, file_task(0)))
    hand.now += 10
    progress.update(TaskFinished(0, file_task(0), 10))
    assert progress.share == 0.25


def test_the_rate_forgets_what_is_older_than_its_window() -> None:
    rate = RecentRate(0.0)
    for second in range(1, 101):
        rate.add(second, WorkAmount(100, 1000))
    for second in range(101, 161):
        rate.add(second, WorkAmount(10, 100))
    pace = rate.per_second(160)
    assert pace is not None
    assert pace.sequences == pytest.approx(10, rel=0.01)
    assert rate.per_second(160 + WINDOW).sequences == pytest.approx(5, rel=0.1)  # type: ignore[union-attr]


def test_the_rate_of_rare_reports_does_not_fall_to_nothing_between_them() -> None:
    rate = RecentRate(0.0)
    for minute in range(1, 30):
        rate.add(60.0 * minute, WorkAmount(600))
        assert rate.per_second(60.0 * minute).sequences == pytest.approx(10)  # type: ignore[union-attr]


def _of_records(records: int) -> StageStarted:
    return StageStarted("output", 9, 1, 1, records, 0, title="Output", stages=9, on_workers=False)


def test_no_time_is_told_while_work_goes_on_that_is_not_counted(
    progress: StageProgress, hand: Hand
) -> None:
    progress.update(_of_records(1000))
    for _ in range(10):
        hand.now += 2
        progress.update(Progressed(0, 100, 0))
    assert (progress.share, progress.remaining) == (1, None)
    hand.now += 60
    assert Dashboard(progress).heading == ["[9/9] Output", "1:20 so far"]


def test_the_report_is_counted_by_records_behind_the_last_stage(
    progress: StageProgress, hand: Hand
) -> None:
    progress.update(replace(_of_records(1000), ahead=(StageAhead("report", seconds=20),)))
    hand.now += 10
    progress.update(Progressed(0, 500, 0))
    assert Dashboard(progress).heading == ["[9/9] Output", "0:30 left"]
    progress.update(StageFinished("output", 9, 20.0))
    progress.update(ReportStarted(1000))
    hand.now += 15
    progress.update(Progressed(0, 750, 0))
    assert Dashboard(progress).heading == ["[9/9] Report", "0:05 left"]
    assert progress.share == 0.75
    others = (StageAhead("report", seconds=20), StageAhead("other samples"))
    progress.update(replace(_of_records(1000), ahead=others))
    progress.update(ReportStarted(1000))
    hand.now += 15
    progress.update(Progressed(0, 750, 0))
    assert Dashboard(progress).heading == ["[9/9] Report", "at least 0:05 left"]


def _with_ahead(*ahead: StageAhead, name: str = "protein_embeddings") -> StageStarted:
    return replace(begin(), stage=name, ahead=ahead)


def test_the_time_left_is_that_of_the_whole_command(progress: StageProgress, hand: Hand) -> None:
    host = StageAhead("merging", seconds=7.0)
    progress.update(_with_ahead(StageAhead("protein_embeddings", 500), host, name="nucleotides"))
    progress.update(WorkerReady(0, gpu(0), "nucleotides", 1.0))
    assert progress.run_remaining is None
    _work(progress, hand, 0, 0, 20)
    assert progress.run_remaining == (pytest.approx(187), False)  # proteins are not measured yet
    assert any(part.startswith("at least 3:07") for part in Dashboard(progress).heading)
    progress.update(_with_ahead(host))
    progress.update(WorkerReady(0, gpu(0), "protein_embeddings", 1.0))
    for start in range(0, 1000, 100):
        _work(progress, hand, 0, start, 10)
    progress.update(StageFinished("protein_embeddings", 5, 100.0))
    # Of the next part of the data set, the proteins are known from this one: 10 per second.
    later = (StageAhead("protein_embeddings", 500), StageAhead("nucleotides", 0), host)
    progress.update(_with_ahead(*later, name="nucleotides"))
    progress.update(WorkerReady(0, gpu(0), "nucleotides", 1.0))
    _work(progress, hand, 0, 0, 20)
    assert progress.run_remaining == (pytest.approx(180 + 50 + 7), True)
    assert any(part == "3:57 left" for part in Dashboard(progress).heading)
