"""The worker pools that the contract tests and the fault tests run over.

A new pool is one more line in ``POOLS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from virnucpro.contracts import Device
from virnucpro.workers.local_pool import LocalPool
from virnucpro.workers.pool import WorkerPool
from virnucpro.workers.processes import ProcessPool


def as_gpus(devices: Sequence[Device]) -> list[Device]:
    """The same devices as GPUs: their workers write one task while they compute the next one."""
    return [replace(device, kind="cuda", uuid=f"GPU-{n}") for n, device in enumerate(devices)]


POOLS: dict[str, Callable[[Sequence[Device]], WorkerPool]] = {
    "local": lambda devices: LocalPool(devices[:1]),
    "processes": lambda devices: ProcessPool(devices, tokenizer_threads=1),
    "overlapping": lambda devices: ProcessPool(as_gpus(devices), tokenizer_threads=1),
}

ANY_POOL = sorted(POOLS)
# In "local", a task that ends its process ends this one.
SURVIVING_POOLS = [name for name in ANY_POOL if name != "local"]
