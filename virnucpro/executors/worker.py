"""One worker: opens stages on its device and calls their sessions on tasks."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection

from virnucpro.contracts import Device, Json, ModelSession, Session, Task, TaskResult
from virnucpro.executors.faults import Reporter, carry_out, fault, shrink
from virnucpro.executors.messages import Down, Finished, Open, Progress, Ready, Run, Up
from virnucpro.executors.signals import SIGNALS

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def prepare_process(device: Device, tokenizer_threads: int) -> None:
    """Settle this process on its device, before torch is imported and CUDA touched.

    Signals are the parent's business; a worker dies with its parent, however that ends.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if device.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    os.environ["RAYON_NUM_THREADS"] = str(tokenizer_threads)  # the tokenizers library reads it
    os.environ["OMP_NUM_THREADS"] = str(device.threads)  # and torch this one, when it is imported


def use_threads(device: Device) -> None:
    """Give torch, where it is imported, the device's share of the host's cores."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(device.threads)


def facts_of(session: Session) -> Mapping[str, Json]:
    """What a session says of itself; nothing where it is a plain callable."""
    return session.facts() if isinstance(session, ModelSession) else {}


def peak_of(session: Session) -> int:
    """Bytes of device memory that a session has held at the most; 0 where it does not say."""
    return session.peak_memory() if isinstance(session, ModelSession) else 0


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
                if session is None:
                    return
            elif isinstance(message, Run):
                assert session is not None
                _run(session, message.task, send)
            else:
                return
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone


def _open(message: Open, device: Device, send: Callable[[Up], None]) -> Session | None:
    started = time.perf_counter()
    # What is compiled on one number of threads is not used on another, and torch does not say so.
    use_threads(device)
    try:
        session = message.stage.open(device)
        facts = facts_of(session)
        shrink(session, message.halvings)
    except Exception as error:  # noqa: BLE001 - the edge of a worker: the parent reports it
        send(fault(None, error))
        return None
    send(Ready(time.perf_counter() - started, facts))
    return session


def _run(session: Session, task: Task, send: Callable[[Up], None]) -> None:
    started = time.perf_counter()
    reporter = Reporter(lambda sequences, tokens: send(Progress(sequences, tokens)))
    outcome, halvings = carry_out(session, task, reporter)
    seconds = time.perf_counter() - started
    if isinstance(outcome, TaskResult):
        send(Finished(outcome, seconds, halvings, peak_of(session)))
    else:
        send(replace(outcome, seconds=seconds))
