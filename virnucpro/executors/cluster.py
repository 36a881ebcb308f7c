"""The connection to a Ray cluster, and the places on its nodes where workers may live."""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, UsageError
from virnucpro.executors.ray_pool import Place
from virnucpro.executors.signals import SIGNALS
from virnucpro.settings import MachineSettings

INSTALL = (
    "--cluster needs Ray, which is not installed: pip install 'virnucpro[cluster]', here and on "
    "every node"
)


ANSWER_SECONDS = 20.0  # until a head counts as unreachable


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Be connected to the cluster at ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT`` in the block.

    Raises:
        UsageError: Ray is not installed, or there is no such cluster, or its versions differ.
    """
    try:
        import ray
    except ImportError:
        raise UsageError(INSTALL) from None
    if address != "auto":
        _check_answer(address)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        text = str(error).strip().splitlines()
        raise UsageError(
            f"--cluster {address}: there is no Ray cluster that can be used "
            f"({text[0] if text else type(error).__name__}); start one with 'ray start', or name "
            f"the address of its head"
        ) from error
    finally:
        for number, handler in handlers.items():  # Ray takes SIGTERM for itself
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _check_answer(address: str) -> None:
    """Check that something answers at an address; Ray would try again for minutes, deaf to Ctrl-C.

    Raises:
        UsageError: the address has another form, or nothing answers.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--cluster {address}: give auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"--cluster {address}: nothing answers there ({error}); start a cluster with "
            f"'ray start', or name the address of its head"
        ) from error


def await_head(address: str) -> None:
    """Wait until the head of the cluster answers; Ray would end this process after a minute.

    Raises:
        DeviceError: it does not answer for ``ANSWER_SECONDS``.
    """
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
            return
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
    if machine.cpu_workers is not None and machine.device == "cuda":
        raise UsageError("--cpu-workers computes on the CPU: leave out --device cuda")
    on_cpu = machine.cpu_workers is not None or machine.device == "cpu"
    if not on_cpu and not gpu_places():
        if machine.device == "cuda" or not machine.fallback_to_cpu:
            raise DeviceError(
                "no node of the cluster has a GPU: see 'ray status', or use --device cpu"
            )
        on_cpu = True
    if on_cpu and machine.compile == "always":
        raise UsageError("compiling is for GPUs: on the CPU leave out --compile always")
    if on_cpu:
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
