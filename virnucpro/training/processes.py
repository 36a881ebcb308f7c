"""A training on several devices: one spawned process for each, watched by the parent.

The processes meet at a store that the parent holds on the loopback interface, at a port that the
system chose, so that no port has to be free or reachable.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, VirNucProError
from virnucpro.workers.processes import ChildProcess, settle_on_device

if TYPE_CHECKING:
    from virnucpro.events import Show
    from virnucpro.training.loop import MakeLoop

HOST = "127.0.0.1"
RESUME = "the same command goes on from the last savepoint"
LOOPBACK_INTERFACES = {"linux": "lo", "darwin": "lo0"}
END = "end"  # the last message of a process that has trained to the end


def train_on(make_loop: MakeLoop, devices: Sequence[Device], show: Show) -> None:
    """Train to the end on one process per device, a single one being this.

    What ends it before, such as a signal, ends all processes at once.
    """
    if len(devices) == 1:
        settle_on_device(devices[0], tokenizer_threads=1)
        return _train(make_loop, devices[0], show)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # This process only holds the store; it does not belong to the process group.
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    children: list[ChildProcess] = []
    try:
        for rank, device in enumerate(devices):
            child = ChildProcess(
                f"virnucpro-training-{rank}",
                device,
                1,
                run_training_process,
                rank,
                len(devices),
                device,
                store.port,
            )
            children.append(child)
        for child in children:
            child.send(make_loop)
        running = list(children)
        while running:
            ready = connections.wait([child.connection for child in running])
            heard = [child for child in running if child.connection in ready]
            messages: list[Any] = [child.receive() for child in heard]
            if None in messages:  # it died: that others lose their connection follows from it
                dead = heard[messages.index(None)]
                reason = dead.exit_reason()
                hint = ": out of memory?" if reason == "signal 9" else ""
                place_name = devices[children.index(dead)].name
                raise DeviceError(f"training on {place_name} ended by {reason}{hint}; {RESUME}")
            for child, message in zip(heard, messages, strict=True):
                if isinstance(message, VirNucProError):
                    raise message
                if message == END:
                    running.remove(child)
                else:
                    show(message)
    finally:
        for child in children:
            child.kill()


def run_training_process(
    connection: Connection, rank: int, world: int, device: Device, port: int
) -> None:
    """Receive what is trained, train, and send ``END`` or an error; in a training process."""
    # torch is imported only now that this process is settled on its device.
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    end: str | VirNucProError = END
    try:
        make_loop: MakeLoop = connection.recv()
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACES.get(sys.platform, "lo"))
        store = TCPStore(HOST, port, is_master=False)
        backend = "nccl" if device.kind == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
        _train(make_loop, device, connection.send)
    except VirNucProError as error:
        end = error
    except Exception:  # noqa: BLE001 - the edge of a process: the parent reports it
        text = traceback.format_exc()
        end = VirNucProError(f"training process {rank} failed; {RESUME}\n{text}")
    # Before the group ends, whose other processes then fail, too.
    connection.send(end)
    if dist.is_initialized():
        dist.destroy_process_group()


def _train(make_loop: MakeLoop, device: Device, show: Show) -> None:
    """Train in this process, which is settled on its device and sees no other GPU."""
    import torch

    from virnucpro.compute.threads import call_mkl_functions_once

    call_mkl_functions_once()
    try:
        make_loop(torch.device("cpu" if device.kind == "cpu" else "cuda:0")).train(show)
    except torch.OutOfMemoryError as error:
        raise DeviceError("out of GPU memory: use a smaller --batch-size") from error
