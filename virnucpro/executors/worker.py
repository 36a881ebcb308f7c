"""One worker: opens stages on its device and calls their sessions on tasks."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection

from virnucpro.contracts import Describes, Device, Done, Json, Report, Session, Task
from virnucpro.errors import VirNucProError
from virnucpro.executors.messages import Down, Fault, Finished, Open, Progress, Ready, Run, Up

REPORT_SECONDS = 0.2  # between two progress messages; a display needs no more
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def attempt(session: Session, task: Task, report: Report) -> Done | Fault:
    """Carry out ``task``; whatever goes wrong comes back as a :class:`Fault`, sorted by kind."""
    try:
        return session(task, report)
    except Exception as error:  # noqa: BLE001 - the edge of a task: one must not end the others
        return fault(task, error)


def fault(task: Task | None, error: BaseException) -> Fault:
    """Describe ``error`` for the other side of a pipe."""
    import torch

    name = type(error).__name__
    message = str(error).strip() or name
    if isinstance(error, VirNucProError):
        return Fault(task, "fatal", name, message)
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return Fault(task, "memory", name, message.splitlines()[0])
    return Fault(task, "data", name, message.splitlines()[0])


def prepare_process(device: Device, tokenizer_threads: int) -> None:
    """Settle this process on its device, before CUDA is touched.

    Signals are the parent's business; a worker dies with its parent, however that ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if device.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    os.environ["RAYON_NUM_THREADS"] = str(tokenizer_threads)  # the tokenizers library reads it
    use_threads(device)


def facts_of(session: Session) -> Mapping[str, Json]:
    """What a session says of itself; nothing where it is a plain callable."""
    return session.facts() if isinstance(session, Describes) else {}


def use_threads(device: Device) -> None:
    """Give torch the device's share of the host's cores."""
    import torch

    torch.set_num_threads(device.threads)


def main(connection: Connection, parent: int, device: Device, tokenizer_threads: int) -> None:
    """Life of a worker process: messages in, messages out, until ``Stop`` or the pipe closes."""
    prepare_process(device, tokenizer_threads)
    if os.getppid() != parent:
        return  # the parent died before this process could ask to die with it
    send: Callable[[Up], None] = connection.send
    session: Session | None = None
    try:
        while True:
            message: Down = connection.recv()
            if isinstance(message, Open):
                session = None  # frees the previous model before the next one is loaded
                session = _open(message, device, send)
            elif isinstance(message, Run):
                assert session is not None
                reporter = _Reporter(send)
                outcome = attempt(session, message.task, reporter)
                reporter.flush()
                send(outcome if isinstance(outcome, Fault) else Finished(outcome))
            else:
                return
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone


def _open(message: Open, device: Device, send: Callable[[Up], None]) -> Session | None:
    started = time.perf_counter()
    try:
        session = message.stage.open(device)
    except Exception as error:  # noqa: BLE001 - the edge of a worker: the parent reports it
        send(fault(None, error))
        return None
    send(Ready(time.perf_counter() - started, facts_of(session)))
    return session


class _Reporter:
    """Gathers progress, so that a fast encoder does not spend its time on messages."""

    def __init__(self, send: Callable[[Up], None]) -> None:
        self._send = send
        self._sequences = self._tokens = 0
        self._last = time.monotonic()

    def __call__(self, sequences: int, tokens: int) -> None:
        self._sequences += sequences
        self._tokens += tokens
        if time.monotonic() - self._last >= REPORT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send what has gathered."""
        if self._sequences or self._tokens:
            self._send(Progress(self._sequences, self._tokens))
        self._sequences = self._tokens = 0
        self._last = time.monotonic()
