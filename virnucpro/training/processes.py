"""A training on several devices: one spawned process for each, watched by the parent.

The processes meet at a store that the parent holds on the loopback interface, at a port that the
system chose, so that no port has to be free or reachable.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, VirNucProError
from virnucpro.executors.processes import ChildProcess, settle_on_device
from virnucpro.executors.signals import Interruption

if TYPE_CHECKING:
    from virnucpro.training.group import TrainingGroup
    from virnucpro.training.loop import Trainable
    from virnucpro.training.progress import ReportEvent

HOST = "127.0.0.1"
END_SECONDS = 10.0  # for the others to end, after one process has failed
RESUME = "the same command goes on from the last savepoint"
LOOPBACK_INTERFACES = {"linux": "lo", "darwin": "lo0"}
STOP = "stop"  # the only message that a process gets after its plan


@dataclass(frozen=True)
class TrainingEnd:
    """The last message of a training process: it finished, was stopped, or met an error.

    ``error`` is written for the user; ``trace`` is the traceback of any other error.
    """

    finished: bool
    error: VirNucProError | None = None
    trace: str = ""

    @property
    def failed(self) -> bool:
        """Whether the process met an error."""
        return self.error is not None or bool(self.trace)


def train_on(
    plan: Trainable, devices: Sequence[Device], report: ReportEvent, interruption: Interruption
) -> bool:
    """Train on one process for each device; a single one is this process itself.

    Returns whether the training is finished; False if a signal stopped it.

    Raises:
        DeviceError: a process died, or its device has too little memory.
        VirNucProError: the error that a process met.
    """
    if len(devices) > 1:
        return TrainingProcesses(plan, devices).run(report, interruption)
    settle_on_device(devices[0], tokenizer_threads=1)
    from virnucpro.training.loop import train_network

    group = _group(0, 1, devices[0])
    return train_network(plan, group, report, lambda: interruption.number is not None)


def _group(rank: int, world: int, device: Device) -> TrainingGroup:
    import torch

    from virnucpro.training.group import TrainingGroup

    # A process sees only its own GPU.
    return TrainingGroup(rank, world, torch.device("cpu" if device.kind == "cpu" else "cuda:0"))


class TrainingProcesses:
    """The processes of one training, as the parent sees them."""

    def __init__(self, plan: Trainable, devices: Sequence[Device]) -> None:
        """Start the processes and send them the plan."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # The parent only holds the store; it does not belong to the process group.
        self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._devices = devices
        self._children = [
            ChildProcess(
                f"virnucpro-training-{rank}",
                device,
                1,
                run_training_process,
                rank,
                len(devices),
                device,
                self._store.port,
            )
            for rank, device in enumerate(devices)
        ]
        for child in self._children:
            child.send(plan)

    def run(self, report: ReportEvent, interruption: Interruption) -> bool:
        """Pass on what the first process reports until all have ended.

        Returns whether all of them finished the training.

        Raises:
            VirNucProError: a process failed.
        """
        running = {rank: child.connection for rank, child in enumerate(self._children)}
        ends: dict[int, TrainingEnd] = {}
        stop_sent, deadline = False, float("inf")
        try:
            while running and time.monotonic() < deadline:
                if interruption.number is not None and not stop_sent:
                    stop_sent = True
                    for child in self._children:
                        child.send(STOP)
                readable = connections.wait(list(running.values()), timeout=0.5)
                for rank in [rank for rank, pipe in running.items() if pipe in readable]:
                    message = self._children[rank].receive()
                    if message is None:
                        message = self._death(rank)
                    if not isinstance(message, TrainingEnd):
                        report(message)
                        continue
                    ends[rank] = message
                    del running[rank]
                    if message.failed:  # the others notice by their broken connections
                        deadline = min(deadline, time.monotonic() + END_SECONDS)
            # The error that says most: a broken connection is mostly a consequence of another
            # process' failure, and comes as a traceback.
            for _, end in sorted(ends.items()):
                if end.error is not None:
                    raise end.error
            for rank, end in sorted(ends.items()):
                if end.failed:
                    raise VirNucProError(f"training process {rank} failed; {RESUME}\n{end.trace}")
        finally:
            for child in self._children:
                child.process.join(0.0 if running else END_SECONDS)
                child.kill()
        return all(end.finished for end in ends.values())

    def _death(self, rank: int) -> TrainingEnd:
        """Describe a process that died without a last message."""
        reason = self._children[rank].exit_reason()
        hint = ": out of memory?" if reason == "signal 9" else ""
        name = self._devices[rank].name
        text = f"training process {rank} on {name} ended by {reason}{hint}; {RESUME}"
        return TrainingEnd(False, DeviceError(text))


def run_training_process(
    connection: Connection, rank: int, world: int, device: Device, port: int
) -> None:
    """Receive a plan, train and send a :class:`TrainingEnd`; runs in a training process."""
    try:
        end = _train_in_group(connection, rank, world, device, port)
    except VirNucProError as error:
        end = TrainingEnd(False, error)
    except Exception:  # noqa: BLE001 - the edge of a process: the parent reports it
        end = TrainingEnd(False, None, traceback.format_exc())
    connection.send(end)


def _train_in_group(
    connection: Connection, rank: int, world: int, device: Device, port: int
) -> TrainingEnd:
    # torch is imported only now that this process is settled on its device.
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    plan: Trainable = connection.recv()
    from virnucpro.executors.worker import set_torch_threads
    from virnucpro.training.loop import train_network

    set_torch_threads(device.threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACES.get(sys.platform, "lo"))
    group = _group(rank, world, device)
    store = TCPStore(HOST, port, is_master=False)
    backend = "nccl" if device.kind == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        return TrainingEnd(train_network(plan, group, connection.send, connection.poll))
    finally:
        dist.destroy_process_group()
