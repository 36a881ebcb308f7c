"""Figures from events, with a clock set by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ui.simulated import Hand, begin, gpu, span
from virnucpro.contracts import FailedTask, Task
from virnucpro.events import (
    FileFinished,
    Progressed,
    StageStarted,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.ui.figures import Figures
from virnucpro.ui.meter import Meter
from virnucpro.ui.rate import WINDOW, Amount, Rate


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def meter(hand: Hand) -> Meter:
    return Meter(hand)


def _work(
    meter: Meter, hand: Hand, worker: int, start: int, seconds: float, steps: int = 4
) -> None:
    task = span(start)
    meter.update(TaskStarted(worker, task))
    for _ in range(steps):
        hand.now += seconds / steps
        meter.update(Progressed(worker, 100 // steps, 7000 // steps))
    meter.update(TaskFinished(worker, task, seconds))


def test_a_worker_has_its_part_of_what_is_done(meter: Meter, hand: Hand) -> None:
    meter.update(begin())
    for number in range(2):
        meter.update(WorkerReady(number, gpu(number), "esm", 1.0))
    for start, worker in ((0, 0), (100, 0), (200, 0), (300, 1)):
        _work(meter, hand, worker, start, 5)
    first, second = meter.workers
    assert (first.tasks, first.sequences, first.tokens) == (3, 300, 21_000)
    assert (meter.part(first), meter.part(second)) == (0.75, 0.25)
    assert (meter.sequences, meter.pieces_done, meter.share) == (400, 4, 0.4)
    assert first.usual_seconds == 5


def test_remaining_time_goes_by_weight_not_by_tokens_as_counted(meter: Meter, hand: Hand) -> None:
    meter.update(begin())
    meter.update(WorkerReady(0, gpu(0), "esm", 1.0))
    _work(meter, hand, 0, 0, 20)  # 100 of 1,000 sequences; the tokens differ from the weight
    assert meter.remaining == pytest.approx(180)


@pytest.mark.parametrize(
    ("share_done", "seconds", "told"),
    [(0, 60, False), (1, 5, False), (1, 11, True), (2, 5, True), (2, 0.5, False)],
)
def test_no_forecast_at_the_start(
    meter: Meter, hand: Hand, share_done: int, seconds: float, told: bool
) -> None:
    meter.update(begin(pieces=1))
    hand.now += 300  # loading the model takes its time, which is no measure of the work
    meter.update(WorkerReady(0, gpu(0), "esm", 300))
    meter.update(TaskStarted(0, span(0)))
    hand.now += seconds
    if share_done:
        meter.update(Progressed(0, share_done, share_done * 70))
    assert (meter.remaining is not None) is told
    if told:
        assert meter.remaining == pytest.approx(seconds * (100 - share_done) / share_done)


def test_what_a_dead_worker_had_begun_is_taken_back(meter: Meter, hand: Hand) -> None:
    meter.update(begin())
    meter.update(WorkerReady(0, gpu(0), "esm", 1.0))
    _work(meter, hand, 0, 0, 5)
    meter.update(TaskStarted(0, span(100)))
    meter.update(Progressed(0, 60, 4200))
    assert meter.sequences == 160
    meter.update(WorkerDied(0, gpu(0), "signal 9"))
    assert (meter.sequences, meter.workers[0].state) == (100, "dead")
    meter.update(WorkerReady(0, gpu(0), "esm", 1.0))
    _work(meter, hand, 0, 100, 5)
    assert (meter.sequences, meter.share, meter.workers[0].state) == (200, 0.2, "idle")


def test_halves_and_failures_end_at_all_done(meter: Meter, hand: Hand) -> None:
    meter.update(begin(pieces=1))
    meter.update(WorkerReady(0, gpu(0), "esm", 1.0))
    meter.update(TaskStarted(0, span(0)))
    meter.update(Progressed(0, 80, 0))
    for half in (span(0, 99, 9_900), span(99, 1, 100)):
        meter.update(TaskStarted(0, half))
        hand.now += 1
        if half.count == 99:
            meter.update(Progressed(0, 99, 0))
            meter.update(TaskFinished(0, half, 1.0))
    meter.update(TaskFailed(0, FailedTask(span(99, 1, 100), "ValueError", "bad", ("r",))))
    assert (meter.sequences, meter.share, meter.failed, meter.workers[0].state) == (
        100,
        1.0,
        1,
        "idle",
    )


def test_the_next_stage_knows_the_workers_but_not_the_dead(meter: Meter) -> None:
    meter.update(begin())
    for number in range(3):
        meter.update(WorkerReady(number, gpu(number), "dnabert", 1.0))
    meter.update(WorkerDied(1, gpu(1), "lost"))
    meter.update(StageStarted("merging", 6, 1, 1, 0, 0))
    assert meter.workers == []
    meter.update(begin())
    assert [(w.number, w.state) for w in meter.workers] == [(0, "loading"), (2, "loading")]
    meter.update(StageStarted("esm", 5, 10, 0, 0, 0))
    assert meter.workers == []


def test_a_stage_of_the_host(meter: Meter, hand: Hand) -> None:
    meter.update(StageStarted("translation", 2, 1, 1, 1000, 0))
    meter.update(TaskStarted(0, span(0, 1000, 0)))
    hand.now += 10
    for _ in range(250):
        meter.update(Progressed(0, 1, 0))
    assert (meter.title, meter.workers, meter.share) == ("[2/9] Translation", [], 0.25)
    assert meter.remaining == pytest.approx(30)
    meter.update(StageStarted("chunking", 1, 1, 1, 0, 0))
    assert (meter.share, meter.remaining) == (None, None)
    meter.update(StageStarted("merging", 6, 4, 4, 0, 0))
    meter.update(TaskStarted(0, span(0)))
    hand.now += 10
    meter.update(TaskFinished(0, span(0), 10))
    assert meter.share == 0.25


def test_the_rate_forgets_what_is_older_than_its_window() -> None:
    rate = Rate(0.0)
    for second in range(1, 101):
        rate.add(second, Amount(100, 1000))
    for second in range(101, 161):
        rate.add(second, Amount(10, 100))
    pace = rate.pace(160)
    assert pace is not None
    assert pace.sequences == pytest.approx(10, rel=0.01)
    assert rate.pace(160 + WINDOW).sequences == pytest.approx(5, rel=0.1)  # type: ignore[union-attr]


def test_the_rate_of_rare_reports_does_not_fall_to_nothing_between_them() -> None:
    rate = Rate(0.0)
    for minute in range(1, 30):
        rate.add(60.0 * minute, Amount(600))
        assert rate.pace(60.0 * minute).sequences == pytest.approx(10)  # type: ignore[union-attr]


def test_files_are_counted_where_a_stage_has_several() -> None:
    meter = Meter(lambda: 0.0)
    meter.update(StageStarted("esm", 5, 3, 12, 1200, 1200, files=3))
    whole = Task("esm", 1, (Path("output_1.fa"),), (Path("output_1_ESM.pt"),), Path("r"), count=400)
    meter.update(FileFinished("esm", whole))
    assert "1 of 3 files" in Figures(meter).heading
