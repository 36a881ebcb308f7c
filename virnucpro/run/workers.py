"""The devices of a run and what computes on them: this machine, or the nodes of a Ray cluster.

Also what the workers on them report.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.contracts import Device, Json
from virnucpro.devices import choose_devices, host_threads
from virnucpro.events import Event, Notice, Show, WorkerReady, WorkerReport
from virnucpro.executors.executor import Executor, open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.run.run import Run
from virnucpro.settings import NO_CLUSTER, SHIPPED_MODELS, MachineSettings
from virnucpro.stages.splitting import LEAST_FRAMES
from virnucpro.store.disk import Disk
from virnucpro.store.work import write_state

if TYPE_CHECKING:
    from virnucpro.run.request import PredictionRequest

# Fewer are not compiled with ``--compile auto``: ``compile_from_flops`` of ESM-2 3B.
LEAST_COMPILED_FRAMES = 20_000


def warm_up_workers(executor: Executor, requests: Sequence[PredictionRequest]) -> None:
    """Have workers begin for the runs that are not finished, while models and inputs are read.

    The bytes of the inputs say about how many frames there will be: some 500 for each worker, and
    whether they are enough to compile the blocks.
    """
    from virnucpro.stages.embedding import warm_up  # it imports torch

    settings = requests[0].settings
    machine, analysis = settings.machine, settings.analysis.resolved()
    unfinished = [r for r in requests if r.force or not r.layout.run_json.exists()]
    files = [path for r in unfinished for path in r.input_files.paths if path.exists()]
    assert analysis.chunk_length is not None
    frames = sum(path.stat().st_size for path in files) // analysis.chunk_length
    compiles = machine.compile == "always" or frames >= LEAST_COMPILED_FRAMES
    if machine.compile == "never" or analysis.model_type in SHIPPED_MODELS:
        compiles = False
    if unfinished:
        with executor.interruption.held():
            work = partial(warm_up, compile=compiles)
            executor.pool.warm_up(work, 1 + frames // LEAST_FRAMES)


@contextmanager
def opened_executor(
    machine: MachineSettings, probe: Path, show: Show, interruption: Interruption | None, disk: Disk
) -> Iterator[Executor]:
    """Have an executor for the duration of the block: on this machine, or on a cluster.

    ``probe`` is a file where workers write, which each node of a cluster must see under the same
    path. One that a killed process left is removed.
    """
    disk.remove(probe)
    with ExitStack() as stack:
        if machine.cluster == NO_CLUSTER:
            executor = open_executor(choose_devices(machine), machine, interruption)
        else:
            # Only here: without --cluster, nothing of Ray is imported.
            from virnucpro.executors.ray_pool import RayPool, connected, place_finder

            text = "waiting for its first free GPU or processor ('ray status' shows them)"
            show(Notice("info", f"connecting to the Ray cluster {machine.cluster}, and {text}"))
            stack.enter_context(connected(machine.cluster))
            # Only nodes that share this folder see a file of this size there.
            stack.callback(disk.remove, probe)
            disk.save(probe, bytes(size := 1 + secrets.randbelow(1 << 16)))
            threads = machine.tokenizer_threads
            pool = RayPool(place_finder(machine), threads, {probe: size}, show)
            stack.callback(pool.close)
            pool.gather()
            hosts = Counter(device.host for device in pool.devices)
            named = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
            show(Notice("info", f"workers: {named}"))
            executor = Executor(
                pool, machine.threads or host_threads(), interruption or Interruption()
            )
        stack.callback(executor.close)
        yield executor


@dataclass
class WorkerTable:
    """Takes note of what workers report, on the way to whoever shows it.

    A batch budget that was measured is kept in the state of each of the runs.
    """

    _runs: Sequence[Run]
    _show: Show
    # A row per worker and stage: how it was opened last, and what it did.
    rows: dict[tuple[int, str], dict[str, Json]] = field(default_factory=dict)
    _warnings: set[str] = field(default_factory=set)

    def show(self, event: Event) -> None:
        """Take note of ``event`` and pass it on."""
        match event:
            case WorkerReady(worker, device, stage, seconds, facts):
                row = self._row(worker, device, stage)
                row |= {"seconds_to_open": round(seconds, 3), **facts}
                if facts.get("found") == "measured":
                    self._keep_budget(stage, device, int(facts["budget"]))
                if reason := facts.get("compile_failed"):
                    text = f"{stage} could not be compiled on {device.name} and is slower for it"
                    self._warn(f"{text}: {reason}")
            case WorkerReport(worker, device, stage):
                row, measured = self._row(worker, device, stage), asdict(event.measured)
                if measured["uncompiled_calls"]:
                    self._warn(
                        f"{stage} did not use its compiled blocks in all calls, which is slower. "
                        f"Results are valid, but may differ in their last digits; use --compile "
                        f"never if it comes again"
                    )
                row |= {"busy": event.busy, "idle": event.idle, "tasks": event.tasks, **measured}
        self._show(event)

    def _row(self, worker: int, device: Device, stage: str) -> dict[str, Json]:
        start = {"worker": worker, "stage": stage, "device": device.name, "uuid": device.uuid}
        host = {"host": device.host} if device.host else {}
        return self.rows.setdefault((worker, stage), {**start, **host})

    def _warn(self, text: str) -> None:
        """Say something once, however many workers report the same."""
        if text not in self._warnings:
            self._warnings.add(text)
            self._show(Notice("warning", text))

    def _keep_budget(self, stage: str, device: Device, budget: int) -> None:
        """Keep the smallest budget that a device of a kind found: it fits on each of them."""
        from virnucpro.stages.embedding import budget_key  # it imports torch

        key = budget_key(stage, device)
        for run in self._runs:
            if budget < run.state.budgets.get(key, budget + 1):
                run.state = replace(run.state, budgets={**run.state.budgets, key: budget})
                write_state(run.layout, run.disk, run.state)
