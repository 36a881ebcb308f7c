"""Show the dashboard without GPUs: the real screen displays the events of a simulated run.

    python -m tools.replay_dashboard --workers 8 --seconds 20 --warp 20 [--per-node 4]

GPUs, rates and readings are invented. Nothing is computed.
"""

from __future__ import annotations

import argparse
import heapq
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from virnucpro.contracts import Device, FailedSequences, Task
from virnucpro.devices import GpuReading
from virnucpro.events import (
    Notice,
    Progressed,
    SequencesFailed,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.layout import Layout
from virnucpro.settings import DisplaySettings
from virnucpro.ui.dashboard import RunScreen

FRAMES, LENGTH = 1000, 168  # sequences per file, tokens per sequence
SPEED = 210.0  # sequences per second and GPU


def invented_reading(device: Device) -> GpuReading | None:
    """Return a reading of a GPU that does not exist."""
    if device.kind != "cuda" or device.host:
        return None
    jitter = random.Random(f"{device.uuid} {time.monotonic():.0f}")
    used = int((31 + device.index / 2 + jitter.random()) * 2**30)
    watts = jitter.uniform(560, 690)
    temperature = 55 + device.index + jitter.randint(0, 2)
    return (used, device.memory, jitter.randint(94, 100), temperature, watts)


def device(number: int, per_node: int | None) -> Device:
    uuid = f"GPU-{number:08x}-simulated"
    gpu = Device("cuda", number, "NVIDIA H200", uuid, 143_771 * 2**20, (9, 0))
    if per_node is None:
        return gpu
    return replace(gpu, index=number % per_node, host=f"node{number // per_node}")


def task(number: int, folder: Path) -> Task:
    out = folder / f"output_{number + 1}_ESM.pt"
    return Task(
        "protein_embeddings", 1, (folder / f"output_{number + 1}.fa",), (out,), Path("x.done"),
        weight=FRAMES * LENGTH, count=FRAMES,
    )  # fmt: skip


class Run:
    """A simulated ESM-2 stage, whose times are those of ``clock``."""

    def __init__(
        self, screen: RunScreen, devices: Sequence[Device], pieces: int, clock: Callable[[], float]
    ) -> None:
        self._show, self._clock = screen.show, clock
        self._devices, self._pieces = devices, pieces
        self._random = random.Random(7)

    def wait_until(self, then: float, end: float) -> bool:
        while (now := self._clock()) < min(then, end):
            time.sleep(0.002)
        return now < end

    def play(self, end: float) -> None:
        """Play until ``end``, or until every file is finished."""
        show = self._show
        started = self._clock()
        sequences = self._pieces * FRAMES
        show(
            StageStarted(
                "protein_embeddings",
                5,
                self._pieces,
                self._pieces,
                sequences,
                sequences * LENGTH,
                title="Protein embeddings (ESM-2)",
                stages=9,
                on_workers=True,
            )
        )
        due: list[tuple[float, int, Task | None, int]] = []
        for number in range(len(self._devices)):
            heapq.heappush(due, (started + 14 + number, number, None, 0))
        taken = 0
        begun: dict[int, float] = {}
        while due:
            then, number, current, done = heapq.heappop(due)
            if not self.wait_until(then, end):
                return
            if current is None and number not in begun:
                gpu = self._devices[number]
                show(WorkerReady(number, gpu, "protein_embeddings", then - started))
            elif current is not None:
                show(Progressed(number, FRAMES // 10, FRAMES // 10 * LENGTH))
                done += 1
            if done == 10 and current is not None:
                show(TaskFinished(number, current, self._clock() - begun[number]))
                self._mishaps(number, current)
                current, done = None, 0
            if current is None:
                if taken == self._pieces:
                    continue
                current, taken = task(taken, Path("/run")), taken + 1
                begun[number] = self._clock()
                show(TaskStarted(number, current))
            slow = 0.4 if number == 5 else 1.0
            step = FRAMES / 10 / (SPEED * slow * self._random.uniform(0.85, 1.15))
            heapq.heappush(due, (self._clock() + step, number, current, done))
        show(StageFinished("protein_embeddings", 5, self._clock() - started))

    def _mishaps(self, number: int, current: Task) -> None:
        if self._random.random() < 0.005:
            poison = FailedSequences("ArithmeticError", "not finite", ("[red]read_17",))
            self._show(SequencesFailed(number, current, (poison,)))
        if number == 6 and self._random.random() < 0.01:
            self._show(WorkerDied(number, self._devices[number], "signal 9"))
            self._show(
                Notice("warning", f"worker {number} died (signal 9); a new one takes its place")
            )
            self._show(WorkerReady(number, self._devices[number], "protein_embeddings", 12.0))


def main() -> None:
    """Show the simulated run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--per-node", type=int, help="workers on each node of a cluster")
    parser.add_argument("--pieces", type=int, default=1200)
    parser.add_argument(
        "--seconds", type=float, default=20, help="the run stops then, as by Ctrl-C"
    )
    parser.add_argument("--warp", type=float, default=20, help="simulated seconds per second")
    parser.add_argument("--no-progress", action="store_true")
    parser.add_argument("--log-file", type=Path)
    chosen = parser.parse_args()
    zero = time.monotonic()

    def clock() -> float:
        seconds: float = (time.monotonic() - zero) * chosen.warp
        return seconds

    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder), "simulated", 500)
        display = DisplaySettings(progress=not chosen.no_progress, log_file=chosen.log_file)
        with RunScreen(display, layout, read=invented_reading, clock=clock).shown() as screen:
            devices = [device(number, chosen.per_node) for number in range(chosen.workers)]
            Run(screen, devices, chosen.pieces, clock).play(chosen.seconds * chosen.warp)


if __name__ == "__main__":
    main()
