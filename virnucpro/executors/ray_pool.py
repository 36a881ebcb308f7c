"""A worker pool on a Ray cluster: one actor for each GPU, or for each share of a node's processor.

Ray places the actors, carries the messages, and says when an actor or a node is gone. An actor runs
the same loop as a worker process on one machine. Workers write their files themselves, if all nodes
see the output directory under the same path; else files travel with the messages.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from virnucpro.contracts import Device, OutputFile, Stage, Task
from virnucpro.events import Emit, Notice
from virnucpro.executors.pool import (
    HandleEvent,
    PoolEvent,
    ProgressMade,
    TaskCompleted,
    WorkerExited,
    WorkerLost,
    WorkerSilent,
)
from virnucpro.executors.processes import OpenStage, RunTask
from virnucpro.executors.ray_worker import EVENT_THREAD, Probe, Refusal, actor_class, software

NODE_SECONDS = 2.0  # between two looks at the nodes of the cluster
JOIN_SECONDS = 60.0  # a node imports the program from a slow shared folder
# A node caches for up to a minute that a file is not there (acdirmax of NFS, see nfs(5)).
FILE_SECONDS = 90.0


@dataclass(frozen=True)
class Place:
    """Where one worker may live.

    Attributes:
        node: Ray's id of the node.
        host: its name.
        number: tells apart the places of a node.
        device: its share of the processor; None for one of the GPUs, which Ray chooses.
    """

    node: str
    host: str
    number: int
    device: Device | None = None


@dataclass
class PooledActor:
    """An actor of the pool.

    ``reply`` is what Ray will deliver next: the answer to ``join``, later events. ``unfinished``
    counts the openings and tasks that it has not reported on; ``silence`` is for
    :class:`WorkerSilent`.
    """

    place: Place
    handle: Any
    reply: Any
    device: Device | None = None
    unfinished: int = 0
    silence: float = 0.0


class RayPool:
    """A worker pool of actors. Nodes may join and leave while it is used.

    ``ray`` must be connected to the cluster, and stays so.
    """

    def __init__(
        self,
        find_places: Callable[[], Sequence[Place]],
        tokenizer_threads: int,
        probe: Probe | None = None,
        emit: Emit = lambda event: None,
    ) -> None:
        """``find_places`` returns those of the nodes that are alive now.

        ``probe`` is asked of every worker before it is used; ``emit`` gets a notice of each node
        that cannot be used, and of each worker that joins later.
        """
        import ray

        self._ray = ray
        self._find_places = find_places
        self._tokenizer_threads = tokenizer_threads
        self._probe = probe
        self._emit = emit
        self._needed: dict[Path, int] = {}
        self._numbers = itertools.count()
        self._places: set[Place] = set()  # of nodes that are alive; each gets one worker, once
        self._refused: set[str] = set()  # nodes
        self._coming: dict[int, PooledActor] = {}
        self._waiting: dict[int, PooledActor] = {}  # have joined, and were not started yet
        self._actors: dict[int, PooledActor] = {}
        self._workers: dict[int, Device] = {}
        self._gathered = False
        self._told_to_wait = False
        self._last_look = -NODE_SECONDS
        self._last_wait = time.monotonic()
        self.refusals: list[str] = []

    # --- joining ---------------------------------------------------------------------------

    def gather(self) -> RayPool:
        """Wait for the workers of all nodes, but no longer than needed for one; return the pool.

        Workers that come later, because a GPU is still in use, are added when they come.
        """
        deadline = time.monotonic() + JOIN_SECONDS
        self._look_at_nodes()
        while self._coming and (time.monotonic() < deadline or not self._waiting):
            self._admit(self._ready([actor.reply for actor in self._coming.values()], 0.5))
            self._look_at_nodes()
            if time.monotonic() > deadline and not self._told_to_wait:
                self._told_to_wait = True
                text = "waiting until the cluster has a free GPU or processor: see 'ray status'"
                self._emit(Notice("warning", text))
        self._gathered = True
        return self

    @property
    def devices(self) -> list[Device]:
        """The devices of all workers that have joined."""
        known = {**self._waiting, **self._actors}
        return [actor.device for _, actor in sorted(known.items()) if actor.device is not None]

    def require(self, files: Mapping[Path, int]) -> None:
        """Do without the nodes on which one of the files is missing or has another size."""
        self._needed = dict(files)
        asked = {n: actor.handle.missing.remote(self._needed) for n, actor in self._waiting.items()}
        for number, reply in asked.items():
            self._check_files(number, self._answer(reply))

    def _check_files(self, number: int, missing: Any) -> None:
        if isinstance(missing, Refusal):
            self._refuse(number, missing.reason)
        elif missing:
            names = ", ".join(map(str, missing))
            self._refuse(number, f"model files are missing or have another size there: {names}")

    def _look_at_nodes(self) -> None:
        """Begin to start a worker in each new place; forget the places of nodes that are gone."""
        if time.monotonic() - self._last_look < NODE_SECONDS:
            return
        self._last_look = time.monotonic()
        present = set(self._find_places())
        for place in sorted(present - self._places, key=lambda place: (place.host, place.number)):
            number = next(self._numbers)
            actor = self._create(number, place)
            actor.reply = actor.handle.join.remote(self._probe, software())
            self._coming[number] = actor
        self._places = present
        for group in (self._coming, self._waiting):
            for number in [n for n, actor in group.items() if actor.place not in present]:
                del group[number]

    def _create(self, number: int, place: Place) -> PooledActor:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        device = place.device
        create = self._ray.remote(
            num_cpus=1 if device is None else device.threads,
            num_gpus=1 if device is None else 0,
            max_restarts=0,
            concurrency_groups={EVENT_THREAD: 1},
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )(actor_class())
        handle = create.remote(number, device, self._tokenizer_threads)
        return PooledActor(place, handle, None)

    def _admit(self, replies: set[Any]) -> None:
        for number, actor in [(n, a) for n, a in self._coming.items() if a.reply in replies]:
            device = self._answer(actor.reply)
            if isinstance(device, Refusal):
                self._refuse(number, device.reason)
                continue
            del self._coming[number]
            host = actor.place.host
            actor.device = replace(device, host=host)
            self._waiting[number] = actor
            if self._needed:
                self._check_files(number, self._answer(actor.handle.missing.remote(self._needed)))
            if self._gathered and number in self._waiting:
                self._emit(Notice("info", f"node {host} has joined with {device.name}"))

    def _refuse(self, number: int, reason: str) -> None:
        actor = self._coming.pop(number, None) or self._waiting.pop(number)
        self._kill(actor)
        if actor.place.node not in self._refused:
            self._refused.add(actor.place.node)
            self.refusals.append(f"node {actor.place.host} is left out: {reason}")
            self._emit(Notice("warning", self.refusals[-1]))

    def _answer(self, reply: Any) -> Any:
        """Return what an actor answered; a Refusal where it has failed."""
        try:
            return self._ray.get(reply)
        except self._ray.exceptions.RayError as error:
            return Refusal(f"its worker cannot be started: {first_line(error)}")

    # --- the interface of a pool -----------------------------------------------------------

    @property
    def workers(self) -> Mapping[int, Device]:
        """The workers that were started and not removed."""
        return self._workers

    def start(self) -> int | None:
        """Start to use a worker that has joined; None if there is no other one now."""
        if not self._waiting:
            return None
        number = min(self._waiting)
        actor = self._waiting.pop(number)
        assert actor.device is not None
        self._listen(actor)
        self._actors[number] = actor
        self._workers[number] = actor.device
        return number

    def _listen(self, actor: PooledActor) -> None:
        actor.reply = actor.handle.events.remote()

    def open(self, worker: int, stage: Stage, halvings: int) -> None:
        """Have a worker open ``stage``; its actor is replaced if it is still at work."""
        if self._actors[worker].unfinished:
            self.restart(worker)
        self._give(worker, OpenStage(stage, halvings))

    def submit(self, worker: int, task: Task) -> None:
        """Have a worker carry out ``task``, after those that it has."""
        self._give(worker, RunTask(task))

    def _give(self, worker: int, message: OpenStage | RunTask) -> None:
        actor = self._actors[worker]
        actor.unfinished += 1
        actor.silence = 0.0
        actor.handle.give.remote(message)

    def wait(self, seconds: float, handle: HandleEvent) -> None:
        """Handle the events of each worker; :class:`WorkerSilent` if it has none."""
        self._look_at_nodes()
        actors = list(self._actors.items())
        expected = [*self._coming.values(), *self._actors.values()]
        replies = self._ready([actor.reply for actor in expected], seconds)
        now = time.monotonic()
        # Time in which this process was suspended or busy elsewhere is nobody's silence.
        passed, self._last_wait = min(now - self._last_wait, 2 * seconds), now
        self._admit(replies)
        for worker, actor in actors:
            # An earlier event may have had this actor replaced or removed.
            if self._actors.get(worker) is not actor:
                continue
            if actor.place not in self._places:
                handle(WorkerLost(worker, f"node {actor.place.host} is gone"))
            elif actor.reply in replies:
                self._deliver(worker, actor, handle)
            else:
                actor.silence += passed
                handle(WorkerSilent(worker, actor.silence))

    def _ready(self, replies: list[Any], seconds: float) -> set[Any]:
        """Return the replies that have come; waits up to ``seconds`` for the first."""
        if not replies:
            time.sleep(seconds)
            return set()
        if not self._ray.wait(replies, num_returns=1, timeout=seconds)[0]:
            return set()
        return set(self._ray.wait(replies, num_returns=len(replies), timeout=0)[0])

    def _deliver(self, worker: int, actor: PooledActor, handle: HandleEvent) -> None:
        actor.silence = 0.0
        try:
            events: list[PoolEvent] = self._ray.get(actor.reply)
        except self._ray.exceptions.RayError:
            host = actor.place.host
            reason = f"its process on {host} is gone; the logs of Ray on {host} may say why"
            handle(WorkerExited(worker, reason))
            return
        self._listen(actor)
        for event in events:
            if self._actors.get(worker) is not actor:
                return
            if not isinstance(event, ProgressMade):
                actor.unfinished -= 1
            if isinstance(event, TaskCompleted):
                await_files(event.result.outputs)
            handle(event)

    def restart(self, worker: int) -> None:
        """Kill a worker's actor and have Ray start another one in its place."""
        earlier = self._actors[worker]
        self._kill(earlier)
        actor = self._create(worker, earlier.place)
        actor.device = earlier.device
        self._listen(actor)
        self._actors[worker] = actor

    def remove(self, worker: int) -> None:
        """Kill a worker's actor."""
        self._kill(self._actors.pop(worker))
        del self._workers[worker]

    def _kill(self, actor: PooledActor) -> None:
        self._ray.kill(actor.handle)

    def close(self) -> None:
        """Kill all actors: what they write is atomic."""
        for worker in list(self._workers):
            self.remove(worker)
        for group in (self._coming, self._waiting):
            while group:
                self._kill(group.popitem()[1])


def await_files(outputs: Sequence[OutputFile], seconds: float = FILE_SECONDS) -> None:
    """Wait until this node sees files that another one has written.

    Reading the folder makes a network file system ask the server again.
    """
    deadline = time.monotonic() + seconds
    for output in outputs:
        while not output.path.exists() and time.monotonic() < deadline:
            if output.path.parent.is_dir():
                list(output.path.parent.iterdir())
            time.sleep(0.1)


def first_line(error: BaseException) -> str:
    """Return the last part of Ray's message, which says why, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__
