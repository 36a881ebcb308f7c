"""The worker pools that the contract tests and the fault tests run over.

A new pool is one more line in ``POOLS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from virnucpro.contracts import Device
from virnucpro.executors.executor import LocalPool
from virnucpro.executors.pool import WorkerPool
from virnucpro.executors.processes import ProcessPool


@dataclass(frozen=True)
class PoolKind:
    """How to make a pool, and what it can do.

    ``survives``: a task that ends its process leaves this one alive. ``simulated``: its devices are
    GPUs by name only, on which no real encoder can be opened.
    """

    make: Callable[[Sequence[Device]], WorkerPool]
    survives: bool = True
    simulated: bool = False


def as_gpus(devices: Sequence[Device]) -> list[Device]:
    """The same devices as GPUs: their workers write one task while they compute the next one."""
    return [replace(device, kind="cuda", uuid=f"GPU-{n}") for n, device in enumerate(devices)]


POOLS = {
    "local": PoolKind(lambda devices: LocalPool(devices[:1]), survives=False),
    "processes": PoolKind(lambda devices: ProcessPool(devices, tokenizer_threads=1)),
    "overlapping": PoolKind(
        lambda devices: ProcessPool(as_gpus(devices), tokenizer_threads=1), simulated=True
    ),
}

ANY_POOL = sorted(POOLS)
ENCODER_POOLS = [name for name in ANY_POOL if not POOLS[name].simulated]
SURVIVING_POOLS = [name for name in ANY_POOL if POOLS[name].survives]
