"""What a worker does, in whatever process it lives: open stages and carry out their tasks."""

from __future__ import annotations

import errno
import gc
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from virnucpro.contracts import (
    Device,
    FailedRow,
    ReportProgress,
    Session,
    Task,
    TaskResult,
    WorkerStage,
)
from virnucpro.errors import VirNucProError
from virnucpro.events import Progressed, WorkerReady
from virnucpro.workers.pool import Failure, FailureKind, PoolEvent, Work, WorkEnded, WorkFailure
from virnucpro.workers.retry import SearchState

WRITER_THREAD = "write"
REPORT_SECONDS = 0.2  # between two progress events; a display needs no more
# What an error says when a device or the host has too little memory: torch's allocators, CUDA's
# runtime and driver (also through Inductor's launcher), Triton, cuBLAS, cuDNN and other libraries,
# and the C++ library.
MEMORY_WORDS = re.compile(
    r"out[ _]of[ _]memory|memoryallocation|alloc(ation)?_failed|not enough memory|allocate memory"
    r"|failed to allocate|bad_alloc|NVML_SUCCESS == r",  # the last one is torch's on MIG devices
    re.IGNORECASE,
)
# What it says when the device, its driver or a library of the vendor failed, or the host has no
# threads left: a good sequence must not be given up for it, nor for a kernel of another GPU.
DEVICE_WORDS = re.compile(
    r"cuda|nvidia driver|triton error|out of resource|cublas|cudnn|cufft|curand|cusolver|cusparse"
    r"|nccl|nvml|nvrtc|ptxas|device-side assert|start new thread",
    re.IGNORECASE,
)
# Errors of these modules are about compilers, devices and processes, never about a sequence.
DEVICE_MODULES = re.compile(r"triton\.|torch\.(cuda|distributed|_dynamo|_inductor)")

T = TypeVar("T")


def set_torch_threads(threads: int) -> None:
    """Have torch compute on so many threads of the host in this thread, if torch is imported."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
        torch.get_num_threads()  # else what another thread sets next would count here, too


@dataclass
class ProgressReporter:
    """Gathers progress, so that a fast encoder does not spend its time on messages.

    ``send`` gets sequences and tokens, once in ``REPORT_SECONDS`` and when it is ``ready``.
    """

    send: ReportProgress
    ready: Callable[[], bool] = lambda: True
    _unsent: tuple[int, int] = (0, 0)
    _sent: tuple[int, int] = (0, 0)
    _last: float = field(default_factory=time.monotonic)

    def __call__(self, sequences: int, tokens: int) -> None:
        """Add sequences and tokens that have just been finished."""
        self._unsent = (self._unsent[0] + sequences, self._unsent[1] + tokens)
        if time.monotonic() - self._last >= REPORT_SECONDS and self.ready():
            self.flush()

    def flush(self) -> None:
        """Send what was gathered."""
        if any(self._unsent):
            self.send(*self._unsent)
        self._sent = (self._sent[0] + self._unsent[0], self._sent[1] + self._unsent[1])
        self._unsent = (0, 0)
        self._last = time.monotonic()

    def take_back(self) -> None:
        """Send the negative of all that was sent: the task failed and will be done again."""
        if any(self._sent):
            self.send(-self._sent[0], -self._sent[1])
        self._unsent = self._sent = (0, 0)


@dataclass
class TaskRunner:
    """Opens stages on one device and carries out their tasks, one after the other.

    Every pool runs one for each worker, on the worker's side of its transport. ``send`` delivers
    events to the pool; ``worker`` is the number that they carry. ``next_task`` returns the task
    that the worker will be given next, if that is known.
    """

    worker: int
    device: Device
    send: Callable[[PoolEvent], None]
    next_task: Callable[[], Task | None] = lambda: None
    _session: Session | None = None
    _writer: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, WRITER_THREAD)
    )
    _writing: Future[None] | None = None

    def take(self, work: Work) -> None:
        """Open a stage, carry out a task of the opened stage, or warm up.

        Sends :class:`WorkerReady`, or progress and then :class:`WorkEnded`; nothing of a warm-up.
        Where the device is not a CPU, this returns when a task is computed; it is written in a
        thread while the next one is computed. Events of two tasks never mix: the second task's wait
        for the first's.

        Raises:
            RunInterruptedError: a signal arrived, and this is the process that catches signals.
        """
        if isinstance(work, Task):
            if work.single is None:
                self._run(work)
            else:
                self._search(work, work.single)
            return
        if not isinstance(work, WorkerStage):
            work(self.device)
            return
        self._await_writing()
        self._session = None  # frees the previous model before the next one is loaded
        started = time.perf_counter()
        # torch does not use what was compiled with another number of threads, and does not say so.
        set_torch_threads(self.device.threads)
        session = _attempt(partial(work.open, self.device))
        seconds = time.perf_counter() - started
        if isinstance(session, Failure):
            self.send(WorkEnded(self.worker, None, session, seconds))
            return
        self._session = session
        self.send(WorkerReady(self.worker, self.device, work.name, seconds, session.facts))

    def _run(self, task: Task) -> None:
        """Compute ``task``; while memory runs out, halve the batches and try again."""
        session = self._session
        assert session is not None, "a stage is opened before its tasks are submitted"
        overlaps = self.device.kind != "cpu"  # a CPU has nothing to do the host's work with
        started = time.perf_counter()
        reporter = ProgressReporter(
            lambda sequences, tokens: self.send(Progressed(self.worker, sequences, tokens)),
            ready=lambda: self._writing is None or self._writing.done(),
        )
        prepared: Task | None = None

        def report(sequences: int, tokens: int) -> None:
            nonlocal prepared
            if overlaps and prepared is None and (prepared := self.next_task()):
                session.prepare(prepared)
            reporter(sequences, tokens)

        halvings = 0
        while isinstance(write := _attempt(partial(session.compute, task, report)), Failure):
            self._await_writing()
            reporter.take_back()
            if isinstance(write, VirNucProError) or write.kind != "memory":
                break
            # The error's traceback may still hold tensors of the failed batch; they must be gone
            # when the session releases the memory that it does not use.
            gc.collect()
            if not session.shrink():
                break
            halvings += 1
        self._await_writing()
        reporter.flush()

        def finish() -> None:
            """Write the task, and send what became of it."""
            nonlocal started
            computed = time.perf_counter()
            outcome = write if isinstance(write, Failure) else _attempt(write)
            if overlaps:  # the device computes the next task meanwhile
                started += time.perf_counter() - computed
            if isinstance(outcome, Failure):
                reporter.take_back()
                if isinstance(outcome, WorkFailure) and outcome.kind == "data":
                    outcome = _problem_of_device(session) or outcome
            seconds, measured = time.perf_counter() - started, session.measured()
            self.send(WorkEnded(self.worker, task, outcome, seconds, halvings, measured))

        if overlaps and not isinstance(write, Failure):
            self._writing = self._writer.submit(finish)
        else:
            finish()

    def _search(self, task: Task, first: int) -> None:
        """Compute the records of ``task`` one at a time, from row ``first``; see ``retry.py``."""
        session = self._session
        assert session is not None
        self._await_writing()
        started, excluded = time.perf_counter(), {failed.row for failed in task.excluded}
        reporter = ProgressReporter(
            lambda sequences, tokens: self.send(Progressed(self.worker, sequences, tokens))
        )
        outcome: tuple[FailedRow, ...] | Failure | None = None
        found: list[FailedRow] = []
        for row in range(first, task.count + len(excluded)):
            if row in excluded:
                continue
            SearchState(row, tuple(found)).write(task.search_file)
            trial = replace(task, single=None, trial=(row, row + 1))
            match _attempt(partial(_compute, session, trial, reporter)):
                case (VirNucProError() | WorkFailure("device" | "file")) as outcome:
                    break
                case WorkFailure(_, error, message):
                    found.append(FailedRow(row, error, message))
        if outcome is None:
            outcome = tuple(found)
            if found:
                outcome = _problem_of_device(session) or outcome
        reporter.take_back()
        seconds = time.perf_counter() - started
        self.send(WorkEnded(self.worker, task, outcome, seconds, measured=session.measured()))

    def _await_writing(self) -> None:
        """Wait until the task before this one is written and reported."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None


def _compute(session: Session, task: Task, report: ReportProgress) -> TaskResult:
    return session.compute(task, report)()


def _problem_of_device(session: Session) -> Failure | None:
    """Return why a device fails for a sequence known to be good; None where it does not."""
    problem = _attempt(session.check)
    if isinstance(problem, WorkFailure) and problem.kind == "data":
        return replace(problem, kind="broken")
    return problem


def _attempt(work: Callable[[], T]) -> T | Failure:
    """Do a piece of work once.

    A function of its own, so that the traceback, which may hold tensors of the failed batch, is
    freed before the next attempt.
    """
    try:
        return work()
    except VirNucProError as error:
        return error
    except Exception as error:  # noqa: BLE001 - the edge of a task: one must not end the others
        return describe_failure(error)


def describe_failure(error: Exception) -> WorkFailure:
    """Return what the scheduler needs to know about an exception that a worker met."""
    name, torch = type(error).__name__, sys.modules.get("torch")
    message, text = str(error).strip() or name, str(error)
    # Errors of a device are told by their words: most libraries raise a plain RuntimeError, and
    # torch an AssertionError where it was built without CUDA.
    plain = isinstance(error, RuntimeError | AssertionError)
    kind: FailureKind = "data"
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        kind = "memory"
    elif isinstance(error, OSError):
        kind = "file"  # which is not the fault of a sequence
    elif plain and MEMORY_WORDS.search(text):
        kind = "memory"
    elif (plain and DEVICE_WORDS.search(text)) or DEVICE_MODULES.match(type(error).__module__):
        kind = "device"
    elif isinstance(error, getattr(torch, "AcceleratorError", ())):
        kind = "device"  # if torch was never imported, the error cannot be torch's
    return WorkFailure(kind, name, message.splitlines()[0])
