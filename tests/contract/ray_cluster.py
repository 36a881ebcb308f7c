"""A Ray cluster on this machine, for tests: a head, and nodes that are added and killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from virnucpro.contracts import Device
from virnucpro.workers.ray_pool import RayPool, places

OBJECT_STORE = 80 << 20  # bytes, the smallest that Ray accepts
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",  # else Ray's workers let everybody else go first
    "RAY_raylet_start_wait_time_s": "200",  # on a busy machine
}


@contextmanager
def local_cluster(cpus: int) -> Iterator[None]:
    """Start a cluster of one node that this process belongs to, and stop it."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        ray.init(
            num_cpus=cpus,
            num_gpus=0,
            object_store_memory=OBJECT_STORE,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
        try:
            yield
        finally:
            ray.shutdown()


def ray_pool(devices: Sequence[Device]) -> RayPool:
    """Return a pool with a worker on each of ``devices``, all on the first node."""
    node, first = places(1)[0]
    found = [(node, replace(device, threads=1, host=first.host)) for device in devices]
    return RayPool(lambda: found, tokenizer_threads=1).gather()
