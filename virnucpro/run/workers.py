"""The devices of a run and what computes on them: this machine, or the nodes of a Ray cluster."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.contracts import Device
from virnucpro.devices import choose_devices, host_threads, visible_gpus
from virnucpro.errors import UsageError
from virnucpro.events import Emit, Notice
from virnucpro.executors.executor import CPU_LIMITS, Executor, open_executor
from virnucpro.executors.scheduler import TimeLimits
from virnucpro.executors.signals import Interruption
from virnucpro.settings import NO_CLUSTER, MachineSettings
from virnucpro.store.disk import Disk

if TYPE_CHECKING:
    from virnucpro.executors.ray_pool import RayPool


@dataclass(frozen=True)
class Workers:
    """What carries out the tasks of runs.

    Attributes:
        devices: those that are there at the start.
        executor: works on them.
        pool: the pool of the executor, on a cluster.
    """

    devices: Sequence[Device]
    executor: Executor
    pool: RayPool | None = None

    def require(self, files: Mapping[Path, int]) -> None:
        """Do without the nodes of a cluster that lack a model file, or have it in another size.

        Raises:
            UsageError: no node has all files.
        """
        if self.pool is not None:
            self.pool.require(files)
            _refuse_without_workers(self.pool)


@contextmanager
def opened_workers(
    machine: MachineSettings,
    probe: Path,
    emit: Emit,
    interruption: Interruption | None,
    disk: Disk,
) -> Iterator[Workers]:
    """Have workers for the duration of the block: on this machine, or on a cluster.

    ``probe`` is a file where they write, which each node of a cluster must see under the same path.
    One that a killed process left is removed.

    Raises:
        UsageError: an option is wrong, or no node of the cluster can be used (exit 64).
        DeviceError: a GPU was asked for and there is none (exit 4).
    """
    if probe.exists():
        disk.remove(probe)
    if machine.cluster != NO_CLUSTER:
        with _cluster_workers(machine, probe, emit, interruption, disk) as workers:
            yield workers
        return
    devices = choose_devices(machine, visible_gpus())
    executor = open_executor(devices, machine, interruption)
    try:
        yield Workers(devices, executor)
    finally:
        executor.close()


@contextmanager
def _cluster_workers(
    machine: MachineSettings,
    path: Path,
    emit: Emit,
    interruption: Interruption | None,
    disk: Disk,
) -> Iterator[Workers]:
    # Only here: without --cluster, nothing of Ray is imported.
    from virnucpro.executors.cluster import connected, place_finder
    from virnucpro.executors.ray_pool import RayPool

    emit(Notice("info", f"connecting to the Ray cluster {machine.cluster}"))
    with ExitStack() as stack:
        stack.enter_context(connected(machine.cluster))
        # Only nodes that share this folder see a file of this size there.
        disk.save(path, bytes(size := 1 + secrets.randbelow(1 << 16)))
        stack.callback(disk.remove, path)
        places, threads = place_finder(machine), machine.tokenizer_threads
        pool = RayPool(places, threads, {path: size}, emit)
        stack.callback(pool.close)
        pool.gather()
        _refuse_without_workers(pool)
        devices = tuple(replace(device, index=n) for n, device in enumerate(pool.devices))
        hosts = Counter(device.host for device in devices)
        named = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
        emit(Notice("info", f"workers: {named}"))
        limits = CPU_LIMITS if devices[0].kind == "cpu" else TimeLimits()
        executor = Executor(pool, machine.threads or host_threads(), interruption, limits)
        stack.callback(executor.close)
        yield Workers(devices, executor, pool)


def _refuse_without_workers(pool: RayPool) -> None:
    if pool.devices:
        return
    reasons = "; ".join(pool.refusals.values()) or "no node has a free GPU or processor"
    raise UsageError(
        f"no node of the cluster can be used: {reasons}. All nodes need the models and the output "
        f"directory under the same paths, and the same versions"
    )
