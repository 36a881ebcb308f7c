"""What all workers of a node of a cluster have done together in the current stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virnucpro.ui.rate import WorkAmount
from virnucpro.ui.stage_progress import WorkerProgress, WorkerState

MANY_WORKERS = 8  # with more of them on several nodes, there is a row per node
STATES: tuple[WorkerState, ...] = ("busy", "loading", "idle", "dead")


@dataclass(frozen=True)
class NodeProgress:
    """A node, by its name, and its workers."""

    host: str
    workers: tuple[WorkerProgress, ...]

    @property
    def tasks(self) -> int:
        """Number of tasks that its workers have finished."""
        return sum(worker.tasks for worker in self.workers)

    @property
    def sequences(self) -> int:
        """Number of sequences that its workers have done."""
        return sum(worker.sequences for worker in self.workers)

    def state_shown(self, now: float) -> WorkerState:
        """Return the state of the worker that is furthest from having nothing to do."""
        states = {worker.state_shown(now) for worker in self.workers}
        return next(state for state in STATES if state in states)

    def busy_workers(self, now: float) -> int:
        """Return how many of its workers are at work."""
        return sum(worker.state_shown(now) == "busy" for worker in self.workers)

    def busy_rate(self, now: float) -> WorkAmount | None:
        """Return its work per second; None while no worker is known to be at work."""
        rates = [rate for worker in self.workers if (rate := worker.busy_rate(now))]
        total = WorkAmount()
        for rate in rates:
            total.add(rate)
        return total if rates else None


def nodes_shown(workers: Sequence[WorkerProgress]) -> list[NodeProgress]:
    """Return the nodes, by name, where they are shown in place of their workers; else none."""
    hosts = sorted({worker.device.host for worker in workers})
    if len(workers) <= MANY_WORKERS or len(hosts) < 2:
        return []
    return [
        NodeProgress(host, tuple(w for w in workers if w.device.host == host)) for host in hosts
    ]
