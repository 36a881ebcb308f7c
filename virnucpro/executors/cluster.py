"""The connection to a Ray cluster, and the places on its nodes where workers may live."""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from virnucpro.contracts import Device
from virnucpro.devices import choose_devices
from virnucpro.errors import DeviceError, UsageError
from virnucpro.executors.ray_pool import Place
from virnucpro.executors.signals import SIGNALS
from virnucpro.settings import MachineSettings

ANSWER_SECONDS = 20.0  # until a head counts as unreachable


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Be connected to the cluster at ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT`` in the block.

    Raises:
        UsageError: Ray is not installed, or there is no such cluster, or its versions differ.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        import ray

        if address != "auto":  # Ray would try again for minutes, deaf to Ctrl-C
            _reach(address.removeprefix("ray://"))
        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
    except ImportError:
        raise UsageError(
            "--cluster needs Ray, which is not installed: pip install 'virnucpro[cluster]', here "
            "and on every node"
        ) from None
    except (OSError, RuntimeError, ValueError, OverflowError, ray.exceptions.RayError) as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(
            f"--cluster {address}: there is no Ray cluster that can be used ({text[0]}); start one "
            f"with 'ray start', and give auto, HOST:PORT or ray://HOST:PORT"
        ) from error
    finally:
        for number, handler in handlers.items():  # Ray takes SIGTERM for itself
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise OSError or ValueError where nothing answers at ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()


def await_head(address: str) -> None:
    """Wait until the head of the cluster answers; Ray would end this process after a minute.

    Raises:
        DeviceError: it does not answer for ``ANSWER_SECONDS``.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return _reach(address)
        except OSError as error:
            if time.monotonic() > deadline:
                raise DeviceError(
                    f"the head of the Ray cluster, {address}, is gone ({error}): start the cluster "
                    f"again, then run the same command again"
                ) from error
            time.sleep(1)


def place_finder(machine: MachineSettings) -> Callable[[], list[Place]]:
    """Return what finds the places of the nodes that are alive: all GPUs, or all processors.

    Which of the two is decided here and once: both in one run would not compute the same.

    Raises:
        UsageError: options that contradict each other.
        DeviceError: a GPU was asked for and no node has one.
    """
    if machine.gpus or machine.device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            "--cluster takes the GPUs that Ray manages: leave out --gpus, and give --device auto, "
            "cpu or cuda"
        )
    gpus = [Device("cuda") for _ in gpu_places()]
    if choose_devices(machine, gpus)[0].kind == "cpu":
        return lambda: cpu_places(machine.cpu_workers or 1)
    return lambda: gpu_places(machine.max_workers)


def gpu_places(most: int | None = None) -> list[Place]:
    """Return a place for each GPU, or for the first ``most`` of them."""
    places = [
        Place(node, host, number)
        for host, node, resources in _nodes()
        for number in range(int(resources.get("GPU", 0)))
    ]
    return places[:most]


def cpu_places(workers: int) -> list[Place]:
    """Return up to ``workers`` places for each node, which share its processor."""
    places = []
    for host, node, resources in _nodes():
        cores = int(resources.get("CPU", 0))  # none where Ray was started with --num-cpus=0
        count = min(workers, cores)
        for number in range(count):
            places.append(Place(node, host, number, Device("cpu", threads=cores // count)))
    return places


def _nodes() -> list[tuple[str, str, dict[str, float]]]:
    """Return name, id and resources of each node that is alive, in the order of their names."""
    import ray

    if not ray.util.client.ray.is_connected():  # then the head may have an address of its own
        await_head(ray.get_runtime_context().gcs_address)
    nodes = [
        (node["NodeManagerHostname"], node["NodeID"], node["Resources"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(nodes, key=lambda node: node[:2])
