"""Tasks in this process: the stages of the host, and encoders on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from virnucpro.contracts import Device, FailedTask, Session, Stage, Task, TaskOutcome, TaskResult
from virnucpro.events import (
    Event,
    Notice,
    Progressed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    WorkerReady,
    WorkerReport,
)
from virnucpro.executors.faults import Reporter, carry_out, divide, run_error
from virnucpro.executors.worker import facts_of, peak_of, use_threads

Emit = Callable[[Event], None]

THREAD = "host"
ABREAST = 8  # tasks of a stage of the host at a time: merging 10,000 frames takes 0.13 GB


def run_on_host(
    stage: Stage, tasks: Iterable[Task], emit: Emit, threads: int
) -> Iterator[TaskOutcome]:
    """Carry out the tasks of a ``cpu`` stage. Whatever goes wrong ends the run.

    Outcomes come in order; where there are several tasks, up to ``ABREAST`` are worked at.
    ``threads`` are those of the host in all.
    """
    use_threads(Device("cpu", threads=threads))
    session = stage.open(Device("cpu", threads=threads))
    todo = list(tasks)
    if threads == 1 or len(todo) == 1:
        for task in todo:
            emit(TaskStarted(0, task))
            started = time.perf_counter()
            reporter = Reporter(lambda sequences, tokens: emit(Progressed(0, sequences, tokens)))
            done = session(task, reporter)
            reporter.flush()
            emit(TaskFinished(0, task, time.perf_counter() - started))
            yield done
    else:
        yield from _side_by_side(session, todo, emit, min(threads, ABREAST))


def _side_by_side(
    session: Session, tasks: list[Task], emit: Emit, threads: int
) -> Iterator[TaskOutcome]:
    """Events are only emitted here, in the thread that asks for the outcomes."""

    def carried_out(task: Task) -> tuple[TaskResult, list[tuple[int, int]]]:
        reports: list[tuple[int, int]] = []
        return session(task, lambda *counts: reports.append(counts)), reports

    one = Device("cpu", threads=1)
    with ThreadPoolExecutor(threads, THREAD, use_threads, (one,)) as pool:
        try:
            for task, future in [(task, pool.submit(carried_out, task)) for task in tasks]:
                emit(TaskStarted(0, task))
                started = time.perf_counter()
                done, reports = future.result()
                for counts in reports:
                    emit(Progressed(0, *counts))
                emit(TaskFinished(0, task, time.perf_counter() - started))
                yield done
        finally:
            pool.shutdown(cancel_futures=True)  # what is at work ends: its writes are atomic


def halved(worker: int, times: int) -> Notice:
    """What to tell the user after memory ran out."""
    return Notice(
        "warning",
        f"worker {worker} ran out of memory: its batches are {2**times} times smaller now; is "
        f"another program using the device?",
    )


class LocalExecutor:
    """Everything in this process, one task after the other."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def run(self, stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[TaskOutcome]:
        """Carry out ``tasks`` in order; one that fails is halved until the culprit is alone.

        Raises:
            VirNucProError: what concerns the whole run.
        """
        if stage.kind == "cpu":
            yield from run_on_host(stage, tasks, emit, self._device.threads)
            return
        queue = list(tasks)[::-1]
        if queue:
            yield from self._run(stage, queue, emit)

    def _run(self, stage: Stage, queue: list[Task], emit: Emit) -> Iterator[TaskOutcome]:
        use_threads(self._device)
        started = time.perf_counter()
        session = stage.open(self._device)
        opened = time.perf_counter()
        emit(WorkerReady(0, self._device, stage.name, opened - started, facts_of(session)))
        busy, finished = 0.0, 0
        while queue:
            task = queue.pop()
            emit(TaskStarted(0, task))
            began = time.perf_counter()
            reporter = Reporter(lambda s, t: emit(Progressed(0, s, t)))
            outcome, halvings = carry_out(session, task, reporter)
            seconds = time.perf_counter() - began
            busy += seconds
            if isinstance(outcome, TaskResult):
                finished += 1
                if halvings:
                    emit(halved(0, halvings))
                emit(TaskFinished(0, task, seconds))
                yield outcome
                continue
            if outcome.kind == "fatal":
                raise run_error(outcome)
            divided = divide(stage, outcome)
            if isinstance(divided, FailedTask):
                emit(TaskFailed(0, divided))
                yield divided
            else:
                queue.extend(reversed(divided))
        idle = time.perf_counter() - opened - busy
        peak = peak_of(session)
        emit(WorkerReport(0, self._device, stage.name, busy, idle, finished, peak))

    def close(self) -> None:
        """Nothing to stop."""
