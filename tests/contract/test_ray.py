"""The worker pool on a Ray cluster: the contract of every pool, and what only this one does.

The contract of workers and the faults run over it in ``tests/slow``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.contract.ray_cluster import local_cluster, ray_pool
from tests.contract.test_pools import (  # noqa: F401 - run here over the pool of this file
    DEVICES,
    _is,
    _stage,
    _until,
    test_failures_are_described,
    test_work_before_a_restart_is_never_reported_and_a_removed_worker_is_gone,
    test_work_is_done_in_the_order_in_which_it_was_given,
    test_workers_are_started_while_there_are_devices,
)
from virnucpro.errors import UsageError
from virnucpro.events import Event, Notice, WorkerDied
from virnucpro.workers.pool import WorkEnded, WorkerPool
from virnucpro.workers.ray_pool import RayPool, places


class StartedOnce:
    """A pool whose workers serve one test after the other: to start an actor takes seconds."""

    def __init__(self, pool: RayPool) -> None:
        self._pool = pool
        self._unused = list(pool.workers)

    def start(self) -> int | None:
        return self._unused.pop(0) if self._unused else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


@pytest.fixture(scope="module")
def started() -> Iterator[RayPool]:
    """A pool with all workers started, on a cluster of one node."""
    with local_cluster(cpus=2):
        made = ray_pool(DEVICES)
        assert [made.start() for _ in range(3)] == [0, 1, None]
        yield made
        made.close()
        made.close()
        assert not made.workers


@pytest.fixture
def pool(started: RayPool) -> WorkerPool:
    """The pool on Ray."""
    return cast(WorkerPool, StartedOnce(started))


# Here the first of both workers is gone: a test above has removed it.
def test_a_lost_worker_is_reported_and_its_successor_works(pool, tmp_path):
    stage, tasks = _stage(tmp_path, ["a", "killed", "c"])
    worker = pool.start()
    assert worker is not None
    pool.submit(worker, stage)
    pool.submit(worker, tasks[0])
    exited = _until(pool, _is(WorkerDied))[-1]
    assert isinstance(exited, WorkerDied)
    assert exited.worker == worker
    assert "is gone" in exited.reason
    pool.restart(worker)
    pool.submit(worker, stage)
    pool.submit(worker, tasks[1])
    _until(pool, _is(WorkEnded))


def test_a_node_without_a_model_file_is_left_out_and_named(started, tmp_path):
    place = places(2)[0]  # one of the two processors is free
    (tmp_path / "here").write_bytes(b"1234")
    events: list[Event] = []
    pool = RayPool(lambda: [place], 1, {tmp_path / "here": 4}, events.append).gather()
    assert len(pool.devices) == 1
    with pytest.raises(UsageError, match="no node of the cluster can be used"):
        pool.require({tmp_path / "none": 4})
    pool.close()
    assert pool.start() is None
    (refusal,) = pool.refusals.values()
    assert refusal.startswith(f"node {place[1].host} is left out: files are missing")
    assert refusal.endswith(f"there: {tmp_path / 'none'}")
    assert events == [Notice("warning", refusal)]
