"""Spawned processes: how one is started, and a worker pool of them.

Workers and the processes of a training are both a :class:`ChildProcess`. The standard library has
no pool that fits: ``multiprocessing.Pool`` hangs if a worker is killed, ``ProcessPoolExecutor``
fails every pending future after one crash, and a shared queue can die with its lock held. Here
each process has a pipe of its own, and the parent waits on the pipes and on the processes'
sentinels, so that a killed worker wakes it at once.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import connection as connections
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Protocol

from virnucpro.contracts import Device, Stage, Task
from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.executors.pool import (
    HandleEvent,
    PoolEvent,
    ProgressMade,
    WorkerExited,
    WorkerSilent,
)
from virnucpro.executors.signals import SIGNALS, blocked_signals
from virnucpro.executors.worker import TaskRunner, set_torch_threads
from virnucpro.settings import MachineSettings

STOP_SECONDS = 5.0  # an idle worker ends at once when it is told to
PR_SET_PDEATHSIG = 1  # linux/prctl.h: the signal that a process gets when its parent dies


def settle_on_device(device: Device, tokenizer_threads: int) -> None:
    """Give this process its device and its share of the host's cores, before CUDA is touched.

    The GPU becomes the only visible one, chosen by UUID because torch numbers GPUs in another
    order than the driver. Expandable segments keep the allocator from running out of memory while
    free memory is in pieces: batches have many different shapes.
    """
    if device.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # for what a library looks up by number
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    os.environ["RAYON_NUM_THREADS"] = str(tokenizer_threads)  # the tokenizers library reads it
    os.environ["OMP_NUM_THREADS"] = str(device.threads)  # torch reads it when it is imported
    set_torch_threads(device.threads)


def settled_device(machine: MachineSettings) -> Device:
    """Return the first device that a run would take, with this process settled on it.

    CUDA must not have been used in this process before.

    Raises:
        UsageError: the device or the GPUs are malformed, or name an unknown GPU.
        DeviceError: a GPU was asked for and there is none.
    """
    return settled_devices(replace(machine, max_workers=1))[0]


def settled_devices(machine: MachineSettings) -> tuple[Device, ...]:
    """Return the devices of a run, with this process settled on the first of them.

    CUDA must not have been used in this process before.

    Raises:
        UsageError: the device or the GPUs are malformed, or name an unknown GPU.
        DeviceError: a GPU was asked for and there is none.
    """
    devices = choose_devices(machine, visible_gpus())
    settle_on_device(devices[0], machine.threads or machine.tokenizer_threads)
    return devices


class ChildProcess:
    """A spawned process that is settled on a device, and this end of the pipe to it.

    It ignores the signals that interrupt a run, which are this process's business, and it dies
    with this process, however that ends.
    """

    def __init__(
        self,
        name: str,
        device: Device,
        tokenizer_threads: int,
        target: Callable[..., None],
        *arguments: object,
    ) -> None:
        """Start the process; it calls ``target(connection, *arguments)`` and ends.

        The module of ``target`` must not import torch at its top: it is imported before the
        process is settled on its device.
        """
        context = multiprocessing.get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.process = context.Process(
            target=_run_child,
            args=(child_connection, os.getpid(), device, tokenizer_threads, target, arguments),
            name=name,
            daemon=True,
        )
        # Ctrl-C goes to all processes of a terminal, also to one that does not ignore it yet.
        with blocked_signals():
            resource_tracker.ensure_running()  # starting it unblocks the signals
        with blocked_signals():
            self.process.start()
        child_connection.close()

    def send(self, message: object) -> None:
        """Send a message. If the process has just died, nothing happens."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def receive(self) -> Any | None:
        """Return the next message; None if the process is dead."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            return None

    def exit_reason(self) -> str:
        """Return how the process ended: ``signal N`` or ``exit code N``."""
        self.process.join(STOP_SECONDS)  # its pipe may close before it is gone
        code = self.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End the process at once and free what belongs to it."""
        self.process.kill()
        self.process.join(STOP_SECONDS)
        if self.process.exitcode is not None:  # otherwise it hangs in a driver: the kernel keeps it
            self.process.close()
        self.connection.close()


def _run_child(
    connection: Connection,
    parent: int,
    device: Device,
    tokenizer_threads: int,
    target: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # the parent died before this process could ask to die with it
    settle_on_device(device, tokenizer_threads)
    target(connection, *arguments)


# Messages to a worker process. Pool events are the messages in the other direction.


@dataclass(frozen=True)
class OpenStage:
    """Load what a stage needs, and halve its batches ``halvings`` times."""

    stage: Stage
    halvings: int


@dataclass(frozen=True)
class RunTask:
    """Carry out a task of the opened stage."""

    task: Task


@dataclass(frozen=True)
class StopWorker:
    """End, when all earlier messages have been dealt with."""


class WorkerEnd(Protocol):
    """The worker's end of what carries messages and events; a pipe has these methods."""

    def poll(self) -> bool:
        """Return whether a message is there."""
        ...

    def recv(self) -> Any:
        """Return the next message; wait for it."""
        ...

    def send(self, event: PoolEvent) -> None:
        """Send an event to the pool."""
        ...


def serve_tasks(connection: WorkerEnd, worker: int, device: Device) -> None:
    """Do what the messages of a pool ask for until it says stop or dies; runs in the worker."""
    received: deque[OpenStage | RunTask | StopWorker] = deque()

    def next_task() -> Task | None:
        while connection.poll():
            received.append(connection.recv())
        return next((message.task for message in received if isinstance(message, RunTask)), None)

    runner = TaskRunner(worker, device, connection.send, next_task)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        while True:
            match received.popleft() if received else connection.recv():
                case OpenStage(stage, halvings):
                    runner.open(stage, halvings)
                case RunTask(task):
                    runner.run(task)
                case _:
                    return


@dataclass
class PooledProcess:
    """A worker process of a pool.

    ``unfinished`` counts the openings and tasks that it was sent and has not reported on;
    ``silence`` is for :class:`WorkerSilent`.
    """

    child: ChildProcess
    unfinished: int = 0
    silence: float = 0.0


class ProcessPool:
    """A worker pool of spawned processes, one for each device. They live for a whole run."""

    def __init__(self, devices: Sequence[Device], tokenizer_threads: int) -> None:
        """``tokenizer_threads`` are those of one worker."""
        self._unused = list(enumerate(devices))[::-1]
        self._tokenizer_threads = tokenizer_threads
        self._workers: dict[int, Device] = {}
        self._processes: dict[int, PooledProcess] = {}
        self._last_wait = time.monotonic()

    @property
    def workers(self) -> Mapping[int, Device]:
        """The workers by their number, which is the position of their device."""
        return self._workers

    def start(self) -> int | None:
        """Start a worker on the next device; None if there is no other one."""
        if not self._unused:
            return None
        worker, device = self._unused.pop()
        self._workers[worker] = device
        self._start_process(worker)
        return worker

    def _start_process(self, worker: int) -> None:
        device, name = self._workers[worker], f"virnucpro-worker-{worker}"
        self._processes[worker] = PooledProcess(
            ChildProcess(name, device, self._tokenizer_threads, serve_tasks, worker, device)
        )

    def open(self, worker: int, stage: Stage, halvings: int) -> None:
        """Have a worker open ``stage``; its process is replaced if it is still at work."""
        if self._processes[worker].unfinished:
            self.restart(worker)
        self._send(worker, OpenStage(stage, halvings))

    def submit(self, worker: int, task: Task) -> None:
        """Have a worker carry out ``task``, after those that it has."""
        self._send(worker, RunTask(task))

    def _send(self, worker: int, message: OpenStage | RunTask) -> None:
        process = self._processes[worker]
        process.unfinished += 1
        process.silence = 0.0
        process.child.send(message)

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Handle one event of each worker; :class:`WorkerSilent` if it has no other one."""
        processes = list(self._processes.items())
        sentinels = {worker: process.child.process.sentinel for worker, process in processes}
        pipes = [process.child.connection for _, process in processes]
        awake = set(connections.wait([*pipes, *sentinels.values()], seconds))
        now = time.monotonic()
        # Time in which this process was suspended or busy elsewhere is nobody's silence.
        passed, self._last_wait = min(now - self._last_wait, 2 * seconds), now
        for worker, process in processes:
            # An earlier event may have had this process replaced or removed.
            if self._processes.get(worker) is not process:
                continue
            if process.child.connection in awake:  # what a dead process sent last comes first
                process.silence = 0.0
                event: PoolEvent | None = process.child.receive()
                if event is None:
                    event = WorkerExited(worker, process.child.exit_reason())
                elif not isinstance(event, ProgressMade):
                    process.unfinished -= 1
                handle(event)
            elif sentinels[worker] in awake:
                handle(WorkerExited(worker, process.child.exit_reason()))
            else:
                process.silence += passed
                handle(WorkerSilent(worker, process.silence))

    def restart(self, worker: int) -> None:
        """Kill a worker's process and start another one."""
        self._processes[worker].child.kill()
        self._start_process(worker)

    def remove(self, worker: int) -> None:
        """Kill a worker's process."""
        self._processes.pop(worker).child.kill()
        del self._workers[worker]

    def close(self) -> None:
        """Let idle workers end by themselves; kill the others: what they write is atomic."""
        idle = [process.child for process in self._processes.values() if not process.unfinished]
        for child in idle:
            child.send(StopWorker())
        deadline = time.monotonic() + STOP_SECONDS
        for child in idle:
            child.process.join(max(0.0, deadline - time.monotonic()))
        for worker in list(self._workers):
            self.remove(worker)
