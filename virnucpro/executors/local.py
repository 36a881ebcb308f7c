"""Tasks in this process: the stages of the host, and encoders on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from virnucpro import errors
from virnucpro.contracts import Device, Done, Failed, Outcome, Stage, Task
from virnucpro.events import Event, Progressed, TaskFailed, TaskFinished, TaskStarted, WorkerReady
from virnucpro.executors.messages import Fault
from virnucpro.executors.worker import attempt, facts_of, use_threads

Emit = Callable[[Event], None]


def run_on_host(stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[Outcome]:
    """Carry out the tasks of a ``cpu`` stage in order. Whatever goes wrong ends the run."""
    session = stage.open(Device("cpu"))
    for task in tasks:
        emit(TaskStarted(0, task))
        started = time.perf_counter()
        done = session(task, lambda sequences, tokens: emit(Progressed(0, sequences, tokens)))
        emit(TaskFinished(0, task, time.perf_counter() - started))
        yield done


def raise_fatal(fault: Fault) -> None:
    """Raise the error that a worker met, if it concerns the whole run."""
    if fault.kind == "fatal":
        raise getattr(errors, fault.error)(fault.message)
    if fault.task is None:
        raise errors.DeviceError(
            f"the model cannot be loaded on the device: {fault.error}: {fault.message}"
        )


def divide(stage: Stage, fault: Fault) -> tuple[Task, Task] | Failed:
    """Two smaller tasks in place of one that failed, or the verdict on a single sequence."""
    assert fault.task is not None
    return stage.halve(fault.task) or Failed(
        fault.task, fault.error, fault.message, stage.ids(fault.task)
    )


class LocalExecutor:
    """Everything in this process, one task after the other."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def run(self, stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[Outcome]:
        """Carry out ``tasks`` in order; one that fails is halved until the culprit is alone."""
        if stage.kind == "cpu":
            yield from run_on_host(stage, tasks, emit)
            return
        queue = list(tasks)[::-1]
        if not queue:
            return
        use_threads(self._device)
        started = time.perf_counter()
        session = stage.open(self._device)
        seconds = time.perf_counter() - started
        emit(WorkerReady(0, self._device, stage.name, seconds, facts_of(session)))
        while queue:
            task = queue.pop()
            emit(TaskStarted(0, task))
            outcome = attempt(session, task, lambda s, t: emit(Progressed(0, s, t)))
            if isinstance(outcome, Done):
                emit(TaskFinished(0, task, outcome.seconds))
                yield outcome
                continue
            raise_fatal(outcome)
            divided = divide(stage, outcome)
            if isinstance(divided, Failed):
                emit(TaskFailed(0, divided))
                yield divided
            else:
                queue.extend(reversed(divided))

    def close(self) -> None:
        """Nothing to stop."""
