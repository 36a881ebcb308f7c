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
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection as connections
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from virnucpro.contracts import Device, Task
from virnucpro.devices import choose_devices
from virnucpro.events import WorkerDied
from virnucpro.settings import MachineSettings
from virnucpro.workers.pool import HandleEvent, WarmUp, Work, WorkerPool
from virnucpro.workers.signals import SIGNALS, blocked_signals
from virnucpro.workers.worker import TaskRunner, set_torch_threads

START = multiprocessing.get_context("spawn")  # a fork must not follow the use of CUDA or threads
STOP_SECONDS = 5.0  # until a process that was killed is gone
PR_SET_PDEATHSIG = 1  # linux/prctl.h: the signal that a process gets when its parent dies


def settle_on_device(device: Device, tokenizer_threads: int) -> None:
    """Give this process its device and its share of the host's cores, before CUDA is touched.

    The GPU becomes the only visible one, chosen by UUID because torch numbers GPUs in another
    order than the driver. Expandable segments keep free memory from falling into pieces. On MIG
    devices torch fails with them (pytorch issue 112377).
    """
    if device.kind == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # for what a library looks up by number
        if not (device.uuid.startswith("MIG-") or "PYTORCH_ALLOC_CONF" in os.environ):
            os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    os.environ["RAYON_NUM_THREADS"] = str(tokenizer_threads)  # the tokenizers library reads it
    os.environ["OMP_NUM_THREADS"] = str(device.threads)  # torch reads it when it is imported
    set_torch_threads(device.threads)


def settled_device(machine: MachineSettings) -> Device:
    """Return the first device that a run would take, with this process settled on it.

    CUDA must not have been used in this process before. Raises as ``choose_devices``.
    """
    device = choose_devices(replace(machine, max_workers=1))[0]
    settle_on_device(device, machine.threads or machine.tokenizer_threads)
    return device


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
        self.connection, child_connection = START.Pipe()
        self.process = START.Process(
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
        if self.process.exitcode is not None:
            self.process.close()
        else:  # it hangs in a driver; at its exit, this process would wait for it without end
            self.process.join = lambda timeout=None: None  # type: ignore[method-assign]
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
        # A process is killed at its end, and named semaphores, such as that of a progress bar which
        # torch's compiler makes, would be left and told of. Those of this method have no names.
        multiprocessing.set_start_method("fork", force=True)
    if os.getppid() != parent:
        return  # the parent died before this process could ask to die with it
    settle_on_device(device, tokenizer_threads)
    target(connection, *arguments)


def serve_tasks(connection: Connection, worker: int, device: Device) -> None:
    """Do the work that a pool sends, until the pool is gone; runs in the worker."""
    received: deque[Work] = deque()

    def next_task() -> Task | None:
        while connection.poll():
            received.append(connection.recv())
        return next((work for work in received if isinstance(work, Task)), None)

    runner = TaskRunner(worker, device, connection.send, next_task)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        while True:
            runner.take(received.popleft() if received else connection.recv())


class ProcessPool(WorkerPool):
    """A worker pool of spawned processes, one for each device. They live for a whole run."""

    def __init__(self, devices: Sequence[Device], tokenizer_threads: int) -> None:
        """``tokenizer_threads`` are those of one worker."""
        super().__init__(devices)
        self._tokenizer_threads = tokenizer_threads
        self._children: dict[int, ChildProcess] = {}

    def warm_up(self, work: WarmUp, most: int) -> None:
        """Start the processes of as many unused devices now."""
        for worker, device in self._unused[: -most - 1 : -1]:
            if worker not in self._children:
                self._children[worker] = self._child(worker, device)
                self._children[worker].send(work)

    def close(self) -> None:
        super().close()
        for worker in list(self._children):  # those that were warmed up and never needed
            self._end(worker)

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Handle one event of each worker that has one."""
        children = [(worker, self._children[worker]) for worker in self.workers]
        sentinels = {worker: child.process.sentinel for worker, child in children}
        pipes = [child.connection for _, child in children]
        awake = set(connections.wait([*pipes, *sentinels.values()], seconds))
        for worker, child in children:
            # An earlier event may have had this process replaced or removed.
            if self._children.get(worker) is not child:
                continue
            # What a dead process sent last comes first.
            event = child.receive() if child.connection in awake else None
            if event is not None:
                handle(event)
            elif child.connection in awake or sentinels[worker] in awake:
                handle(WorkerDied(worker, self.workers[worker], child.exit_reason()))

    def _start(self, worker: int) -> None:
        if worker not in self._children:
            self._children[worker] = self._child(worker, self.workers[worker])

    def _child(self, worker: int, device: Device) -> ChildProcess:
        name, threads = f"virnucpro-worker-{worker}", self._tokenizer_threads
        return ChildProcess(name, device, threads, serve_tasks, worker, device)

    def submit(self, worker: int, work: Work) -> None:
        self._children[worker].send(work)

    def _end(self, worker: int) -> None:
        if child := self._children.pop(worker, None):  # none where its start has failed
            child.kill()
