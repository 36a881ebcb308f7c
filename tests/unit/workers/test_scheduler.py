"""The scheduler and its retry policy over a pool in memory, whatever happens to the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.workers.fake_pool import Behaviour, FakePool, FakeStage, sequences_of
from virnucpro.contracts import Json, Measurements, Task, TaskResult
from virnucpro.errors import DeviceError, OutputError, RunInterruptedError, VirNucProError
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReport,
)
from virnucpro.workers import scheduler
from virnucpro.workers.scheduler import Scheduler
from virnucpro.workers.signals import Interruption

STAGE = FakeStage()
SILENCE, GRACE = 20, 5


@dataclass
class Trial:
    """Some tasks on a fake pool: what came of them, and the error at the end."""

    pool: FakePool
    outcomes: list[TaskResult] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    rows: list[dict[str, Json]] = field(default_factory=list)
    error: VirNucProError | RunInterruptedError | None = None

    @property
    def finished(self) -> list[int]:
        """The sequences of all results."""
        return sorted(number for o in self.outcomes for number in sequences_of(o.task))

    @property
    def failed(self) -> list[int]:
        """The sequences that were given up."""
        return sorted(int(name) for o in self.outcomes for name in o.figures.failed)

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
    stage: FakeStage = STAGE,
) -> Trial:
    """Carry out ``tasks``, and check what holds in every case.

    ``joining`` are numbers of workers with the time at which they are there.
    """
    pool = FakePool(workers, behaviour, overlapping=overlapping)
    for number, now in joining:
        pool.joins(number, now)
    trial = Trial(pool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: pool.now))
        patch.setattr(scheduler, "MOST_SILENCE", SILENCE)
        patch.setattr(scheduler, "GRACE", GRACE)
        signals = interruption or Interruption()
        try:
            scheduler_of_all = Scheduler(
                stage, tasks, pool, trial.events.append, signals, trial.rows
            )
            trial.outcomes.extend(scheduler_of_all.results())
        except (VirNucProError, RunInterruptedError) as error:
            trial.error = error
    assert pool.most_submitted <= (3 if overlapping else 2)
    assert len(set(trial.finished)) == len(trial.finished)
    started = [(event.worker, event.task) for event in trial.events if type(event) is TaskStarted]
    finished = [(event.worker, event.task) for event in trial.events if type(event) is TaskFinished]
    assert all(each in started for each in finished)
    if trial.error is None:
        sequences = {number for task in tasks for number in sequences_of(task)}
        assert {*trial.finished, *trial.failed} == sequences
    return trial


def holds(task: Task | None, *sequences: int) -> bool:
    """Whether a task covers one of the sequences."""
    return task is not None and not set(sequences_of(task)).isdisjoint(sequences)


def always_ok(worker: int, task: Task | None) -> str:
    return "ok"


@pytest.mark.parametrize(("overlapping", "most"), [(False, 2), (True, 3)])
def test_a_gpu_knows_the_task_that_it_prepares_while_others_are_written_and_computed(
    overlapping, most
):
    trial = run(always_ok, STAGE.tasks(9), overlapping=overlapping)
    assert trial.pool.most_submitted == most
    few = run(always_ok, STAGE.tasks(4), overlapping=overlapping)
    assert few.pool.most_submitted == 1  # the other worker gets its share


def test_a_task_is_started_after_the_one_before_it_has_ended():
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


def test_no_more_workers_than_tasks_are_started():
    assert set(run(always_ok, STAGE.tasks(2), workers=5).pool.workers) == {0, 1}


def test_the_last_tasks_go_heaviest_first():
    tasks = [STAGE.task(n, n + 1, weight=n) for n in range(12)]
    trial = run(always_ok, tasks, workers=1)
    assert [task.weight for _, task in trial.pool.attempts] == [*range(8), 11, 10, 9, 8]
    assert (trial.of(WorkerReport, "busy"), trial.of(WorkerReport, "idle")) == ([6.0], [0.0])


FAILS = ["file", "file", "search 0"]
"""What is tried of a file that fails, fails again, and is searched in single mode."""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("behaviour", "deadly", "as_a_whole", "tried", "failed"),
    [
        ("exits", (), 0, ["file"], []),
        ("raises", (2,), 0, [*FAILS, "file but 2"], [2]),
        ("exits", (2,), 0, [*FAILS, "search 3", "file but 2"], [2]),
        ("exits", (0,), 0, [*FAILS, "search 1", "file but 0"], [0]),
        ("exits", (0, 3), 0, [*FAILS, "search 1", "search 4", "file but 0 3"], [0, 3]),
        ("raises", (0, 1, 2, 3), 0, [*FAILS, "file but 0 1 2 3"], [0, 1, 2, 3]),
        ("raises", (), 1, ["file", "file"], []),
        ("exits", (), 2, [*FAILS, "file"], []),
        ("raises", (), 3, [*FAILS, "file", "file"], []),
        ("exits", (), 4, [*FAILS, "file", "file", "file but 0 1 2 3"], [0, 1, 2, 3]),
        ("raises", (), 4, [*FAILS, "file", "file", "file but 0 1 2 3"], [0, 1, 2, 3]),
    ],
)
def test_what_is_tried_of_a_file_that_fails(behaviour, deadly, as_a_whole, tried, failed, workers):
    """``deadly`` sequences fail always, and the file ``as_a_whole`` so many times."""
    left = iter(range(as_a_whole))

    def fails(worker: int, task: Task | None) -> str:
        if task is None or task.params["start"] or not sequences_of(task):
            return "ok"
        if holds(task, *deadly) or (task.trial is None and next(left, None) is not None):
            return behaviour
        return "ok"

    trial = run(fails, STAGE.tasks(6), workers)
    attempts = [task for _, task in trial.pool.attempts if not task.params["start"]]
    assert [_described(task) for task in attempts] == tried
    assert (trial.error, trial.failed, len(trial.pool.workers)) == (None, failed, workers)


def _described(task: Task) -> str:
    if task.single is not None:
        return f"search {task.single}"
    return " ".join(["file", *["but"][: len(task.excluded)], *(str(f.row) for f in task.excluded)])


@pytest.mark.parametrize("behaviour", ["exits", "exits writing", "raises", "silent"])
@pytest.mark.parametrize("workers", [1, 3])
def test_no_other_file_is_lost_where_several_are_deadly(behaviour, workers):
    """Also where a worker dies while it writes one task and computes the next one."""
    deadly = [0, 1, 2, 8, 9]
    tasks = STAGE.tasks(12, size=2)
    trial = run(
        lambda w, task: behaviour if holds(task, *deadly) else "ok",
        tasks,
        workers,
        overlapping=True,
    )
    assert trial.failed == deadly
    searched = {task.params["start"] for _, task in trial.pool.attempts if task.single is not None}
    assert searched <= {0, 2, 8}
    assert len(trial.pool.workers) == workers  # no device is given up for a file


@pytest.mark.parametrize("first", [0, 47, 94])
def test_six_deadly_neighbours_are_found_before_the_run_would_end(first):
    deadly = range(first, first + 6)
    trial = run(lambda w, task: "exits" if holds(task, *deadly) else "ok", [STAGE.task(0, 100)])
    assert trial.failed == list(deadly)


@pytest.mark.parametrize("deadly", [(), (30,)])
def test_a_device_that_dies_over_everything_is_given_up_while_others_are_slow(deadly):
    """It must neither end the run nor be given the trials of a deadly file."""
    waits = count()

    def behaviour(worker: int, task: Task | None) -> str:
        if task and (worker == 1 or holds(task, *deadly)):
            return "exits"
        return "silent" if task and next(waits) % 30 else "ok"

    trial = run(behaviour, STAGE.tasks(40))
    assert trial.error is None
    assert trial.failed == list(deadly)
    assert set(trial.pool.workers) == {0}
    assert len([worker for worker, _ in trial.pool.attempts if worker == 1]) < 10


@pytest.mark.parametrize("behaviour", ["exits", "raises"])
def test_a_file_that_fails_without_its_records_ends_the_run(behaviour):
    trial = run(lambda w, task: behaviour if task and not task.trial else "ok", STAGE.tasks(1), 1)
    assert isinstance(trial.error, DeviceError)
    assert "cannot be computed" in str(trial.error)


@pytest.mark.parametrize(
    ("openings", "left"),
    [
        (["raises"] * 2, {0, 1}),
        (["raises"] * 3, {1}),
        (["raises", "raises", "ok", "raises"], {0, 1}),
    ],
)
def test_a_device_is_given_up_after_three_failed_openings_in_a_row(openings, left):
    opens, ends = iter(openings), iter(["exits"])

    def behaviour(worker: int, task: Task | None) -> str:
        return "ok" if worker else next(ends if task else opens, "ok")

    trial = run(behaviour, STAGE.tasks(30))
    assert (trial.error, set(trial.pool.workers), next(opens, "")) == (None, left, "")


def test_a_row_says_what_each_worker_did_and_the_same_warning_comes_once(monkeypatch):
    monkeypatch.setattr(FakePool, "facts", {"budget": 8, "compile_failed": "no gcc"})
    monkeypatch.setattr(FakePool, "measured", Measurements(7000, 5, 1))
    trial = run(always_ok, STAGE.tasks(8))
    assert [row.pop("device") for row in trial.rows] == ["device 0", "device 1"]
    busy = {"busy": 2.0, "idle": 0.0, "tasks": 4}
    figures = {"peak_memory": 7000, "compiled_calls": 5, "uncompiled_calls": 1}
    opened = {"stage": "fake", "uuid": "", "seconds_to_open": 0.5, **FakePool.facts}
    assert trial.rows == [{"worker": n, **opened, **busy, **figures} for n in range(2)]
    assert len(trial.of(Notice, "message")) == 3  # of two devices, and of both at the end


def test_a_worker_without_tasks_may_be_silent():
    """It gets the first task after 15 s, when the other one has exited, and takes as long."""
    ends = iter([*["silent"] * 30, "exits", *["silent"] * 30])
    trial = run(lambda w, task: next(ends, "ok") if holds(task, 0) else "ok", STAGE.tasks(2))
    assert trial.of(WorkerDied, "reason") == ["signal 9"]


@pytest.mark.parametrize(
    ("step", "opens", "waits", "said"),  # with a step of 100 s, this process was suspended
    [(0.5, False, 40, ["for 20 s"]), (0.5, True, 40, ["for 20 s"]), (100, False, 5, [])],
)
def test_how_long_a_worker_may_be_silent(monkeypatch, step, opens, waits, said):
    monkeypatch.setattr(FakePool, "STEP", step)
    left = iter(range(waits))

    def behaviour(worker: int, task: Task | None) -> str:
        return "silent" if (task is None) is opens and next(left, None) is not None else "ok"

    reasons = run(behaviour, STAGE.tasks(1), 1).of(WorkerDied, "reason")
    assert reasons == [f"no sign of life {text}" for text in said]


@pytest.mark.parametrize("ending", ["ok", "exits", "silent"])
def test_after_a_signal_no_task_is_begun(ending):
    """A worker that dies is not replaced, and one that is silent is waited for a while."""
    interruption = Interruption()

    def behaviour(worker: int, task: Task | None) -> str:
        if holds(task, 13) and interruption.number is None:
            interruption.number = 2
            return "silent"
        return ending if interruption.number else "ok"

    trial = run(behaviour, STAGE.tasks(40), interruption=interruption)
    assert isinstance(trial.error, RunInterruptedError)
    assert sum(call.startswith("start") for call in trial.pool.calls) == 2
    assert len(trial.pool.attempts) <= 5
    assert trial.pool.now <= 5 + GRACE
    if ending == "ok":  # tasks in flight are finished, and nothing else is waited for
        assert len(trial.outcomes) == len(trial.of(TaskStarted, "task"))
        assert trial.pool.now < 5


def test_a_worker_that_is_lost_with_its_node_costs_none_of_its_tasks_an_attempt():
    """Its tasks are done by the others, at once and together, and its device is not used again."""
    lost: list[Task] = []

    def behaviour(worker: int, task: Task | None) -> str:
        if worker == 1 and holds(task, *range(16, 48)):
            lost.append(task)
            return "lost"
        return "ok"

    trial = run(behaviour, STAGE.tasks(12), workers=2)
    assert trial.error is None
    assert not trial.failed
    assert len(trial.pool.attempts) == 12  # nothing was divided or tried alone
    assert set(trial.pool.workers) == {0}
    assert "worker 1 on device 1 is lost (node 7 is gone)" in "".join(trial.of(Notice, "message"))
    assert trial.of(WorkerDied, "worker") == [1] * len(lost)


def test_a_node_that_joins_gets_work():
    trial = run(always_ok, STAGE.tasks(30), workers=1, joining=[(7, 4.0)])
    done = [worker for worker, _ in trial.pool.attempts]
    assert done.count(7) >= 8
    assert trial.error is None


@pytest.mark.parametrize(
    ("divisible", "behaviour", "times", "error"),
    [
        (False, "exits", 1, type(None)),
        (False, "exits", 2, DeviceError),
        (False, "raises", 1, VirNucProError),
        (True, "cannot write", 1, OutputError),
    ],
)
def test_which_failures_of_a_task_end_the_run(divisible, behaviour, times, error):
    stage, left = FakeStage(), iter([behaviour] * times)
    stage.divisible = divisible
    trial = run(
        lambda w, task: next(left, "ok") if holds(task, 5) else "ok", STAGE.tasks(6), stage=stage
    )
    assert type(trial.error) is error
    tried = [task for _, task in trial.pool.attempts if holds(task, 5)]
    assert [_described(task) for task in tried] == ["file"] * (times + (error is type(None)))


def test_where_everything_dies_the_run_ends():
    trial = run(lambda w, task: "exits" if task else "ok", [STAGE.task(0, 200)])
    assert isinstance(trial.error, DeviceError)
    assert "40 attempts in a row" in str(trial.error)


def test_workers_that_all_die_twice_do_not_end_the_run():
    died = Counter[int]()

    def behaviour(worker: int, task: Task | None) -> str:
        dies = task is not None and died[worker] < 2
        died.update([worker] * dies)
        return "exits" if dies else "ok"

    trial = run(behaviour, STAGE.tasks(99), workers=50)
    assert (trial.error, trial.failed, died.total()) == (None, [], 100)
    assert len(trial.pool.workers) == 50


def test_a_worker_that_dies_once_over_each_file_and_then_finishes_it_goes_on():
    seen = set[int]()

    def behaviour(worker: int, task: Task | None) -> str:
        dies = task is not None and task.params["start"] not in seen
        seen.update([task.params["start"]] if task is not None else [])
        return "exits" if dies else "ok"

    trial = run(behaviour, STAGE.tasks(60), workers=1)
    assert (trial.error, trial.failed) == (None, [])
