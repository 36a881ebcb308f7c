"""The workers of a run: on the devices of this machine, or on the nodes of a Ray cluster."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.contracts import Device
from virnucpro.devices import choose_devices, host_threads
from virnucpro.events import Notice, Show
from virnucpro.settings import NO_CLUSTER, SHIPPED_MODELS, MachineSettings
from virnucpro.stages.splitting import LEAST_FRAMES
from virnucpro.store.disk import Disk
from virnucpro.workers.local_pool import LocalPool
from virnucpro.workers.processes import ProcessPool
from virnucpro.workers.scheduler import Workers
from virnucpro.workers.signals import Interruption
from virnucpro.workers.worker import set_torch_threads

if TYPE_CHECKING:
    from virnucpro.run.request import PredictionRequest

# Fewer are not compiled with ``--compile auto``: ``compile_from_flops`` of ESM-2 3B.
LEAST_COMPILED_FRAMES = 20_000


def warm_up_workers(workers: Workers, requests: Sequence[PredictionRequest]) -> None:
    """Have workers begin for the runs that are not finished, while models and inputs are read.

    The bytes of the inputs say about how many frames there will be: some 500 for each worker, and
    whether they are enough to compile the blocks.
    """
    from virnucpro.stages.embedding import warm_up  # it imports torch

    settings = requests[0].settings
    machine, analysis = settings.machine, settings.analysis.resolved()
    unfinished = [r for r in requests if r.force or not r.layout.run_record.exists()]
    files = [path for r in unfinished for path in r.input_files.paths if path.exists()]
    assert analysis.chunk_length is not None
    frames = sum(path.stat().st_size for path in files) // analysis.chunk_length
    compiles = machine.compile == "always" or frames >= LEAST_COMPILED_FRAMES
    if machine.compile == "never" or analysis.model_type in SHIPPED_MODELS:
        compiles = False
    if unfinished:
        with workers.interruption.held():
            work = partial(warm_up, compile=compiles)
            workers.pool.warm_up(work, 1 + frames // LEAST_FRAMES)


def local_workers(
    devices: Sequence[Device], machine: MachineSettings, interruption: Interruption | None
) -> Workers:
    """Return the workers on the chosen devices of this machine: a process for each device.

    Without a number of workers, one CPU computes in this process.
    """
    if devices[0].kind == "cpu" and machine.cpu_workers is None:
        set_torch_threads(devices[0].threads)
        return Workers(LocalPool(devices))
    set_torch_threads(machine.threads or sum(device.threads for device in devices))
    pool = ProcessPool(devices, machine.tokenizer_threads)
    return Workers(pool, interruption or Interruption())


@contextmanager
def opened_workers(
    machine: MachineSettings, probe: Path, show: Show, interruption: Interruption | None, disk: Disk
) -> Iterator[Workers]:
    """Have workers for the duration of the block: on this machine, or on a cluster.

    ``probe`` is a file where workers write, which each node of a cluster must see under the same
    path. One that a killed process left is removed.
    """
    disk.remove(probe)
    with ExitStack() as stack:
        if machine.cluster == NO_CLUSTER:
            workers = local_workers(choose_devices(machine), machine, interruption)
        else:
            # Only here: without --cluster, nothing of Ray is imported.
            from virnucpro.workers.ray_pool import RayPool, connected, place_finder

            text = "waiting for its first free GPU or processor ('ray status' shows them)"
            show(Notice("info", f"connecting to the Ray cluster {machine.cluster}, and {text}"))
            stack.enter_context(connected(machine.cluster))
            # Only nodes that share this folder see a file of this size there.
            stack.callback(disk.remove, probe)
            disk.save(probe, bytes(size := 1 + secrets.randbelow(1 << 16)))
            finder = place_finder(machine)
            pool = RayPool(finder, machine.tokenizer_threads, {probe: size}, show)
            stack.callback(pool.close)
            pool.gather()
            hosts = Counter(device.host for device in pool.devices)
            named = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
            show(Notice("info", f"workers: {named}"))
            set_torch_threads(machine.threads or host_threads())
            workers = Workers(pool, interruption or Interruption())
        stack.callback(workers.close)
        yield workers
