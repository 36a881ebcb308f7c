"""What the retry policy decides, asked directly."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.executors.fake_pool import FakeStage
from virnucpro.contracts import FailedRow, Task
from virnucpro.executors import retry, scheduler
from virnucpro.executors.retry import (
    MAX_EXITS_ON_DEVICE,
    MAX_FAILURES_IN_A_ROW,
    MAX_OPENINGS,
    FaultSearch,
    RetryPolicy,
)

STAGE = FakeStage()


def _searched(task: Task, bad: set[int], times: int = 1) -> tuple[FaultSearch, list[bool]]:
    """Search a task whose ``bad`` rows always fail; returns the search and how each trial ended."""
    search, ends = FaultSearch(task, times), []
    while trial := search.trial():
        assert trial.trial is not None
        rows = set(range(*trial.trial)) - {failed.row for failed in trial.excluded}
        assert trial.count == len(rows)
        ends.append(rows.isdisjoint(bad))
        if ends[-1]:
            search.passed()
        else:
            search.failed("ValueError", "bad letter")
    return search, ends


@pytest.mark.parametrize(
    ("count", "bad"),
    [(1, {0}), (1, set()), (2, {1}), (7, {0, 3, 6}), (9, set(range(9))), (10_000, {5000})],
)
def test_a_search_finds_what_fails_alone(count: int, bad: set[int]) -> None:
    task = STAGE.task(0, count)
    search, _ = _searched(task, bad)
    assert search.found == [FailedRow(row, "ValueError", "bad letter") for row in sorted(bad)]
    assert search.remainder().count == count - len(bad)
    again, ends = _searched(search.remainder(), bad)  # what was found is left out
    assert (again.found, all(ends)) == ([], True)


def test_six_deadly_neighbours_are_found_before_the_run_would_end() -> None:
    for first in (0, 4997, 9994):
        search, ends = _searched(STAGE.task(0, 10_000), set(range(first, first + 6)), times=2)
        assert len(search.found) == 6
        in_a_row = max(len(run) for run in "".join("+" if ok else "-" for ok in ends).split("+"))
        assert in_a_row + 2 < MAX_FAILURES_IN_A_ROW  # and two exits over the whole file


def test_a_deadly_task_is_searched_after_its_second_exit() -> None:
    policy, task = RetryPolicy(), STAGE.task(0, 4)
    assert policy.after_exit(0, [task], "signal 9") == (task,)
    assert policy.exited_over(0, task)
    assert not policy.exited_over(1, task)
    trials = []
    (following,) = policy.after_exit(1, [task], "signal 9")
    while following.trial:  # row 1 is deadly
        trials.append(following.trial)
        if following.trial[0] <= 1 < following.trial[1]:
            (following,) = policy.after_exit(1, [following], "worker 0 died (signal 9)")
        else:
            following = policy.after_trial(following)
    assert trials == [(0, 2), (0, 1), (1, 2), (1, 2), (2, 4)]
    assert following.excluded == (FailedRow(1, "WorkerDied", "worker 0 died (signal 9)"),)
    assert following.count == 3


def test_the_tasks_of_a_worker_are_tried_alone_before_one_is_searched() -> None:
    policy, first, second = RetryPolicy(), STAGE.task(0, 4), STAGE.task(4, 8)
    assert not policy.runs_alone(first)
    assert policy.after_exit(0, [first, second], "signal 9") == (first, second)
    assert policy.runs_alone(first)
    assert policy.runs_alone(second)
    (trial,) = policy.after_exit(1, [first], "signal 9")
    assert trial.trial == (0, 2)
    policy.after_success(0, second)
    assert not policy.runs_alone(second)
    assert policy.runs_alone(trial)


def test_too_many_failures_in_a_row_are_an_error() -> None:
    policy, task = RetryPolicy(), STAGE.task(0, 4)
    for _ in range(MAX_FAILURES_IN_A_ROW - 1):
        assert policy.after_exit(0, [], "worker 0 died") == ()
    assert policy.limit_error is None
    policy.after_success(0, task)
    for _ in range(MAX_FAILURES_IN_A_ROW):
        assert policy.limit_error is None
        policy.after_exit(0, [], "worker 0 died (signal 9)")
    assert "the last failure: worker 0 died (signal 9)" in str(policy.limit_error)


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


def test_out_of_memory_has_one_attempt_with_the_smallest_batches() -> None:
    policy, task = RetryPolicy(), STAGE.task(0, 4)
    assert policy.after_out_of_memory(task, "worker 0 is out of memory")
    assert policy.limit_error is None
    assert not policy.after_out_of_memory(task, "worker 0 is out of memory")
    assert "worker 0 is out of memory" in str(policy.limit_error)


def test_a_device_is_given_up_after_failed_openings_in_a_row() -> None:
    policy = RetryPolicy()
    for _ in range(2):
        policy.after_opening(0)
        for _ in range(MAX_OPENINGS - 1):
            assert not policy.after_failed_opening(0, "device")
    assert not policy.after_failed_opening(1, "memory")
    assert policy.after_failed_opening(0, "memory")
    assert policy.after_failed_opening(1, "data")  # the same happens every time


@pytest.mark.parametrize("module", [retry, scheduler])
def test_policy_and_scheduler_know_no_transport(module: object) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
        )
    }
    assert not imported & {"multiprocessing", "os", "subprocess", "threading"}
    if module is retry:
        assert "time" not in imported
