"""What the retry policy decides, asked directly."""

from __future__ import annotations

import pytest

from tests.unit.executors.fake_pool import FakeStage
from virnucpro.contracts import FailedRow, Task
from virnucpro.executors.retry import (
    MAX_EXITS_ON_DEVICE,
    MAX_FAILURES_IN_A_ROW,
    RetryPolicy,
    WorkFailure,
    search_records,
)

STAGE = FakeStage()


def _searched(task: Task, bad: set[int], times: int = 1) -> tuple[Task, list[bool]]:
    """Search a task whose ``bad`` rows always fail; returns what is left, and how trials ended."""
    failure = WorkFailure("data", "ValueError", "bad letter")
    search, ends = search_records(task, times), []
    trial = next(search)
    while trial.trial is not None:
        rows = set(range(*trial.trial)) - {failed.row for failed in trial.excluded}
        assert trial.count == len(rows)
        ends.append(rows.isdisjoint(bad))
        trial = search.send(None if ends[-1] else failure)
    return trial, ends


@pytest.mark.parametrize(
    ("count", "bad"),
    [(1, {0}), (1, set()), (2, {1}), (7, {0, 3, 6}), (9, set(range(9))), (10_000, {5000})],
)
def test_a_search_finds_what_fails_alone(count: int, bad: set[int]) -> None:
    left, _ = _searched(STAGE.task(0, count), bad)
    found = tuple(FailedRow(row, "ValueError", "bad letter") for row in sorted(bad))
    assert (left.excluded, left.count) == (found, count - len(bad))
    again, ends = _searched(left, bad)  # what was found is left out
    assert (again, all(ends)) == (left, True)


def test_six_deadly_neighbours_are_found_before_the_run_would_end() -> None:
    for first in (0, 4997, 9994):
        left, ends = _searched(STAGE.task(0, 10_000), set(range(first, first + 6)), times=2)
        assert len(left.excluded) == 6
        in_a_row = max(len(run) for run in "".join("+" if ok else "-" for ok in ends).split("+"))
        assert in_a_row + 2 < MAX_FAILURES_IN_A_ROW  # and two exits over the whole file


def test_only_what_others_finish_counts_against_a_device() -> None:
    policy = RetryPolicy()
    for number in range(2 * MAX_EXITS_ON_DEVICE):
        task = STAGE.task(number, number + 1)
        policy.after_exit(0, [task], "signal 9")
        assert policy.after_success(0, task) == []
    for number in range(MAX_EXITS_ON_DEVICE):
        task = STAGE.task(number, number + 1)
        policy.after_exit(0, [task], "signal 9")
        expected = [0] if number == MAX_EXITS_ON_DEVICE - 1 else []
        assert policy.after_success(1, task) == expected


def test_an_exit_over_two_tasks_counts_once_and_only_if_others_finish_both() -> None:
    policy = RetryPolicy()
    for number in range(MAX_EXITS_ON_DEVICE):
        tasks = [STAGE.task(2 * number, 2 * number + 1), STAGE.task(2 * number + 1, 2 * number + 2)]
        policy.after_exit(0, tasks, "signal 9")
        assert policy.after_success(1, tasks[0]) == []
        expected = [0] if number == MAX_EXITS_ON_DEVICE - 1 else []
        assert policy.after_success(1, tasks[1]) == expected
    for number in range(100, 100 + 2 * MAX_EXITS_ON_DEVICE):
        tasks = [STAGE.task(2 * number, 2 * number + 1), STAGE.task(2 * number + 1, 2 * number + 2)]
        policy.after_exit(1, tasks, "signal 9")
        assert policy.after_success(1, tasks[0]) == []
        assert policy.after_success(0, tasks[1]) == []
