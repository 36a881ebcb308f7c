"""What can go wrong with a task: told apart by kind, tried again with less memory, halved."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from virnucpro import errors
from virnucpro.contracts import (
    FailedTask,
    ModelSession,
    ReportProgress,
    Session,
    Stage,
    Task,
    TaskResult,
)
from virnucpro.errors import RunInterruptedError, VirNucProError
from virnucpro.executors.messages import Fault, FaultKind

REPORT_SECONDS = 0.2  # between two progress messages; a display needs no more
SMALLEST = 20  # halvings that bring every budget down to one sequence: a million is 2 to the 20th


class Reporter:
    """Gathers progress, so that a fast encoder does not spend its time on messages."""

    def __init__(self, send: ReportProgress, seconds: float = REPORT_SECONDS) -> None:
        """``send`` gets sequences and tokens, at most once in ``seconds``."""
        self._send = send
        self._seconds = seconds
        self._sequences = self._tokens = 0
        self._sent = (0, 0)
        self._last = time.monotonic()

    def __call__(self, sequences: int, tokens: int) -> None:
        """Note what has just been finished."""
        self._sequences += sequences
        self._tokens += tokens
        if time.monotonic() - self._last >= self._seconds:
            self.flush()

    def flush(self) -> None:
        """Send what has gathered."""
        if self._sequences or self._tokens:
            self._send(self._sequences, self._tokens)
            self._sent = (self._sent[0] + self._sequences, self._sent[1] + self._tokens)
        self._sequences = self._tokens = 0
        self._last = time.monotonic()

    def take_back(self) -> None:
        """The task failed: what was reported of it will be done again."""
        self._sequences = self._tokens = 0
        if any(self._sent):
            self._send(-self._sent[0], -self._sent[1])
        self._sent = (0, 0)


def carry_out(session: Session, task: Task, reporter: Reporter) -> tuple[TaskResult | Fault, int]:
    """Carry out ``task``; while memory runs out, halve the batches of the session and try again.

    Returns what came of it, and how many times the batches were halved.
    """
    halvings = 0
    while True:
        outcome = attempt(session, task, reporter)
        if isinstance(outcome, TaskResult):
            reporter.flush()
            return outcome, halvings
        reporter.take_back()
        if outcome.kind != "memory" or not shrink(session, 1):
            return outcome, halvings
        halvings += 1


def shrink(session: Session, halvings: int) -> int:
    """Halve the batches of a session as often, or as often as it can; returns how often."""
    for done in range(halvings):
        gc.collect()  # the error's traceback may still hold tensors of the failed batch
        if not (isinstance(session, ModelSession) and session.shrink()):
            return done
    return halvings


def attempt(session: Session, task: Task, report: ReportProgress) -> TaskResult | Fault:
    """Carry out ``task``; whatever goes wrong comes back as a :class:`Fault`.

    Raises:
        Interrupted: a signal, where the session runs in the process that catches them.
    """
    try:
        return session(task, report)
    except RunInterruptedError:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of a task: one must not end the others
        return fault(task, error)


def fault(task: Task | None, error: BaseException) -> Fault:
    """Describe ``error`` for the other side of a pipe."""
    name = type(error).__name__
    message = str(error).strip() or name
    kind = _kind(error)
    return Fault(task, kind, name, message if kind == "fatal" else message.splitlines()[0])


def _kind(error: BaseException) -> FaultKind:
    if isinstance(error, VirNucProError | OSError):
        return "fatal"  # of all tasks alike; a file that cannot be read is no sequence's fault
    torch = sys.modules.get("torch")  # where it was never imported, the error is not one of its own
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return "memory"
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return "device"
    # cuBLAS and cuDNN report a broken device as a plain RuntimeError.
    if isinstance(error, RuntimeError) and str(error).startswith("CUDA error"):
        return "device"
    return "data"


def run_error(fault: Fault) -> VirNucProError:
    """The error that a worker met and that ends the whole run."""
    kind: Callable[[str], VirNucProError] = getattr(errors, fault.error, errors.OutputError)
    return kind(fault.message)


def divide(stage: Stage, fault: Fault) -> tuple[Task, Task] | FailedTask:
    """Two smaller tasks in place of one that failed, or the verdict on a single sequence."""
    assert fault.task is not None
    return stage.halve(fault.task) or FailedTask(
        fault.task, fault.error, fault.message, stage.ids(fault.task)
    )
