"""The worker's side of a Ray cluster: the actor, and what it checks before it is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from virnucpro.contracts import Device
from virnucpro.devices import MASK, visible_gpus
from virnucpro.executors.pool import PoolEvent
from virnucpro.executors.processes import OpenStage, RunTask, serve_tasks, settle_on_device
from virnucpro.version import __version__

EVENT_THREAD = "events"  # an actor delivers events in it while it takes messages in another
NO_SHARED_FOLDER = "all nodes need the output directory under the same path"


@dataclass(frozen=True)
class Probe:
    """A file that a worker must be able to read, with its content: proof of a shared folder."""

    path: Path
    token: str


@dataclass(frozen=True)
class Refusal:
    """Why a worker cannot be used."""

    reason: str


def software() -> dict[str, str]:
    """Return the versions that have to be the same on every node."""
    return {"virnucpro": __version__, "torch": version("torch")}


class Mailbox:
    """The end of a worker's pipe that :func:`serve_tasks` reads and writes."""

    def __init__(self) -> None:
        self._received: SimpleQueue[OpenStage | RunTask] = SimpleQueue()
        self._sent: SimpleQueue[PoolEvent] = SimpleQueue()

    def poll(self) -> bool:
        """Return whether a message is there."""
        return not self._received.empty()

    def recv(self) -> OpenStage | RunTask:
        """Return the next message; wait for it."""
        return self._received.get()

    def send(self, event: PoolEvent) -> None:
        """Keep an event until it is fetched."""
        self._sent.put(event)

    def put(self, message: OpenStage | RunTask) -> None:
        """Deliver a message to the worker."""
        self._received.put(message)

    def events(self) -> list[PoolEvent]:
        """Return all events that were not fetched; wait for the first one."""
        events = [self._sent.get()]
        while not self._sent.empty():
            events.append(self._sent.get())
        return events


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
        device = device or reserved_gpu()
        self._device = device
        self._mailbox = Mailbox()
        if device is not None:
            settle_on_device(device, tokenizer_threads)
            Thread(target=self._serve, args=(number, device), daemon=True).start()

    def _serve(self, number: int, device: Device) -> None:
        try:
            serve_tasks(self._mailbox, number, device)
        finally:
            os._exit(1)  # an actor without its thread would only be silent

    def join(self, probe: Probe | None, expected: Mapping[str, str]) -> Device | Refusal:
        """Return the device, or why this worker cannot be used."""
        if self._device is None:
            return Refusal("Ray has reserved a GPU that the driver does not show")
        for name, wanted in expected.items():
            if (found := software()[name]) != wanted:
                return Refusal(f"it has {name} {found}, and this process {wanted}")
        if probe is not None:
            try:
                same = probe.path.read_text() == probe.token
            except OSError as error:
                text = f"it cannot read {probe.path}: {error.strerror}"
                return Refusal(f"{text}; {NO_SHARED_FOLDER}")
            if not same:
                return Refusal(f"{probe.path} is another file there; {NO_SHARED_FOLDER}")
        return self._device

    def missing(self, files: Mapping[Path, int]) -> list[Path]:
        """Return those of the files that are not here with their sizes in bytes."""
        return [
            path
            for path, size in files.items()
            if not path.is_file() or path.stat().st_size != size
        ]

    def give(self, message: OpenStage | RunTask) -> None:
        """Take a message; they are dealt with in their order."""
        self._mailbox.put(message)

    def events(self) -> list[PoolEvent]:
        """Return the next events; waits for one."""
        return self._mailbox.events()


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
