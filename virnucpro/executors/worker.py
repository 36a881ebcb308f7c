"""What a worker does, in whatever process it lives: open stages and carry out their tasks."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from virnucpro.contracts import (
    Device,
    ModelSession,
    PipelinedSession,
    ReportProgress,
    Session,
    SessionFigures,
    Stage,
    Task,
    TaskResult,
)
from virnucpro.errors import RunInterruptedError
from virnucpro.executors.failures import FailureKind, WorkFailure, describe_failure
from virnucpro.executors.pool import (
    PoolEvent,
    ProgressMade,
    StageOpened,
    TaskCompleted,
    WorkFailed,
)
from virnucpro.executors.retry import FaultSearch

WRITER_THREAD = "write"
REPORT_SECONDS = 0.2  # between two progress events; a display needs no more
# Halvings that bring every batch budget down to one sequence: two to the 20th is a million.
SMALLEST_BATCHES = 20

T = TypeVar("T")
ComputeTask = Callable[[Task, ReportProgress], TaskResult | Callable[[], TaskResult]]


def set_torch_threads(threads: int) -> None:
    """Have torch compute on so many threads of the host, if torch is imported."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


class ProgressReporter:
    """Gathers progress, so that a fast encoder does not spend its time on messages."""

    def __init__(
        self,
        send: ReportProgress,
        seconds: float = REPORT_SECONDS,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """``send`` gets sequences and tokens, at most once in ``seconds`` and when ``ready``."""
        self._send = send
        self._seconds = seconds
        self._ready = ready
        self._unsent = self._sent = (0, 0)
        self._last = time.monotonic()

    def __call__(self, sequences: int, tokens: int) -> None:
        """Add sequences and tokens that have just been finished."""
        self._unsent = (self._unsent[0] + sequences, self._unsent[1] + tokens)
        if time.monotonic() - self._last >= self._seconds and self._ready():
            self.flush()

    def flush(self) -> None:
        """Send what was gathered."""
        if any(self._unsent):
            self._send(*self._unsent)
        self._sent = (self._sent[0] + self._unsent[0], self._sent[1] + self._unsent[1])
        self._unsent = (0, 0)
        self._last = time.monotonic()

    def take_back(self) -> None:
        """Send the negative of all that was sent: the task failed and will be done again."""
        if any(self._sent):
            self._send(-self._sent[0], -self._sent[1])
        self._unsent = self._sent = (0, 0)


class TaskRunner:
    """Opens stages on one device and carries out their tasks, one after the other.

    Every pool runs one for each worker, on the worker's side of its transport.
    """

    def __init__(
        self,
        worker: int,
        device: Device,
        send: Callable[[PoolEvent], None],
        next_task: Callable[[], Task | None] = lambda: None,
    ) -> None:
        """``send`` delivers events to the pool; ``worker`` is the number that they carry.

        ``next_task`` returns the task that the worker will be given next, if that is known.
        """
        self._worker = worker
        self._device = device
        self._send = send
        self._next_task = next_task
        self._session: Session | None = None
        self._searched_for: tuple[FailureKind, ...] = ("data",)
        self._writer = ThreadPoolExecutor(1, WRITER_THREAD)
        self._writing: Future[None] | None = None

    def open(self, stage: Stage, halvings: int) -> None:
        """Load what ``stage`` needs and halve its batches ``halvings`` times.

        Sends :class:`StageOpened`, or :class:`WorkFailed` without a task.
        """
        self._await_writing()
        self._session = None  # frees the previous model before the next one is loaded
        started = time.perf_counter()
        # torch does not use what was compiled with another number of threads, and does not say so.
        set_torch_threads(self._device.threads)
        try:
            session = stage.open(self._device)
            facts = session.facts() if isinstance(session, ModelSession) else {}
            halve_batches(session, halvings)
        except RunInterruptedError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of a worker: the pool reports it
            seconds = time.perf_counter() - started
            self._send(WorkFailed(self._worker, None, describe_failure(error), seconds))
            return
        self._session = session
        # With the smallest batches, a sequence that does not fit is at fault itself.
        smallest = halvings == SMALLEST_BATCHES
        self._searched_for = ("data", "memory") if smallest else ("data",)
        self._send(StageOpened(self._worker, time.perf_counter() - started, facts))

    def run(self, task: Task) -> None:
        """Carry out ``task``; while memory runs out, halve the batches and try again.

        Sequences that raise an error are searched for, and left out. Sends progress, then
        :class:`TaskCompleted` or :class:`WorkFailed`. Where the device computes by itself
        (:class:`virnucpro.contracts.PipelinedSession`), this returns when ``task`` is computed; it
        is written in a thread while the next call computes. Events of two tasks never mix: the
        second task's wait for the first's.

        Raises:
            RunInterruptedError: a signal arrived, and this is the process that catches signals.
        """
        session = self._session
        assert session is not None, "a stage is opened before its tasks are submitted"
        pipelined = None
        if isinstance(session, PipelinedSession) and self._device.kind != "cpu":
            pipelined = session  # a CPU has nothing to do the host's work with meanwhile
        started = time.perf_counter()
        reporter = ProgressReporter(
            lambda sequences, tokens: self._send(ProgressMade(self._worker, sequences, tokens)),
            ready=lambda: self._writing is None or self._writing.done(),
        )
        prepared: Task | None = None

        def report(sequences: int, tokens: int) -> None:
            nonlocal prepared
            if pipelined and prepared is None and (prepared := self._next_task()):
                pipelined.prepare(prepared)
            reporter(sequences, tokens)

        work: ComputeTask = pipelined.compute if pipelined else session
        halvings = 0
        while isinstance(outcome := _attempt(partial(work, task, report)), WorkFailure):
            self._await_writing()
            reporter.take_back()
            if outcome.kind == "memory":
                # The error's traceback may still hold tensors of the failed batch; they must be
                # gone when the session releases the memory that it does not use.
                gc.collect()
            if outcome.kind != "memory" or not halve_batches(session, 1):
                break
            halvings += 1
        self._await_writing()
        if isinstance(outcome, TaskResult | WorkFailure):
            self._finish(session, task, reporter, outcome, started, halvings)
            return
        reporter.flush()
        self._writing = self._writer.submit(
            self._write, session, task, reporter, outcome, started, halvings
        )

    def _write(
        self,
        session: Session,
        task: Task,
        reporter: ProgressReporter,
        write: Callable[[], TaskResult],
        started: float,
        halvings: int,
    ) -> None:
        seconds = time.perf_counter() - started
        written = _attempt(write)
        now = time.perf_counter()  # the device computes the next task meanwhile
        self._finish(session, task, reporter, written, now - seconds, halvings)

    def _finish(
        self,
        session: Session,
        task: Task,
        reporter: ProgressReporter,
        outcome: TaskResult | WorkFailure,
        started: float,
        halvings: int,
    ) -> None:
        """Send what became of a task, which was begun at ``started``."""
        if isinstance(outcome, WorkFailure):
            reporter.take_back()
            outcome = _checked(session, outcome)
            if task.trial is None and outcome.kind in self._searched_for:
                outcome = self._without_faulty(session, task, outcome, reporter)
        reporter.flush()
        seconds = time.perf_counter() - started
        if isinstance(outcome, WorkFailure):
            self._send(WorkFailed(self._worker, task, outcome, seconds))
            return
        figures = session.figures() if isinstance(session, ModelSession) else SessionFigures()
        self._send(TaskCompleted(self._worker, outcome, seconds, halvings, figures))

    def _without_faulty(
        self, session: Session, task: Task, failure: WorkFailure, report: ProgressReporter
    ) -> TaskResult | WorkFailure:
        """Find the sequences that raise an error, and carry out ``task`` without them.

        Where none raises one alone, the device is taken to be at fault.
        """
        while True:
            search = FaultSearch(task)
            while trial := search.trial():
                outcome = _attempt(partial(session, trial, report))
                report.take_back()
                if isinstance(outcome, TaskResult):
                    search.passed()
                elif outcome.kind in self._searched_for:
                    search.failed(outcome.error, outcome.message)
                else:
                    return outcome
            if not search.found:
                return replace(failure, kind="device")
            task = search.remainder()
            result = _attempt(partial(session, task, report))
            if isinstance(result, TaskResult) or result.kind not in self._searched_for:
                return result
            report.take_back()

    def _await_writing(self) -> None:
        """Wait until the task before this one is written and reported."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None


def _attempt(work: Callable[[], T]) -> T | WorkFailure:
    """Do a piece of work once.

    A function of its own, so that the traceback, which may hold tensors of the failed batch, is
    freed before the next attempt.
    """
    try:
        return work()
    except RunInterruptedError:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of a task: one must not end the others
        return describe_failure(error)


def _checked(session: Session, failure: WorkFailure) -> WorkFailure:
    """Return ``failure``, or another one if it cannot be the fault of a sequence."""
    if failure.kind == "data" and isinstance(session, ModelSession):
        problem = _attempt(session.check)
        if problem is not None:
            return replace(problem, kind="broken") if problem.kind == "data" else problem
    return failure


def halve_batches(session: Session, times: int) -> int:
    """Halve the batches of a session up to ``times`` times; return how often that was possible."""
    for count in range(times):
        if not (isinstance(session, ModelSession) and session.shrink()):
            return count
    return times
