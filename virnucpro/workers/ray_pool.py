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
from virnucpro.events import Notice, Show, WorkerDied
from virnucpro.settings import MachineSettings
from virnucpro.version import __version__
from virnucpro.workers.pool import HandleEvent, PoolEvent, Work, WorkEnded, WorkerPool
from virnucpro.workers.processes import serve_tasks, settle_on_device
from virnucpro.workers.signals import SIGNALS

ANSWER_SECONDS = 20.0  # until a head counts as unreachable
NODE_SECONDS = 2.0  # between two looks at the nodes of the cluster
JOIN_SECONDS = 60.0  # a node imports the program from a slow shared folder
# A node caches for up to a minute that a file is not there (acdirmax of NFS, see nfs(5)).
FILE_SECONDS = 90.0
EVENT_THREAD = "events"  # an actor delivers events in it while it takes work in another


Place = tuple[str, Device]
"""Where one worker may live: the id of a node, and a share of its processor or one of its GPUs.

The device has the name of the node as its ``host``, and its ``index`` tells apart those of a node.
Ray chooses which GPU it is.
"""


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
    if choose_devices(machine, [device for _, device in places()])[0].kind == "cpu":
        return lambda: places(machine.cpu_workers or 1)
    return lambda: places()[: machine.max_workers]


def places(cpu_workers: int | None = None) -> list[Place]:
    """Return a place for each GPU, or up to ``cpu_workers`` for each node, by the nodes' names.

    These share the processor of the node. Only nodes that are alive count.
    """
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    found = list[Place]()
    for node in sorted(alive, key=lambda node: (node["NodeManagerHostname"], node["NodeID"])):
        host, resources = node["NodeManagerHostname"], node["Resources"]
        cores = int(resources.get("CPU", 0))  # none where Ray was started with --num-cpus=0
        if cpu_workers is None:
            count, device = int(resources.get("GPU", 0)), Device("cuda", host=host)
        else:
            count = min(cpu_workers, cores)
            device = Device("cpu", threads=cores // max(count, 1), host=host)
        found += [(node["NodeID"], replace(device, index=n)) for n in range(count)]
    return found


def software() -> str:
    """Return what has to be the same on every node."""
    return f"virnucpro {__version__} with torch {version('torch')}"


class VirNucProWorker:
    """The actor: a worker on the node that it was placed on. It works in a thread of its own.

    The name is what Ray and ``ps`` show.
    """

    def __init__(self, number: int, device: Device, tokenizer_threads: int) -> None:
        """Settle this process on its device, before torch is imported for it.

        Ray has made the GPU that it reserved the only one that is visible.
        """
        found = visible_gpus()[:1] if device.kind == "cuda" else [device]
        self._devices = [replace(each, host=device.host) for each in found]
        self._pipe, self._end = Pipe()
        for each in self._devices:
            settle_on_device(each, tokenizer_threads)
            Thread(target=self._serve, args=(number, each), daemon=True).start()

    def _serve(self, number: int, device: Device) -> None:
        try:
            serve_tasks(self._end, number, device)
        finally:
            os._exit(1)  # an actor without its thread would only be silent

    def join(self, expected: str, files: Mapping[Path, int]) -> Device | str:
        """Return the device, or why this worker cannot be used.

        The ``software`` has to be the same, and ``files`` have to be here with their sizes in
        bytes, as proof of shared folders.
        """
        if not self._devices:
            return "Ray has reserved a GPU that the driver does not show"
        if (found := software()) != expected:
            return f"it has {found}, and this process {expected}"
        missing = [
            str(path)
            for path, size in files.items()
            if not path.is_file() or path.stat().st_size != size
        ]
        if missing:
            return f"files are missing or have another size there: {', '.join(missing)}"
        return self._devices[0]

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
    """A worker of the pool, from the start of its process on.

    Attributes:
        handle: what Ray knows it by.
        reply: what Ray will deliver next, if anything: whether it can be used, or its events.
        device: what it has found, once it has joined.
    """

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
        show: Show = lambda event: None,
    ) -> None:
        """``find_places`` returns those of the nodes that are alive now.

        Each node has to see ``files`` with these sizes; ``show`` gets a notice of each node that
        cannot be used, and of each worker that joins later.
        """
        import ray

        super().__init__()
        self._ray = ray
        self._find_places = find_places
        self._tokenizer_threads = tokenizer_threads
        self._files = dict(files or {})
        self._show = show
        self._numbers = itertools.count()
        self._places: Sequence[Place] = ()  # of nodes that are alive; each gets one worker, once
        self._actors: dict[int, Actor] = {}
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
        while len(self._joined) < len(self._actors) and (
            not self._joined or time.monotonic() < deadline
        ):
            self._admit(self._ready(0.5))
        self._refuse_without_workers()
        self.devices = [replace(d, index=n) for n, d in enumerate(self._joined.values())]
        return self

    @property
    def _joined(self) -> dict[int, Device]:
        """The devices of the workers that have joined and were not started yet."""
        joined = {n: each.device for n, each in self._actors.items() if n not in self.workers}
        return {number: device for number, device in joined.items() if device is not None}

    def _refuse_without_workers(self) -> None:
        if not (self.workers or self._joined):
            reasons = "; ".join(self.refusals.values()) or "no node has a free GPU or processor"
            raise UsageError(
                f"no node of the cluster can be used: {reasons}. All nodes need the models and the "
                f"output directory under the same paths, and the same versions"
            )

    def require(self, files: Mapping[Path, int]) -> None:
        self._files |= files
        for number, actor in self._actors.items():
            if number not in self.workers:
                self._ask(actor)
        for number in self._joined:
            self._decide(number)
        self._refuse_without_workers()

    def _ask(self, actor: Actor) -> None:
        actor.reply = actor.handle.join.remote(software(), self._files)

    def _look_at_nodes(self) -> None:
        """Begin to start a worker in each new place; forget the places of nodes that are gone."""
        if time.monotonic() - self._last_look < NODE_SECONDS:
            return
        self._last_look = time.monotonic()
        present = self._find_places()
        for place in present:
            if place not in self._places:
                number = next(self._numbers)
                self._actors[number] = self._create(number, place)
                self._ask(self._actors[number])
        self._places = present
        unused = self._actors.keys() - self.workers.keys()
        for number in [n for n in unused if self._actors[n].place not in present]:
            del self._actors[number]

    def _create(self, number: int, place: Place) -> Actor:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node, device = place
        create = self._ray.remote(
            num_cpus=device.threads,
            num_gpus=int(device.kind == "cuda"),
            max_restarts=0,
            concurrency_groups={EVENT_THREAD: 1},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )(VirNucProWorker)
        return Actor(place, create.remote(number, device, self._tokenizer_threads))

    def _admit(self, replies: set[Any]) -> None:
        """Take the workers that have answered, and look for others."""
        unused = self._actors.keys() - self.workers.keys()
        for number in [n for n in unused if self._actors[n].reply in replies]:
            actor = self._actors[number]
            self._decide(number)
            if self.devices and actor.device is not None:
                text = f"node {actor.device.host} has joined with {actor.device.name}"
                self._show(Notice("info", text))
        self._look_at_nodes()

    def _decide(self, number: int) -> None:
        """Keep a worker that has answered, or do without its node."""
        actor = self._actors[number]
        try:
            answer = self._ray.get(actor.reply)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            answer = f"its worker cannot be started: {lines[-1].strip()[:200]}"
        actor.reply = None
        if isinstance(answer, Device):
            actor.device = answer
            return
        self._ray.kill(self._actors.pop(number).handle)
        node, device = actor.place
        if node not in self.refusals:
            self.refusals[node] = f"node {device.host} is left out: {answer}"
            self._show(Notice("warning", self.refusals[node]))

    # --- the interface of a pool -----------------------------------------------------------

    def start(self) -> int | None:
        """Start to use a worker that has joined; None if there is no other one now."""
        if not (joined := self._joined):
            return None
        number = min(joined)
        self.workers[number] = joined[number]
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
            host = actor.place[1].host
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
        replies = [actor.reply for actor in self._actors.values() if actor.reply is not None]
        if not replies:
            time.sleep(seconds)
            return set()
        if not self._ray.wait(replies, num_returns=1, timeout=seconds)[0]:
            return set()
        return set(self._ray.wait(replies, num_returns=len(replies), timeout=0)[0])

    def restart(self, worker: int) -> None:
        self._end(worker)
        self._actors[worker] = self._create(worker, self._actors[worker].place)
        self._start(worker)

    def _start(self, worker: int) -> None:
        actor = self._actors[worker]
        actor.reply = actor.handle.events.options(concurrency_group=EVENT_THREAD).remote()

    def submit(self, worker: int, work: Work) -> None:
        self._actors[worker].handle.give.remote(work)

    def _end(self, worker: int) -> None:
        self._ray.kill(self._actors[worker].handle)

    def remove(self, worker: int) -> None:
        super().remove(worker)
        del self._actors[worker]

    def close(self) -> None:
        """Kill all actors: what they write is atomic."""
        super().close()
        while self._actors:
            self._ray.kill(self._actors.popitem()[1].handle)


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
