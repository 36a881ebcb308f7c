"""The scheduler and its retry policy over a pool in memory, whatever happens to the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.executors.fake_pool import Behaviour, FakePool, FakeStage, sequences_of
from virnucpro.contracts import Task, TaskResult
from virnucpro.errors import DeviceError, OutputError, RunInterruptedError, VirNucProError
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
    WorkerReport,
)
from virnucpro.executors.retry import MAX_EXITS_ON_DEVICE, MAX_FAILURES_IN_A_ROW
from virnucpro.executors.scheduler import MAX_OPENINGS, Scheduler, TimeLimits
from virnucpro.executors.signals import Interruption

STAGE = FakeStage()
LIMITS = TimeLimits(silence=20, opening=50, grace=5)


@dataclass
class Trial:
    """Some tasks on a fake pool: what came of them, and the error at the end."""

    pool: FakePool
    outcomes: list[TaskResult] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    error: VirNucProError | None = None

    @property
    def finished(self) -> list[int]:
        """The sequences of all results."""
        return sorted(number for o in self.outcomes for number in sequences_of(o.task))

    @property
    def failed(self) -> list[tuple[str, tuple[str, ...]]]:
        """Error and ids of what was given up."""
        return [(f.error, f.ids) for o in self.outcomes for f in o.figures.failures]

    @property
    def warnings(self) -> str:
        """What the user was told."""
        return "\n".join(self.of(Notice, "message"))

    def of(self, kind: type, attribute: str) -> list[Any]:
        """One attribute of all events of a kind."""
        return [getattr(event, attribute) for event in self.events if isinstance(event, kind)]


def run(
    behaviour: Behaviour,
    tasks: list[Task],
    workers: int = 2,
    interruption: Interruption | None = None,
    *,
    overlapping: bool = False,
    joining: Sequence[tuple[int, float]] = (),
) -> Trial:
    """Carry out ``tasks``, and check what holds in every case.

    ``joining`` are numbers of workers with the time at which they are there.
    """
    pool = FakePool(workers, behaviour, overlapping=overlapping)
    for number, now in joining:
        pool.joins(number, now)
    trial = Trial(pool)
    scheduler = Scheduler(
        STAGE,
        tasks,
        pool,
        trial.events.append,
        interruption or Interruption(),
        LIMITS,
        pool.clock,
    )
    try:
        for outcome in scheduler.outcomes():
            trial.outcomes.append(outcome)
    except VirNucProError as error:
        trial.error = error
    assert pool.most_submitted <= 2
    assert len(set(trial.finished)) == len(trial.finished)
    if trial.error is None:
        sequences = {number for task in tasks for number in sequences_of(task)}
        given_up = {int(name) for _, ids in trial.failed for name in ids}
        assert set(trial.finished) | given_up == sequences
    return trial


def holds(task: Task | None, *sequences: int) -> bool:
    """Whether a task covers one of the sequences."""
    return task is not None and not set(sequences_of(task)).isdisjoint(sequences)


def attempts_over(trial: Trial, sequence: int) -> list[list[int]]:
    """Return what was computed at each attempt that held a sequence."""
    return [sequences_of(task) for _, task in trial.pool.attempts if holds(task, sequence)]


def always_ok(worker: int, task: Task | None) -> str:
    return "ok"


def test_every_task_is_carried_out_once_by_all_workers() -> None:
    trial = run(always_ok, STAGE.tasks(20), workers=3)
    assert len(trial.pool.attempts) == 20
    assert {worker for worker, _ in trial.pool.attempts} == {0, 1, 2}
    assert trial.pool.most_submitted == 2  # one ahead
    assert sum(trial.of(WorkerReport, "tasks")) == 20
    assert not trial.warnings


def test_a_task_is_started_after_the_one_before_it_has_ended() -> None:
    """Also where it was queued behind that one: so the display shows what is being computed."""
    trial = run(always_ok, STAGE.tasks(9, size=1), workers=2)
    current: dict[int, Task] = {}
    for event in trial.events:
        match event:
            case TaskStarted(worker, task):
                assert worker not in current
                current[worker] = task
            case TaskFinished(worker, task, _):
                assert current.pop(worker) == task
            case Progressed(worker, _, _):
                assert worker in current
    assert not current


def test_no_more_workers_than_tasks_are_started() -> None:
    assert set(run(always_ok, STAGE.tasks(2), workers=5).pool.workers) == {0, 1}


def test_the_last_tasks_go_heaviest_first() -> None:
    tasks = [STAGE.task(n, n + 1, weight=n) for n in range(12)]
    trial = run(always_ok, tasks, workers=1)
    assert [task.weight for _, task in trial.pool.attempts] == [*range(8), 11, 10, 9, 8]


def test_a_task_whose_worker_was_killed_is_retried_by_another_one() -> None:
    exits = iter(["exits"])

    def behaviour(worker: int, task: Task | None) -> str:
        return next(exits, "ok") if holds(task, 5) else "ok"

    trial = run(behaviour, STAGE.tasks(6))
    first, second = (worker for worker, task in trial.pool.attempts if holds(task, 5))
    assert first != second
    assert trial.of(WorkerDied, "reason") == ["signal 9"]
    assert trial.of(WorkerDied, "worker") == [first]
    assert "a new worker takes its place" in trial.warnings


def test_a_worker_that_dies_over_a_task_while_it_writes_another() -> None:
    """Both are carried out again, each alone, and only the task that ends its worker is searched."""

    def behaviour(worker: int, task: Task | None) -> str:
        return "exits" if holds(task, 13) else "ok"

    trial = run(behaviour, STAGE.tasks(6), workers=1, overlapping=True)
    assert trial.failed == [("WorkerDied", ("13",))]
    trials = {task.trial for _, task in trial.pool.attempts if task.trial}
    assert trials == {(0, 2), (2, 4), (0, 1), (1, 2)}
    assert all(holds(task, 12, 13, 14, 15) for _, task in trial.pool.attempts if task.trial)


@pytest.mark.parametrize("behaviour", ["exits", "exits writing"])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("deadly", [(0,), (0, 3), (5, 6, 7), (0, 1, 2, 8, 9)])
def test_only_what_ends_its_worker_is_given_up(
    behaviour: str, workers: int, size: int, deadly: tuple[int, ...]
) -> None:
    """Also where it dies while it writes one task and computes the next one."""
    trial = run(
        lambda w, task: behaviour if holds(task, *deadly) else "ok",
        STAGE.tasks(24 // size, size),
        workers,
        overlapping=True,
    )
    assert sorted(int(name) for _, ids in trial.failed for name in ids) == list(deadly)
    searched = {task.params["start"] for _, task in trial.pool.attempts if task.trial}
    assert searched <= {n - n % size for n in deadly}


@pytest.mark.parametrize("workers", [1, 3])
def test_after_a_death_no_other_task_goes_to_the_worker_of_a_task_that_it_had(
    workers: int,
) -> None:
    submitted: list[list[Task]] = []

    class WatchedPool(FakePool):
        def submit(self, worker: int, task: Task) -> None:
            super().submit(worker, task)
            at_work = [self.writing.get(worker), *self.work[worker]]
            submitted.append([task for task in at_work if isinstance(task, Task)])

    pool = WatchedPool(
        workers, lambda w, task: "exits" if holds(task, 5) else "ok", overlapping=True
    )
    events: list[Event] = []
    tasks = STAGE.tasks(24, size=1)
    scheduler = Scheduler(STAGE, tasks, pool, events.append, Interruption(), LIMITS, pool.clock)
    list(scheduler.outcomes())
    deaths = [event for event in events if isinstance(event, WorkerDied)]
    assert len(deaths) == 4  # together with its neighbour, alone, and twice in the search
    groups = [[task.receipt for task in group] for group in submitted]
    with_five = [group for group in groups if tasks[5].receipt in group]
    assert with_five[-2:] == [[tasks[5].receipt]] * 2


@pytest.mark.parametrize("workers", [1, 3])
def test_a_task_that_ends_its_worker_twice_is_searched(workers: int) -> None:
    trial = run(lambda w, task: "exits" if holds(task, 5) else "ok", STAGE.tasks(6), workers)
    assert trial.failed == [("WorkerDied", ("5",))]
    assert attempts_over(trial, 5) == [[4, 5, 6, 7], [4, 5, 6, 7], [4, 5], [5], [5]]
    assert [4, 6, 7] in [sequences_of(task) for _, task in trial.pool.attempts]


def test_a_device_that_does_not_answer_is_an_exit() -> None:
    trial = run(lambda w, task: "device" if holds(task, 5) else "ok", STAGE.tasks(6))
    assert trial.failed == [("WorkerDied", ("5",))]
    assert len(trial.of(WorkerDied, "reason")) == 5


def test_a_device_that_dies_over_tasks_that_others_finish_is_given_up() -> None:
    trial = run(lambda worker, task: "exits" if task and worker == 1 else "ok", STAGE.tasks(30), 2)
    assert trial.failed == []
    assert "died over tasks that others finished; its device is given up" in trial.warnings
    assert "goes on with 1 other worker" in trial.warnings
    assert MAX_EXITS_ON_DEVICE <= len(trial.of(WorkerDied, "worker")) <= MAX_EXITS_ON_DEVICE + 1
    assert set(trial.pool.workers) == {0}


def test_a_worker_that_is_out_of_memory_is_replaced_and_its_task_searched() -> None:
    trial = run(lambda w, task: "memory" if holds(task, 5) else "ok", STAGE.tasks(6))
    assert trial.failed == [("WorkerDied", ("5",))]


def test_a_file_that_only_ends_its_worker_as_a_whole_ends_the_run() -> None:
    trial = run(
        lambda w, task: "exits" if task and not task.trial else "ok", STAGE.tasks(1), workers=1
    )
    assert isinstance(trial.error, DeviceError)
    assert "no part of it does" in str(trial.error)


def test_halved_batches_are_told() -> None:
    trial = run(lambda w, task: "ok after a halving" if holds(task, 1) else "ok", STAGE.tasks(6))
    assert "its batches are 2 times smaller now" in trial.warnings


def test_a_silent_worker_is_replaced_after_a_warning() -> None:
    trial = run(lambda w, task: "silent" if holds(task, 5) else "ok", STAGE.tasks(6))
    assert trial.failed == [("WorkerDied", ("5",))]
    assert "stalled: no sign of life for 10 s; it is ended after 20 s" in trial.warnings
    assert set(trial.of(WorkerDied, "reason")) == {"no sign of life for 20 s"}
    assert trial.pool.now >= 5 * LIMITS.silence


def test_a_worker_without_tasks_may_be_silent() -> None:
    pool_waits = iter(range(20))

    def behaviour(worker: int, task: Task | None) -> str:
        return "silent" if holds(task, 0) and next(pool_waits, None) is not None else "ok"

    trial = run(behaviour, STAGE.tasks(2))
    assert trial.pool.now > 10  # in which one of the workers had nothing to do
    assert trial.of(WorkerDied, "worker") == []


@pytest.mark.parametrize(("opening", "seconds"), [("silent", LIMITS.opening), ("exits", 0)])
def test_a_device_on_which_the_stage_does_not_open_is_given_up(
    opening: str, seconds: float
) -> None:
    trial = run(
        lambda worker, task: opening if task is None and worker == 1 else "ok", STAGE.tasks(900)
    )
    assert trial.failed == []
    deaths = trial.of(WorkerDied, "worker")
    assert deaths == [1] * min(len(deaths), MAX_OPENINGS)
    assert trial.pool.now >= seconds
    if opening == "exits":
        assert set(trial.pool.workers) == {0}


def test_a_spare_device_takes_over() -> None:
    trial = run(
        lambda worker, task: "data" if task is None and worker == 0 else "ok",
        STAGE.tasks(1),
        workers=2,
    )
    assert trial.pool.calls == ["start 0", "end 0", "start 1"]
    assert trial.error is None


def test_when_no_device_is_left_the_run_ends() -> None:
    trial = run(lambda w, task: "ok" if task else "data", STAGE.tasks(5))
    assert isinstance(trial.error, DeviceError)
    assert "no device is left" in str(trial.error)
    assert "data failure" in str(trial.error)


def test_too_many_failures_in_a_row_end_the_run() -> None:
    trial = run(lambda w, task: "exits" if task else "ok", STAGE.tasks(100, 100))
    assert isinstance(trial.error, DeviceError)
    assert f"{MAX_FAILURES_IN_A_ROW} attempts in a row failed" in str(trial.error)
    assert len(trial.of(WorkerDied, "worker")) <= MAX_FAILURES_IN_A_ROW + 1


def test_an_error_of_the_run_lets_the_tasks_in_flight_finish() -> None:
    trial = run(lambda w, task: "run" if holds(task, 0) else "ok", STAGE.tasks(40), workers=3)
    assert isinstance(trial.error, OutputError)  # the error's class is unknown to the program
    started = trial.of(TaskStarted, "task")
    assert len(started) < 10
    assert len(trial.finished) >= 8
    assert "stopping: up to 5 s for the tasks in flight" in trial.warnings


def test_a_signal_lets_the_tasks_in_flight_finish() -> None:
    interruption = Interruption()

    def behaviour(worker: int, task: Task | None) -> str:
        if holds(task, 13):
            interruption.number = 15
        return "ok"

    trial = run(behaviour, STAGE.tasks(40), interruption=interruption)
    assert isinstance(trial.error, RunInterruptedError)
    assert trial.error.exit_code == 143
    assert 13 in trial.finished
    assert len(trial.finished) < 40
    assert len(trial.of(WorkerReady, "worker")) == 2


def test_a_task_that_takes_longer_than_the_grace_period_is_abandoned() -> None:
    interruption = Interruption()

    def behaviour(worker: int, task: Task | None) -> str:
        if holds(task, 13):
            interruption.number = 2
            return "silent"
        return "ok"

    trial = run(behaviour, STAGE.tasks(40), interruption=interruption)
    assert isinstance(trial.error, RunInterruptedError)
    assert trial.error.exit_code == 130
    assert 13 not in trial.finished
    assert trial.pool.now < 2 * LIMITS.grace


def test_a_worker_that_dies_after_a_signal_is_not_replaced() -> None:
    interruption = Interruption()

    def behaviour(worker: int, task: Task | None) -> str:
        if holds(task, 13):
            interruption.number = 2
        return "exits" if interruption.number else "ok"

    trial = run(behaviour, STAGE.tasks(40), interruption=interruption)
    assert isinstance(trial.error, RunInterruptedError)
    assert sum(call.startswith("start") for call in trial.pool.calls) <= 3


def test_a_pool_without_devices_is_an_error() -> None:
    assert isinstance(run(always_ok, STAGE.tasks(2), workers=0).error, DeviceError)


def test_a_worker_that_is_lost_with_its_node_costs_none_of_its_tasks_an_attempt() -> None:
    """Its tasks are done by the others, at once and together, and its device is not used again."""
    lost: list[Task] = []

    def behaviour(worker: int, task: Task | None) -> str:
        if worker == 1 and holds(task, *range(16, 48)):
            lost.append(task)  # type: ignore[arg-type]
            return "lost"
        return "ok"

    trial = run(behaviour, STAGE.tasks(12), workers=2)
    assert trial.error is None
    assert not trial.failed
    assert len(trial.pool.attempts) == 12  # nothing was divided or tried alone
    assert set(trial.pool.workers) == {0}
    assert "worker 1 on device 1 is lost (node 7 is gone)" in trial.warnings
    assert trial.of(WorkerDied, "worker") == [1] * len(lost)


def test_without_any_node_the_run_ends() -> None:
    trial = run(lambda w, task: "lost" if holds(task, 9) else "ok", STAGE.tasks(6), workers=2)
    assert isinstance(trial.error, DeviceError)
    assert "no device is left" in str(trial.error)


def test_a_node_that_joins_gets_work() -> None:
    trial = run(always_ok, STAGE.tasks(30), workers=1, joining=[(7, 4.0)])
    done = [worker for worker, _ in trial.pool.attempts]
    assert done.count(7) >= 8
    assert trial.error is None


def test_a_node_that_joins_at_the_end_is_not_needed() -> None:
    trial = run(always_ok, STAGE.tasks(4), workers=1, joining=[(7, 1.5)])
    assert set(trial.pool.workers) == {0}


class Indivisible(FakeStage):
    divisible = False


def test_a_task_that_cannot_be_divided_ends_the_run_at_its_second_exit() -> None:
    pool = FakePool(2, lambda w, task: "exits" if holds(task, 5) else "ok")
    scheduler = Scheduler(
        Indivisible(), STAGE.tasks(6), pool, lambda e: None, Interruption(), LIMITS, pool.clock
    )
    with pytest.raises(DeviceError, match="cannot be computed"):
        list(scheduler.outcomes())
    assert not any(task.trial for _, task in pool.attempts)
