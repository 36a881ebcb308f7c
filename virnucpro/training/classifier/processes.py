"""A training on several devices: one spawned process each, the parent looks after them.

The processes meet at a store that the parent holds on the loopback interface, at a port that the
system chose: nothing has to be free or reachable.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection as connections
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, VirNucProError
from virnucpro.executors.signals import Interruption, blocked
from virnucpro.executors.worker import prepare_process, use_threads

if TYPE_CHECKING:
    from virnucpro.training.classifier.progress import TrainingEvent
    from virnucpro.training.classifier.team import Team
    from virnucpro.training.classifier.trainer import Plan, ReportProgress

HOST = "127.0.0.1"
END_SECONDS = 10.0  # for the others to end, when one process has failed
RESUME = "the same command with --resume goes on after the last finished epoch"
LOOPBACK = {"linux": "lo", "darwin": "lo0"}


@dataclass(frozen=True)
class Ended:
    """A process is through: ``finished`` or stopped, or with an error."""

    finished: bool
    error: VirNucProError | None = None
    trace: str = ""

    @property
    def well(self) -> bool:
        """Whether it ended without an error."""
        return self.error is None and not self.trace


def train_on(
    plan: Plan, devices: Sequence[Device], report: ReportProgress, interruption: Interruption
) -> bool:
    """Train on one process a device; a single one is this process itself.

    Returns:
        Whether training is over, or was stopped by a signal.

    Raises:
        DeviceError: a process died, or its device has too little memory.
        VirNucProError: what a process met.
    """
    if len(devices) > 1:
        return _Processes(plan, devices).run(report, interruption)
    from virnucpro.training.classifier.trainer import train

    device = devices[0]
    use_threads(device)
    if device.kind == "cuda":  # torch numbers GPUs in another order than the driver
        os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid
    return train(plan, _team(0, 1, device), report, lambda: interruption.number is not None)


def _team(rank: int, world: int, device: Device) -> Team:
    import torch

    from virnucpro.training.classifier.team import Team

    # A process sees only its own GPU.
    return Team(rank, world, torch.device("cpu" if device.kind == "cpu" else "cuda:0"))


class _Processes:
    """The processes as the parent sees them."""

    def __init__(self, plan: Plan, devices: Sequence[Device]) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # The parent only keeps the store; it is no member of the group.
        self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._members = [
            _start(rank, len(devices), device, self._store.port)
            for rank, device in enumerate(devices)
        ]
        self._devices = devices
        self._ends: dict[int, Ended] = {}
        for _, pipe in self._members:
            pipe.send(plan)

    def run(self, report: ReportProgress, interruption: Interruption) -> bool:
        """Pass on what the first process reports until all have ended."""
        pipes = {pipe: rank for rank, (_, pipe) in enumerate(self._members)}
        told, deadline = False, float("inf")
        try:
            while pipes and time.monotonic() < deadline:
                if interruption.number is not None and not told:
                    told = True
                    for _, pipe in self._members:
                        with suppress(BrokenPipeError):
                            pipe.send("stop")
                for pipe in [p for p in pipes if p in connections.wait(list(pipes), timeout=0.5)]:
                    message = self._received(pipe, pipes[pipe])
                    if not isinstance(message, Ended):
                        report(message)
                        continue
                    self._ends[pipes.pop(pipe)] = message
                    if not message.well:  # the others notice by their broken connections
                        deadline = min(deadline, time.monotonic() + END_SECONDS)
            self._raise_failure()
        finally:
            for process, pipe in self._members:
                process.join(0.0 if pipes else END_SECONDS)
                process.kill()
                process.join()
                pipe.close()
        return all(end.finished for end in self._ends.values())

    def _received(self, pipe: Connection, rank: int) -> Ended | TrainingEvent:
        """The next message of a process; its end, where it died without one."""
        try:
            message: Ended | TrainingEvent = pipe.recv()
            return message
        except (EOFError, OSError):
            process = self._members[rank][0]
            process.join(END_SECONDS)
            code = process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            hint = ": out of memory?" if code == -signal.SIGKILL else ""
            where = self._devices[rank].name
            error = DeviceError(
                f"training process {rank} on {where} ended by {how}{hint}; {RESUME}"
            )
            return Ended(False, error)

    def _raise_failure(self) -> None:
        """The failure that says most: a broken connection is mostly that of somebody else.

        Raises:
            VirNucProError: a process failed.
        """
        failed = [(rank, end) for rank, end in sorted(self._ends.items()) if not end.well]
        for _, end in failed:
            if end.error is not None:
                raise end.error
        for rank, end in failed:
            raise VirNucProError(f"training process {rank} failed; {RESUME}\n{end.trace}")


def _start(rank: int, world: int, device: Device, port: int) -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_main,
        args=(theirs, os.getpid(), rank, world, device, port),
        name=f"virnucpro-training-{rank}",
        daemon=True,
    )
    # A Ctrl-C goes to all processes of a terminal, also to one that cannot ignore it yet.
    with blocked():
        resource_tracker.ensure_running()  # starting it lifts the block
    with blocked():
        process.start()
    theirs.close()
    return process, ours


def _main(pipe: Connection, parent: int, rank: int, world: int, device: Device, port: int) -> None:
    """Life of a training process. torch is imported only after it is settled on its device."""
    prepare_process(device, 1)
    if os.getppid() != parent:
        return  # the parent died before this process could ask to die with it
    try:
        ended = _trained(pipe, rank, world, device, port)
    except VirNucProError as error:
        ended = Ended(False, error)
    except Exception:  # noqa: BLE001 - the edge of a process: the parent reports it
        ended = Ended(False, None, traceback.format_exc())
    pipe.send(ended)


def _trained(pipe: Connection, rank: int, world: int, device: Device, port: int) -> Ended:
    import sys

    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    plan: Plan = pipe.recv()
    from virnucpro.training.classifier.trainer import train

    use_threads(device)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK.get(sys.platform, "lo"))
    team = _team(rank, world, device)
    store = TCPStore(HOST, port, is_master=False)
    backend = "nccl" if device.kind == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        return Ended(train(plan, team, pipe.send, pipe.poll))
    finally:
        dist.destroy_process_group()
