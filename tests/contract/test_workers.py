"""What workers promise, asked of them over each pool."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from tests.contract.counting import Counting
from tests.contract.pools import ANY_POOL, POOLS
from tests.contract.running import fasta, fastas, run_stage, written
from virnucpro.contracts import Device
from virnucpro.events import Progressed, WorkerReport
from virnucpro.workers.scheduler import Workers


@pytest.fixture(params=ANY_POOL)
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Workers over each pool."""
    made = Workers(POOLS[request.param]([Device("cpu", threads=1)] * 2))
    yield made
    made.close()
    assert not multiprocessing.active_children()


def test_every_sequence_exactly_once_in_file_order(workers, tmp_path):
    names = [[f"a{n}" for n in range(35)], [f"b{n}" for n in range(7)], ["c0"]]
    files = tuple(fasta(tmp_path, f"f{i}.fa", ids) for i, ids in enumerate(names))
    outcomes, events = run_stage(Counting(files, tmp_path), workers, tmp_path)
    assert len(outcomes) == 3
    for i, ids in enumerate(names):
        lines = (tmp_path / f"f{i}.txt").read_text().splitlines()
        assert lines == [f"{name} {5 + n}" for n, name in enumerate(ids)]
    assert sum(e.sequences for e in events if isinstance(e, Progressed)) == 43
    reports = [e for e in events if isinstance(e, WorkerReport)]
    assert sum(report.tasks for report in reports) == len(outcomes)
    assert max(report.measured.peak_memory for report in reports) == 8000
    assert run_stage(Counting(files, tmp_path), workers, tmp_path)[0] == []


def test_a_stage_follows_one_that_was_left_half_way(workers, tmp_path):
    ids = [f"a{n}" for n in range(20)]
    stage = Counting(fastas(tmp_path, ids, 4), tmp_path, seconds_per_base=0.001)
    half = workers.carry_out(stage, stage.tasks(), lambda event: None)
    next(half)
    half.close()
    outcomes, events = run_stage(stage, workers, tmp_path)
    assert len(outcomes) == 5
    assert written(tmp_path) == ids
    assert sum(e.sequences for e in events if isinstance(e, Progressed)) == 20
