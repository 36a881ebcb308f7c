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
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, VirNucProError
from virnucpro.executors.processes import ChildProcess, settle_on_device
from virnucpro.executors.signals import Interruption

if TYPE_CHECKING:
    from virnucpro.events import Emit
    from virnucpro.training.loop import MakeLoop

HOST = "127.0.0.1"
END_SECONDS = 10.0  # for the others to end, after one process has failed
RESUME = "the same command goes on from the last savepoint"
LOOPBACK_INTERFACES = {"linux": "lo", "darwin": "lo0"}
STOP = "stop"  # the only message that a process gets after what it trains
TrainingEnd = bool | VirNucProError
"""The last message of a process: whether it finished, or its error."""


def train_on(
    make_loop: MakeLoop, devices: Sequence[Device], report: Emit, interruption: Interruption
) -> bool:
    """Train on one process per device, a single one being this; return whether it is finished."""
    if len(devices) == 1:
        settle_on_device(devices[0], tokenizer_threads=1)
        from virnucpro.training.loop import train_network

        alone = (make_loop, 0, 1, devices[0])
        return train_network(*alone, report, lambda: interruption.number is not None)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # This process only holds the store; it does not belong to the process group.
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    children = []
    try:
        for rank, device in enumerate(devices):
            place = (rank, len(devices), device, store.port)
            name = f"virnucpro-training-{rank}"
            children.append(ChildProcess(name, device, 1, run_training_process, *place))
        for child in children:
            child.send(make_loop)
        ends = _ends(children, devices, report, interruption)
    finally:
        for child in children:
            child.kill()
    errors = [end for end in ends.values() if isinstance(end, VirNucProError)]
    if errors:
        # A broken connection, which has no class of its own, mostly follows from another error.
        raise min(errors, key=lambda error: type(error) is VirNucProError)
    return all(ends.values())


def _ends(
    children: Sequence[ChildProcess],
    devices: Sequence[Device],
    report: Emit,
    interruption: Interruption,
) -> dict[int, TrainingEnd]:
    """Pass on what the first process reports until all have ended; return how, in their order."""
    running = {rank: child.connection for rank, child in enumerate(children)}
    ends: dict[int, TrainingEnd] = {}
    stop_sent, deadline = False, float("inf")
    while running and time.monotonic() < deadline:
        if interruption.number is not None and not stop_sent:
            stop_sent = True
            for child in children:
                child.send(STOP)
        readable = connections.wait(list(running.values()), timeout=0.5)
        for rank in [rank for rank, pipe in running.items() if pipe in readable]:
            message = children[rank].receive()
            if message is None:  # it died without a last message
                reason = children[rank].exit_reason()
                hint = ": out of memory?" if reason == "signal 9" else ""
                place = f"training process {rank} on {devices[rank].name}"
                message = DeviceError(f"{place} ended by {reason}{hint}; {RESUME}")
            if not isinstance(message, TrainingEnd):
                report(message)
                continue
            ends[rank] = message
            del running[rank]
            if not isinstance(message, bool):  # the others notice by their broken connections
                deadline = min(deadline, time.monotonic() + END_SECONDS)
    return dict(sorted(ends.items()))


def run_training_process(
    connection: Connection, rank: int, world: int, device: Device, port: int
) -> None:
    """Receive what is trained, train and send a :data:`TrainingEnd`; in a training process."""
    # torch is imported only now that this process is settled on its device.
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    from virnucpro.training.loop import train_network

    end: TrainingEnd
    try:
        make_loop: MakeLoop = connection.recv()
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACES.get(sys.platform, "lo"))
        store = TCPStore(HOST, port, is_master=False)
        backend = "nccl" if device.kind == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
        end = train_network(make_loop, rank, world, device, connection.send, connection.poll)
    except VirNucProError as error:
        end = error
    except Exception:  # noqa: BLE001 - the edge of a process: the parent reports it
        text = traceback.format_exc()
        end = VirNucProError(f"training process {rank} failed; {RESUME}\n{text}")
    # Before the group ends, whose other processes then fail, too.
    connection.send(end)
    if dist.is_initialized():
        dist.destroy_process_group()
