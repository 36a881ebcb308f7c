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
from virnucpro.events import Progressed, WorkerDied, WorkerReady
from virnucpro.workers.pool import PoolEvent, WorkEnded, WorkerPool, WorkFailure

DEVICES = [Device("cpu", 0), Device("cpu", 1)]
SECONDS = 60  # a bound for a hang


@pytest.fixture(params=ANY_POOL)
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    """Each pool."""
    made = POOLS[request.param](DEVICES)
    yield made
    made.close()
    made.close()
    assert not made.workers


def _stage(folder: Path, ids: list[str], **options: float) -> tuple[Counting, list[Task]]:
    stage = Counting(fastas(folder, ids, 2), folder, **options)
    return stage, stage.tasks()


def _until(pool: WorkerPool, enough: Callable[[PoolEvent], bool]) -> list[PoolEvent]:
    """Wait for an event; return all events up to it."""
    events: list[PoolEvent] = []
    deadline = time.monotonic() + SECONDS
    while not any(map(enough, events)):
        assert time.monotonic() < deadline, events
        pool.wait(0.1, events.append)
    return events


def _is(kind: type) -> Callable[[PoolEvent], bool]:
    return lambda event: isinstance(event, kind)


def test_workers_are_started_while_there_are_devices(pool):
    numbers = []
    while (number := pool.start()) is not None:
        numbers.append(number)
    assert len(set(numbers)) == len(numbers) >= 1
    assert sorted(pool.workers) == sorted(numbers)
    assert all(device.index == DEVICES[n].index for n, device in pool.workers.items())


def test_work_is_done_in_the_order_in_which_it_was_given(pool, tmp_path):
    stage, tasks = _stage(tmp_path, ["a", "b", "c", "d"])
    worker = pool.start()
    assert worker is not None
    pool.submit(worker, stage)
    for task in tasks:
        pool.submit(worker, task)
    events = _until(pool, lambda e: isinstance(e, WorkEnded) and e.task == tasks[-1])
    assert isinstance(events[0], WorkerReady)
    assert events[0].facts == {"budget": 8, "unit": "sequences"}
    ended = [event for event in events if isinstance(event, WorkEnded)]
    assert [event.task for event in ended] == tasks
    assert {event.measured.peak_memory for event in ended} == {8000}
    assert sum(e.sequences for e in events if isinstance(e, Progressed)) == 4
    assert {event.worker for event in events} == {worker}


def test_failures_are_described(pool, tmp_path):
    stage, tasks = _stage(tmp_path, ["a", "cuda", "c"])
    worker = pool.start()
    assert worker is not None
    pool.submit(worker, stage)
    pool.submit(worker, tasks[0])
    failed = _until(pool, _is(WorkEnded))[-1]
    assert isinstance(failed, WorkEnded)
    assert failed.task == tasks[0]
    assert isinstance(failed.outcome, WorkFailure)
    assert (failed.outcome.kind, failed.outcome.error) == ("device", "RuntimeError")
    pool.submit(worker, tasks[1])  # and the worker goes on
    _until(pool, _is(WorkEnded))


def test_work_before_a_restart_is_never_reported_and_a_removed_worker_is_gone(pool, tmp_path):
    stage, tasks = _stage(tmp_path, ["a", "b", "c", "d"], seconds_per_base=0.02)
    worker = pool.start()
    assert worker is not None
    pool.submit(worker, stage)
    _until(pool, _is(WorkerReady))
    for task in tasks:
        pool.submit(worker, task)
    pool.restart(worker)
    pool.submit(worker, stage)
    pool.submit(worker, tasks[1])
    events = _until(pool, _is(WorkEnded))
    assert [type(event) for event in events[:1]] == [WorkerReady]
    assert [e.task for e in events if isinstance(e, WorkEnded)] == [tasks[1]]
    pool.remove(worker)
    assert worker not in pool.workers
    assert pool.start() != worker


@pytest.mark.parametrize("pool", SURVIVING_POOLS, indirect=True)
@pytest.mark.parametrize(("fault", "reason"), [("exit", "exit code 7"), ("killed", "signal 9")])
def test_a_worker_that_dies_is_reported_with_its_reason(pool, tmp_path, fault, reason):
    stage, tasks = _stage(tmp_path, ["a", fault])
    worker = pool.start()
    assert worker is not None
    pool.submit(worker, stage)
    pool.submit(worker, tasks[0])
    died = _until(pool, _is(WorkerDied))[-1]
    assert isinstance(died, WorkerDied)
    assert (died.worker, died.reason, died.lost) == (worker, reason, False)
