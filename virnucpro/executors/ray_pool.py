"""A Ray cluster, and a worker pool on it: one actor for each GPU, or share of a node's processor.

Ray places the actors, carries the messages, and says when an actor or a node is gone. An actor runs
the same loop as a worker process on one machine. All nodes see the output directory under the same
path: workers write their files themselves.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any

from virnucpro.contracts import Device, OutputFile, TaskResult
from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.errors import UsageError
from virnucpro.events import Emit, Notice, WorkerDied
from virnucpro.executors.pool import HandleEvent, PoolEvent, Work, WorkEnded, WorkerPool
from virnucpro.executors.processes import serve_tasks, settle_on_device
from virnucpro.executors.signals import SIGNALS
from virnucpro.settings import MachineSettings
from virnucpro.version import __version__

ANSWER_SECONDS = 20.0  # until a head counts as unreachable
NODE_SECONDS = 2.0  # between two looks at the nodes of the cluster
JOIN_SECONDS = 60.0  # a node imports the program from a slow shared folder
# A node caches for up to a minute that a file is not there (acdirmax of NFS, see nfs(5)).
FILE_SECONDS = 90.0
EVENT_THREAD = "events"  # an actor delivers events in it while it takes work in another


@dataclass(frozen=True)
class Place:
    """Where one worker may live: a node's id and its name, and a share of its processor or a GPU.

    ``number`` tells apart the places of a node.
    """

    node: str
    host: str
    number: int
    device: Device | None = None  # None: Ray chooses one of the GPUs


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
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
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

    nodes = [
        (node["NodeManagerHostname"], node["NodeID"], node["Resources"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(nodes, key=lambda node: node[:2])


def software() -> dict[str, str]:
    """Return the versions that have to be the same on every node."""
    return {"virnucpro": __version__, "torch": version("torch")}


class VirNucProWorker:
    """The actor: a worker on the node that it was placed on. It works in a thread of its own.

    The name is what Ray and ``ps`` show.
    """

    def __init__(self, number: int, device: Device | None, tokenizer_threads: int) -> None:
        """Settle this process on its device, before torch is imported for it.

        Ray has made the GPU that it reserved the only one that is visible.
        """
        self._device = device = device or next(iter(visible_gpus()), None)
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


@dataclass
class Actor:
    """An actor of the pool; ``reply`` is what Ray will deliver next, ``device`` what it found."""

    place: Place
    handle: Any
    reply: Any = None
    device: Device | None = None


class RayPool(WorkerPool):
    """A worker pool of actors. Nodes may join and leave while it is used.

    ``ray`` must be connected to the cluster, and stays so.
    """

    def __init__(
        self,
        find_places: Callable[[], Sequence[Place]],
        tokenizer_threads: int,
        files: Mapping[Path, int] | None = None,
        emit: Emit = lambda event: None,
    ) -> None:
        """``find_places`` returns those of the nodes that are alive now.

        Each node has to see ``files`` with these sizes; ``emit`` gets a notice of each node that
        cannot be used, and of each worker that joins later.
        """
        import ray

        super().__init__()
        self._ray = ray
        self._find_places = find_places
        self._tokenizer_threads = tokenizer_threads
        self._files = dict(files or {})
        self._emit = emit
        self._numbers = itertools.count()
        self._places: set[Place] = set()  # of nodes that are alive; each gets one worker, once
        self._coming: dict[int, Actor] = {}
        self._waiting: dict[int, Actor] = {}  # have joined, and were not started yet
        self._actors: dict[int, Actor] = {}
        self._gathered = False
        self._last_look = -NODE_SECONDS
        self.refusals: dict[str, str] = {}  # by node

    # --- joining ---------------------------------------------------------------------------

    def gather(self) -> RayPool:
        """Wait for the workers of all nodes, but no longer than needed for one; return the pool.

        Workers that come later, because a GPU is still in use, are added when they come.

        Raises:
            UsageError: no node can be used.
        """
        deadline = time.monotonic() + JOIN_SECONDS
        self._look_at_nodes()
        while self._coming and (not self._waiting or time.monotonic() < deadline):
            self._admit(self._ready(0.5))
        self._refuse_without_workers()
        self._gathered = True
        return self

    @property
    def devices(self) -> list[Device]:
        """The devices of all workers that have joined."""
        joined = [actor.device for actor in self._waiting.values() if actor.device is not None]
        return [replace(d, index=n) for n, d in enumerate([*self.workers.values(), *joined])]

    def _refuse_without_workers(self) -> None:
        if not self.devices:
            reasons = "; ".join(self.refusals.values()) or "no node has a free GPU or processor"
            raise UsageError(
                f"no node of the cluster can be used: {reasons}. All nodes need the models and the "
                f"output directory under the same paths, and the same versions"
            )

    def require(self, files: Mapping[Path, int]) -> None:
        self._files |= files
        for actor in (*self._waiting.values(), *self._coming.values()):
            self._ask(actor)
        for number, actor in list(self._waiting.items()):
            self._decide(number, actor)
        self._refuse_without_workers()

    def _ask(self, actor: Actor) -> None:
        actor.reply = actor.handle.join.remote(software(), self._files)

    def _look_at_nodes(self) -> None:
        """Begin to start a worker in each new place; forget the places of nodes that are gone."""
        if time.monotonic() - self._last_look < NODE_SECONDS:
            return
        self._last_look = time.monotonic()
        present = set(self._find_places())
        for place in sorted(present - self._places, key=lambda place: (place.host, place.number)):
            number = next(self._numbers)
            self._coming[number] = self._create(number, place)
            self._ask(self._coming[number])
        self._places = present
        for group in (self._coming, self._waiting):
            for number in [n for n, actor in group.items() if actor.place not in present]:
                del group[number]

    def _create(self, number: int, place: Place) -> Actor:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        device = place.device
        create = self._ray.remote(
            num_cpus=1 if device is None else device.threads,
            num_gpus=1 if device is None else 0,
            max_restarts=0,
            concurrency_groups={EVENT_THREAD: 1},
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )(VirNucProWorker)
        return Actor(place, create.remote(number, device, self._tokenizer_threads))

    def _admit(self, replies: set[Any]) -> None:
        """Take the workers that have answered, and look for others."""
        for number, actor in [(n, a) for n, a in self._coming.items() if a.reply in replies]:
            self._waiting[number] = self._coming.pop(number)
            self._decide(number, actor)
            if self._gathered and actor.device is not None:
                text = f"node {actor.place.host} has joined with {actor.device.name}"
                self._emit(Notice("info", text))
        self._look_at_nodes()

    def _decide(self, number: int, actor: Actor) -> None:
        """Keep a worker that waits, or do without its node."""
        try:
            answer = self._ray.get(actor.reply)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            answer = f"its worker cannot be started: {lines[-1].strip()[:200]}"
        place = actor.place
        if isinstance(answer, Device):
            actor.device = replace(answer, host=place.host)
            return
        actor.device = None
        self._ray.kill(self._waiting.pop(number).handle)
        if place.node not in self.refusals:
            self.refusals[place.node] = f"node {place.host} is left out: {answer}"
            self._emit(Notice("warning", self.refusals[place.node]))

    # --- the interface of a pool -----------------------------------------------------------

    def start(self) -> int | None:
        """Start to use a worker that has joined; None if there is no other one now."""
        if not self._waiting:
            return None
        number = min(self._waiting)
        actor = self._actors[number] = self._waiting.pop(number)
        assert actor.device is not None
        self.workers[number] = actor.device
        self._start(number)
        return number

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Handle the events of each worker that has some."""
        actors = [(worker, self._actors[worker]) for worker in self.workers]
        replies = self._ready(seconds)
        self._admit(replies)
        for worker, actor in actors:
            if not self._has(worker, actor):
                continue
            host = actor.place.host
            if actor.place not in self._places:
                reason = f"node {host} is gone"
                handle(WorkerDied(worker, self.workers[worker], reason, lost=True))
            elif actor.reply in replies:
                try:
                    events: list[PoolEvent] = self._ray.get(actor.reply)
                except self._ray.exceptions.RayError:
                    reason = f"its process on {host} is gone; the logs of Ray on {host} may say why"
                    handle(WorkerDied(worker, self.workers[worker], reason))
                    continue
                actor.reply = actor.handle.events.options(concurrency_group=EVENT_THREAD).remote()
                for event in events:
                    if self._has(worker, actor):
                        if isinstance(event, WorkEnded) and isinstance(event.outcome, TaskResult):
                            await_files(event.outcome.outputs)
                        handle(event)

    def _has(self, worker: int, actor: Actor) -> bool:
        """Return whether no event has had an actor replaced or removed."""
        return worker in self.workers and self._actors[worker] is actor

    def _ready(self, seconds: float) -> set[Any]:
        """Return the replies that have come; waits up to ``seconds`` for the first."""
        used = [self._actors[worker] for worker in self.workers]
        replies = [actor.reply for actor in (*self._coming.values(), *used)]
        if not replies:
            time.sleep(seconds)
            return set()
        if not self._ray.wait(replies, num_returns=1, timeout=seconds)[0]:
            return set()
        return set(self._ray.wait(replies, num_returns=len(replies), timeout=0)[0])

    def _start(self, worker: int) -> None:
        actor = self._actors[worker]
        if actor.handle is None:
            self._actors[worker] = actor = self._create(worker, actor.place)
        actor.reply = actor.handle.events.options(concurrency_group=EVENT_THREAD).remote()

    def submit(self, worker: int, work: Work) -> None:
        self._actors[worker].handle.give.remote(work)

    def _end(self, worker: int) -> None:
        self._ray.kill(self._actors[worker].handle)
        self._actors[worker] = Actor(self._actors[worker].place, None)

    def close(self) -> None:
        """Kill all actors: what they write is atomic."""
        super().close()
        for group in (self._coming, self._waiting):
            while group:
                self._ray.kill(group.popitem()[1].handle)


def await_files(outputs: Sequence[OutputFile]) -> None:
    """Wait until this node sees files that another one has written.

    Reading the folder makes a network file system ask the server again.
    """
    deadline = time.monotonic() + FILE_SECONDS
    for output in outputs:
        while not output.path.exists() and time.monotonic() < deadline:
            if output.path.parent.is_dir():
                list(output.path.parent.iterdir())
            time.sleep(0.1)
