"""What the retry policy decides, asked directly."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.executors.fake_pool import FakeStage
from virnucpro.contracts import Device, FailedTask, Receipts, Session, Stage, Task
from virnucpro.executors import retry, scheduler
from virnucpro.executors.retry import (
    MAX_EXITS_ON_DEVICE,
    MAX_FAILURES_IN_A_ROW,
    MAX_OPENINGS,
    RetryDecision,
    RetryPolicy,
)

STAGE = FakeStage()


def _policy() -> RetryPolicy:
    return RetryPolicy(STAGE)


def test_halves_of_a_deadly_task_are_divided_at_their_first_exit() -> None:
    policy, task = _policy(), STAGE.task(0, 4)
    assert policy.after_exit(0, [task], "signal 9").tasks == (task,)
    assert policy.exited_over(0, task)
    assert not policy.exited_over(1, task)
    halves = policy.after_exit(1, [task], "signal 9").tasks
    assert halves == (STAGE.task(0, 2), STAGE.task(2, 4))
    quarters = policy.after_exit(1, [halves[0]], "signal 9").tasks
    assert quarters == (STAGE.task(0, 1), STAGE.task(1, 2))
    assert policy.after_exit(1, [quarters[0]], "signal 9").tasks == (quarters[0],)  # once more
    failed = policy.after_exit(0, [quarters[0]], "worker 0 died (signal 9)").failed
    assert failed is not None
    assert (failed.error, failed.ids) == ("WorkerDied", ("0",))
    assert failed.message == "worker 0 died (signal 9)"


def test_the_tasks_of_a_worker_are_tried_alone_before_one_is_divided_or_given_up() -> None:
    policy, span, single = _policy(), STAGE.task(0, 4), STAGE.task(4, 5)
    assert not policy.runs_alone(span)
    assert policy.after_exit(0, [span, single], "signal 9").tasks == (span, single)
    assert policy.runs_alone(span)
    assert policy.runs_alone(single)
    halves = policy.after_exit(1, [span], "signal 9").tasks
    assert halves == (STAGE.task(0, 2), STAGE.task(2, 4))
    assert all(map(policy.runs_alone, halves))
    # A sequence that is given up is lost, so an exit over two tasks does not count against it.
    assert policy.after_exit(1, [single], "signal 9").tasks == (single,)
    assert policy.after_exit(0, [single], "signal 9").failed is not None


def test_a_task_that_was_finished_after_all_may_have_company_again() -> None:
    policy, first, second = _policy(), STAGE.task(0, 4), STAGE.task(4, 8)
    policy.after_exit(0, [first, second], "signal 9")
    policy.after_success(0, first)
    assert not policy.runs_alone(first)
    assert policy.runs_alone(second)


def test_too_many_failures_in_a_row_are_an_error() -> None:
    policy, task = _policy(), STAGE.task(0, 4)
    for _ in range(MAX_FAILURES_IN_A_ROW - 1):
        assert policy.after_exit(0, [], "worker 0 died") == RetryDecision()
    assert policy.limit_error is None
    policy.after_success(0, task)
    for _ in range(MAX_FAILURES_IN_A_ROW):
        assert policy.limit_error is None
        policy.after_exit(0, [], "worker 0 died (signal 9)")
    assert "the last failure: worker 0 died (signal 9)" in str(policy.limit_error)


def test_only_what_others_finish_counts_against_a_device() -> None:
    policy = _policy()
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
    policy = _policy()
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
    policy, task = _policy(), STAGE.task(0, 4)
    first = policy.after_out_of_memory(
        task, "MemoryError", "too large", "worker 0", had_smallest_batches=False
    )
    assert first == RetryDecision((task,), smallest_batches=True)
    second = policy.after_out_of_memory(
        task, "MemoryError", "too large", "worker 0", had_smallest_batches=True
    )
    assert not second.smallest_batches
    third = policy.after_out_of_memory(
        second.tasks[0], "MemoryError", "too large", "worker 0", had_smallest_batches=False
    )
    assert third.tasks == (STAGE.task(0, 1), STAGE.task(1, 2))


def test_a_wrong_sequence_is_divided_at_once_and_its_halves_are_not_suspected() -> None:
    policy = _policy()
    halves = policy.after_data_error(STAGE.task(0, 4), "ValueError", "bad letter").tasks
    assert policy.after_exit(0, [halves[0]], "signal 9").tasks == halves[:1]
    failed = policy.after_data_error(STAGE.task(0, 1), "ValueError", "bad letter").failed
    assert failed is not None
    assert (failed.error, failed.message, failed.ids) == ("ValueError", "bad letter", ("0",))


def test_a_device_is_given_up_after_failed_openings_in_a_row() -> None:
    policy = _policy()
    for _ in range(2):
        policy.after_opening(0)
        for _ in range(MAX_OPENINGS - 1):
            assert not policy.after_failed_opening(0, "device")
    assert not policy.after_failed_opening(1, "memory")
    assert policy.after_failed_opening(0, "memory")
    assert policy.after_failed_opening(1, "data")  # the same happens every time


class WholeStage(Stage):
    """A stage without spans that runs on workers."""

    runs_on = "worker"
    name = "whole"

    def plan(self, receipts: Receipts) -> list[Task]:
        raise NotImplementedError

    def open(self, device: Device) -> Session:
        raise NotImplementedError


def test_a_stage_without_spans_has_nothing_to_divide() -> None:
    task = STAGE.task(0, 4)
    decision = RetryPolicy(WholeStage()).after_data_error(task, "ValueError", "bad letter")
    assert decision.tasks == ()
    assert decision.failed == FailedTask(task, "ValueError", "bad letter", ())


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
