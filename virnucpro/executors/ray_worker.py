"""The worker's side of a Ray cluster: the actor, and what it checks before it is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread

from virnucpro.contracts import Device
from virnucpro.devices import MASK, visible_gpus
from virnucpro.executors.pool import PoolEvent, Work
from virnucpro.executors.processes import serve_tasks, settle_on_device
from virnucpro.version import __version__

EVENT_THREAD = "events"  # an actor delivers events in it while it takes work in another


def software() -> dict[str, str]:
    """Return the versions that have to be the same on every node."""
    return {"virnucpro": __version__, "torch": version("torch")}


def reserved_gpu() -> Device | None:
    """Return the GPU that Ray has reserved for this process, with its number on the node."""
    gpu = next(iter(visible_gpus()), None)
    number = os.environ.get(MASK, "")
    return replace(gpu, index=int(number)) if gpu and number.isdecimal() else gpu


class RayWorker:
    """The actor: a worker on the node that it was placed on. It works in a thread of its own."""

    def __init__(self, number: int, device: Device | None, tokenizer_threads: int) -> None:
        """Settle this process on its device, before torch is imported for it.

        Ray has made the GPU that it reserved the only one that is visible.
        """
        self._device = device = device or reserved_gpu()
        self._pipe, self._end = Pipe()
        if device is not None:
            settle_on_device(device, tokenizer_threads)
            Thread(target=self._serve, args=(number, device), daemon=True).start()

    def _serve(self, number: int, device: Device) -> None:
        try:
            serve_tasks(self._end, number, device)
        finally:
            os._exit(1)  # an actor without its thread would only be silent

    def join(self, expected: Mapping[str, str], files: Mapping[Path, int]) -> Device | str:
        """Return the device, or why this worker cannot be used.

        ``files`` have to be here with their sizes in bytes, as proof of shared folders.
        """
        if self._device is None:
            return "Ray has reserved a GPU that the driver does not show"
        found = software()
        for name, wanted in expected.items():
            if found[name] != wanted:
                return f"it has {name} {found[name]}, and this process {wanted}"
        missing = [
            str(path)
            for path, size in files.items()
            if not path.is_file() or path.stat().st_size != size
        ]
        if missing:
            return f"files are missing or have another size there: {', '.join(missing)}"
        return self._device

    def give(self, work: Work) -> None:
        """Take work, which is done in its order."""
        self._pipe.send(work)

    def events(self) -> list[PoolEvent]:
        """Return all events that were not fetched; wait for the first one."""
        events = [self._pipe.recv()]
        while self._pipe.poll():
            events.append(self._pipe.recv())
        return events


def actor_class() -> type[RayWorker]:
    """Return the class of the actors, of which Ray knows the threads; Ray is imported here."""
    import ray

    class VirNucProWorker(RayWorker):
        """The name that Ray and ``ps`` show."""

        @ray.method(concurrency_group=EVENT_THREAD)  # type: ignore[untyped-decorator]
        def events(self) -> list[PoolEvent]:
            """Return the next events, in a thread that may wait for them."""
            return RayWorker.events(self)

    return VirNucProWorker
