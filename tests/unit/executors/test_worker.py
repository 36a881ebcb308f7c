"""A worker whose device computes by itself: the host's work is done meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.executors.fake_pool import FakeStage
from virnucpro.contracts import Device, ReportProgress, Session, Task, TaskResult
from virnucpro.events import Progressed, WorkerReady
from virnucpro.executors.pool import PoolEvent, WorkEnded
from virnucpro.executors.worker import TaskRunner

GPU, CPU = Device("cuda", 0, "H200", "GPU-aaaa"), Device("cpu")
BATCHES = 3
BOUND = 60.0  # seconds, for a hang


class Recording(FakeStage):
    """Its session notes what is begun, and a task is not written before the next one is computed.

    ``waits``: whether writing waits for that, as it can where the device works by itself.
    """

    def __init__(self, *, waits: bool) -> None:
        self.log: list[str] = []
        self.waits = waits
        self.computing = [threading.Event() for _ in range(9)]

    def open(self, device: Device) -> Session:
        return RecordingSession(self)


class RecordingSession(Session):
    """Tasks are known by the number of their first sequence."""

    def __init__(self, stage: Recording) -> None:
        self._stage, self.facts = stage, {}

    def prepare(self, task: Task) -> None:
        self._stage.log.append(f"prepare {_number(task)}")

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        number, stage = _number(task), self._stage
        for batch in range(BATCHES):
            stage.log.append(f"compute {number}.{batch}")
            report(1, 10)
            if batch == 1:
                stage.computing[number].set()

        def write() -> TaskResult:
            following = stage.computing[number + 1]
            if stage.waits and number < 3 and not following.wait(BOUND):
                raise TimeoutError("nothing is computed while this is written")
            stage.log.append(f"write {number}")
            return TaskResult(task, ())

        return write


def _number(task: Task) -> int:
    return int(task.params["start"])


def _run_four(stage: Recording, device: Device) -> list[PoolEvent]:
    """Carry out four tasks, of which a worker always knows the next one."""
    tasks = stage.tasks(4, size=1)
    events: list[PoolEvent] = []
    following: list[Task] = []
    runner = TaskRunner(0, device, events.append, lambda: following[0] if following else None)
    runner.take(stage)
    for position, task in enumerate(tasks):
        following[:] = tasks[position + 1 : position + 2]
        runner.take(task)
    runner.take(stage)  # waits for the last one
    return events


def test_a_device_never_waits_for_the_host() -> None:
    """Each task is prepared before the one before it is computed, and written after its begin."""
    stage = Recording(waits=True)
    events = _run_four(stage, GPU)
    log = stage.log
    gaps = 0
    for number in range(3):
        assert log.index(f"prepare {number + 1}") < log.index(f"compute {number}.2")
        gaps += log.index(f"write {number}") < log.index(f"compute {number + 1}.1")
    assert gaps == 0
    assert sum(entry.startswith("prepare") for entry in log) == 3
    assert [_number(e.task) for e in events if isinstance(e, WorkEnded)] == [0, 1, 2, 3]


def test_a_cpu_does_one_thing_after_the_other() -> None:
    stage = Recording(waits=False)
    events = _run_four(stage, CPU)
    steps = [*(f"compute {{}}.{batch}" for batch in range(BATCHES)), "write {}"]
    assert stage.log == [step.format(number) for number in range(4) for step in steps]
    kinds = [type(event) for event in events if not isinstance(event, WorkerReady)]
    assert kinds == [Progressed, WorkEnded] * 4


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_a_trial_computes_is_taken_back(device: Device) -> None:
    """It is computed again in its task: no more would be done than there is."""
    stage, events = Recording(waits=False), list[PoolEvent]()
    runner = TaskRunner(0, device, events.append)
    for work in (stage, replace(stage.task(0, 1), trial=(0, 1)), stage):
        runner.take(work)
    done = [event.sequences for event in events if isinstance(event, Progressed)]
    assert (sum(done), max(done)) == (0, BATCHES)
