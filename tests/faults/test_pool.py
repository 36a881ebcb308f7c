"""Injected faults, with real processes: nothing good is lost, and every run ends in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.counting import Counting
from tests.contract.pools import POOLS
from tests.contract.running import failed_ids, fasta, fastas, run_stage, written
from virnucpro.contracts import Device, TaskResult
from virnucpro.errors import DeviceError, OutputError
from virnucpro.events import Event, Progressed, WorkerDied, WorkerReport
from virnucpro.workers import scheduler
from virnucpro.workers.pool import WorkerPool
from virnucpro.workers.scheduler import Workers

Make = Callable[..., Workers]


@contextmanager
def maker(make_pool: Callable[[list[Device]], WorkerPool]) -> Iterator[Make]:
    """Make so many workers, or fewer, over a pool."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        def make(workers: int, indices: Sequence[int] = (), silence: float = 600) -> Workers:
            patch.setattr(scheduler, "MOST_SILENCE", silence)
            devices = [Device("cpu", index) for index in indices or range(workers)]
            return stack.enter_context(closing(Workers(make_pool(devices))))

        yield make


@pytest.fixture
def pool() -> Iterator[Make]:
    """Over processes that write one task while they compute the next one, as on GPUs."""
    with maker(POOLS["overlapping"]) as make:
        yield make


def _check(ids: list[str], bad: list[str], outcomes: list[TaskResult], folder: Path) -> None:
    """Every good sequence is there exactly once, in file order, and only the bad are given up."""
    assert failed_ids(outcomes) == sorted(bad)
    assert written(folder) == [name for name in ids if name not in bad]


def _of(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize(
    "fault", ["poison", "unwritable", "exit", "killed", "segfault", "report", "cuda", "obese"]
)
def test_two_bad_sequences_are_found_and_no_other_lost(pool, tmp_path, fault):
    ids = [f"a{n}" for n in range(18)]
    ids[3], ids[11] = bad = [f"{fault}3", f"{fault}11"]
    stage = Counting(fastas(tmp_path, ids, 6), tmp_path)
    outcomes, events = run_stage(stage, pool(2), tmp_path)
    _check(ids, bad, outcomes, tmp_path)
    errors = {failed.error for o in outcomes for failed in o.figures.failures}
    deaths = len(_of(events, WorkerDied))
    if fault in ("poison", "unwritable"):
        kind = {"poison": "ValueError", "unwritable": "ArithmeticError"}
        assert (errors, deaths) == ({kind[fault]}, 0)
        assert sum(event.sequences for event in _of(events, Progressed)) == 16
    elif fault == "obese":  # each file twice; alone, it is only noted
        assert (errors, deaths) == ({"MemoryError"}, 2 + 2)
    else:
        # Each file twice, and then the sequence alone.
        assert (errors, deaths) == ({"WorkerDied"}, (2 + 1) + (2 + 1))


@pytest.mark.parametrize(("word", "failed", "batch"), [("fat5", [], 1), ("obese5", ["obese5"], 8)])
def test_batches_stay_smaller_where_everything_fits_then(pool, tmp_path, word, failed, batch):
    """Those that were made smaller in vain grow again."""
    ids = [f"a{n}" for n in range(20)]
    ids[5] = word
    stage = Counting(fastas(tmp_path, ids, 10), tmp_path)
    outcomes, events = run_stage(stage, pool(1), tmp_path)
    _check(ids, failed, outcomes, tmp_path)
    (report,) = _of(events, WorkerReport)
    assert report.measured.peak_memory == 1000 * batch
    assert sum(event.sequences for event in _of(events, Progressed)) == 20 - len(failed)


def test_a_device_that_never_opens_does_not_hold_up_the_others(pool, tmp_path):
    ids = [f"a{n}" for n in range(30)]
    stage, workers = Counting(fastas(tmp_path, ids, 5), tmp_path, opening="hangs on 1"), pool(2)
    outcomes, _ = run_stage(stage, workers, tmp_path)
    _check(ids, [], outcomes, tmp_path)
    _, events = run_stage(Counting(fastas(tmp_path, ids, 4), tmp_path), workers, tmp_path)
    assert {event.worker for event in _of(events, WorkerReport)} == {0, 1}


@pytest.mark.parametrize(("opening", "seconds"), [("segfault", 600), ("hangs on 1", 1)])
def test_when_no_device_is_left_the_run_ends(pool, tmp_path, opening, seconds):
    stage = Counting((fasta(tmp_path, "f.fa", ["a0"]),), tmp_path, opening=opening)
    with pytest.raises(DeviceError, match="no device is left"):
        run_stage(stage, pool(1, indices=[1], silence=seconds), tmp_path)


def test_a_spare_device_takes_over(pool, tmp_path):
    stage = Counting((fasta(tmp_path, "f.fa", ["a0"]),), tmp_path, opening="dies on 1")
    outcomes, _ = run_stage(stage, pool(2, indices=[1, 0]), tmp_path)
    _check(["a0"], [], outcomes, tmp_path)


def test_a_full_disk_lets_the_others_finish(pool, tmp_path):
    files = (fasta(tmp_path, "f.fa", ["full"]), fasta(tmp_path, "g.fa", ["a0", "a1"]))
    stage = Counting(files, tmp_path, seconds_per_base=0.1)
    with pytest.raises(OutputError):
        run_stage(stage, pool(2), tmp_path)
    assert (tmp_path / "g.txt").read_text() == "a0 5\na1 6\n"
    assert not (tmp_path / "f.txt").exists()
