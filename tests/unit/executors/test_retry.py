"""What the retry policy decides, asked directly."""

from __future__ import annotations

import pytest

from tests.unit.executors.fake_pool import FakeStage
from virnucpro.contracts import FailedRow, Task
from virnucpro.executors.pool import FailureKind, WorkFailure
from virnucpro.executors.scheduler import MAX_FAILURES_IN_A_ROW, Search

STAGE = FakeStage()


def _searched(task: Task, bad: set[int], kind: FailureKind) -> tuple[Task, list[bool]]:
    """Search a task whose ``bad`` rows always fail; returns what is left, and how trials ended."""
    failure = WorkFailure(kind, "ValueError", "bad letter")
    search, ends = Search(task), []
    trial = search.after(task, failure)
    while trial is not None and trial.trial is not None:
        rows = set(range(*trial.trial)) - {failed.row for failed in trial.excluded}
        assert trial.count == len(rows)
        ends.append(rows.isdisjoint(bad))
        trial = search.after(trial, None if ends[-1] else failure)
    assert trial is not None
    return trial, ends


@pytest.mark.parametrize(
    ("count", "bad"),
    [(1, {0}), (1, set()), (2, {1}), (7, {0, 3, 6}), (9, set(range(9))), (10_000, {5000})],
)
def test_a_search_finds_what_fails_alone(count: int, bad: set[int]) -> None:
    left, _ = _searched(STAGE.task(0, count), bad, "data")
    found = tuple(FailedRow(row, "ValueError", "bad letter") for row in sorted(bad))
    assert (left.excluded, left.count) == (found, count - len(bad))
    again, ends = _searched(left, bad, "data")  # what was found is left out
    assert (again, all(ends)) == (left, True)


def test_six_deadly_neighbours_are_found_before_the_run_would_end() -> None:
    for first in (0, 4997, 9994):
        left, ends = _searched(STAGE.task(0, 10_000), set(range(first, first + 6)), "device")
        assert len(left.excluded) == 6
        in_a_row = max(len(run) for run in "".join("+" if ok else "-" for ok in ends).split("+"))
        assert in_a_row + 2 < MAX_FAILURES_IN_A_ROW  # and two exits over the whole file


def test_what_ends_its_worker_once_alone_is_kept() -> None:
    task, failure = STAGE.task(0, 1), WorkFailure("device", "WorkerDied", "9")
    search = Search(task)
    trial = search.after(task, failure)
    assert trial is not None
    assert trial.trial == (0, 1)
    assert search.after(trial, failure) == trial
    assert search.after(trial, None) == task


def test_a_file_is_searched_as_long_as_something_is_found() -> None:
    failure = WorkFailure("data", "ValueError", "bad letter")
    task: Task | None = STAGE.task(0, 4)
    search = Search(STAGE.task(0, 4))
    for bad in range(4):
        assert task is not None
        task = search.after(task, failure)  # the whole still fails
        while task is not None and task.trial is not None:
            task = search.after(task, failure if bad in range(*task.trial) else None)
        assert task is not None
        assert len(task.excluded) == bad + 1
