"""What every worker pool promises to the scheduler, asked of each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.counting import Counting
from tests.contract.pools import ANY_POOL, POOLS, SURVIVING_POOLS
from tests.contract.running import fastas
from virnucpro.contracts import Device, Task
from virnucpro.executors.pool import (
    PoolEvent,
    ProgressMade,
    StageOpened,
    TaskCompleted,
    WorkerExited,
    WorkerPool,
    WorkerSilent,
    WorkFailed,
)

DEVICES = [Device("cpu", 0), Device("cpu", 1)]
SECONDS = 60  # a bound for a hang


def _closed_later(name: str) -> Iterator[WorkerPool]:
    made = POOLS[name].make(DEVICES)
    yield made
    made.close()
    made.close()
    assert not made.workers


@pytest.fixture(params=ANY_POOL)
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    """Each pool."""
    yield from _closed_later(request.param)


@pytest.fixture(params=SURVIVING_POOLS)
def surviving_pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    """Each pool whose workers may die."""
    yield from _closed_later(request.param)


def _stage(folder: Path, ids: list[str], **options: float) -> tuple[Counting, list[Task]]:
    stage = Counting(fastas(folder, ids, 2), folder, **options)  # type: ignore[arg-type]
    return stage, stage.plan()


def _until(pool: WorkerPool, enough: Callable[[PoolEvent], bool]) -> list[PoolEvent]:
    """Wait for an event; return all events up to it, except for silence."""
    events: list[PoolEvent] = []
    deadline = time.monotonic() + SECONDS
    while not any(map(enough, events)):
        assert time.monotonic() < deadline, events
        pool.wait(0.1, events.append)
    return [event for event in events if not isinstance(event, WorkerSilent)]


def _is(kind: type) -> Callable[[PoolEvent], bool]:
    return lambda event: isinstance(event, kind)


def test_workers_are_started_while_there_are_devices(pool: WorkerPool) -> None:
    numbers = []
    while (number := pool.start()) is not None:
        numbers.append(number)
    assert len(set(numbers)) == len(numbers) >= 1
    assert sorted(pool.workers) == sorted(numbers)
    assert all(device.index == DEVICES[n].index for n, device in pool.workers.items())


def test_work_is_done_in_the_order_in_which_it_was_given(pool: WorkerPool, tmp_path: Path) -> None:
    stage, tasks = _stage(tmp_path, ["a", "b", "c", "d"])
    worker = pool.start()
    assert worker is not None
    pool.open(worker, stage, 1)
    for task in tasks:
        pool.submit(worker, task)
    events = _until(pool, lambda e: isinstance(e, TaskCompleted) and e.result.task == tasks[-1])
    assert isinstance(events[0], StageOpened)
    assert events[0].facts == {"budget": 8, "unit": "sequences"}
    completed = [event for event in events if isinstance(event, TaskCompleted)]
    assert [event.result.task for event in completed] == tasks
    assert {event.figures.peak_memory for event in completed} == {
        4000
    }  # the batches were halved once
    assert sum(e.sequences for e in events if isinstance(e, ProgressMade)) == 4
    assert {event.worker for event in events} == {worker}


def test_failures_are_described(pool: WorkerPool, tmp_path: Path) -> None:
    stage, tasks = _stage(tmp_path, ["a", "cuda", "c"])
    worker = pool.start()
    assert worker is not None
    pool.open(worker, stage, 0)
    pool.submit(worker, tasks[0])
    failed = _until(pool, _is(WorkFailed))[-1]
    assert isinstance(failed, WorkFailed)
    assert failed.task == tasks[0]
    assert (failed.failure.kind, failed.failure.error) == ("device", "RuntimeError")
    pool.submit(worker, tasks[1])  # and the worker goes on
    _until(pool, _is(TaskCompleted))


def test_a_stage_that_does_not_open_is_a_failure_without_a_task(
    pool: WorkerPool, tmp_path: Path
) -> None:
    worker = pool.start()
    assert worker is not None
    pool.open(worker, Counting((), tmp_path, opening="raises"), 0)
    (failed,) = _until(pool, _is(WorkFailed))
    assert isinstance(failed, WorkFailed)
    assert failed.task is None
    assert failed.failure.message == "this model is damaged"


def test_work_of_an_abandoned_stage_is_never_reported(pool: WorkerPool, tmp_path: Path) -> None:
    stage, tasks = _stage(tmp_path, ["a", "b", "c", "d"], seconds_per_base=0.02)
    worker = pool.start()
    assert worker is not None
    pool.open(worker, stage, 0)
    _until(pool, _is(StageOpened))
    for task in tasks:
        pool.submit(worker, task)
    pool.open(worker, stage, 0)
    pool.submit(worker, tasks[1])
    events = _until(pool, _is(TaskCompleted))
    assert [type(event) for event in events[:1]] == [StageOpened]
    assert [e.result.task for e in events if isinstance(e, TaskCompleted)] == [tasks[1]]


def test_a_restarted_worker_has_nothing_to_do_and_a_removed_one_is_gone(
    pool: WorkerPool, tmp_path: Path
) -> None:
    stage, tasks = _stage(tmp_path, ["a", "b"])
    worker = pool.start()
    assert worker is not None
    pool.open(worker, stage, 0)
    _until(pool, _is(StageOpened))
    pool.submit(worker, tasks[0])
    pool.restart(worker)
    pool.open(worker, stage, 0)
    assert [type(event) for event in _until(pool, _is(StageOpened))] == [StageOpened]
    pool.remove(worker)
    assert worker not in pool.workers
    assert pool.start() != worker


@pytest.mark.parametrize(("fault", "reason"), [("exit", "exit code 7"), ("killed", "signal 9")])
def test_a_worker_that_dies_is_reported_with_its_reason(
    surviving_pool: WorkerPool, tmp_path: Path, fault: str, reason: str
) -> None:
    stage, tasks = _stage(tmp_path, ["a", fault])
    worker = surviving_pool.start()
    assert worker is not None
    surviving_pool.open(worker, stage, 0)
    surviving_pool.submit(worker, tasks[0])
    assert _until(surviving_pool, _is(WorkerExited))[-1] == WorkerExited(worker, reason)


def test_silence_is_counted_from_the_last_event(surviving_pool: WorkerPool, tmp_path: Path) -> None:
    stage, tasks = _stage(tmp_path, ["a", "hang"])
    worker = surviving_pool.start()
    assert worker is not None
    surviving_pool.open(worker, stage, 0)
    _until(surviving_pool, _is(StageOpened))
    surviving_pool.submit(worker, tasks[0])
    seconds: list[float] = []

    def note(event: PoolEvent) -> None:
        if isinstance(event, WorkerSilent):
            seconds.append(event.seconds)

    began = time.monotonic()
    while not seconds or seconds[-1] < 0.5:
        assert time.monotonic() < began + SECONDS
        surviving_pool.wait(0.1, note)
    assert seconds == sorted(seconds)
    assert time.monotonic() - began >= 0.5
    time.sleep(1)  # in which nobody listened: it does not count
    surviving_pool.wait(0.1, note)
    assert seconds[-1] < 1
