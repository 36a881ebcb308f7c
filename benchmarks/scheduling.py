"""How well N workers share uneven work, with a device that only sleeps in proportion to tokens.

    python -m benchmarks.scheduling [--workers 1,2,4,8] [--seconds 24] [--spans 1000,500,250,125]

``gain`` is the device time of all tasks over the time from the first task to the last commit:
how many times faster than one worker that never waits. Spans, receipts, commits and joins are
those of a run. ``idle`` is the share of worker time without a task, as the workers' reports say.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.contract.counting import Counting
from tests.contract.running import run_stage
from virnucpro.contracts import Device
from virnucpro.events import Event, TaskStarted, WorkerReport
from virnucpro.executors.executor import Executor
from virnucpro.executors.processes import ProcessPool


@dataclass(frozen=True)
class Figures:
    """Seconds of a stage, and how its workers spent them."""

    elapsed: float
    busy: float
    idle: float
    tasks: int

    @property
    def gain(self) -> float:
        """Times faster than one worker that never waits."""
        return self.busy / self.elapsed


def make_files(folder: Path, counts: Sequence[int]) -> tuple[tuple[Path, ...], int]:
    """FASTA files with so many proteins of 30 to 166 residues; also how many residues in all."""
    generator = random.Random(7)
    paths, total = [], 0
    for number, count in enumerate(counts):
        lengths = [
            generator.choice((166, 166, 166, generator.randint(30, 166))) for _ in range(count)
        ]
        text = "".join(f">s{i}\n{'M' * length}\n" for i, length in enumerate(lengths))
        paths.append(folder / f"f{number}.fa")
        paths[-1].write_text(text)
        total += sum(lengths)
    return tuple(paths), total


def uneven(files: int = 200) -> list[int]:
    """Sequences a file: most have a few dozen, some a thousand."""
    generator = random.Random(11)
    return [min(1000, int(generator.lognormvariate(4.0, 1.2)) + 1) for _ in range(files)]


def measure(
    folder: Path, counts: Sequence[int], workers: int, span: int, seconds: float
) -> Figures:
    """Run a stage whose device needs ``seconds`` in all."""
    files, residues = make_files(folder, counts)
    stage = Counting(files, folder, span, seconds / residues, batch=64)
    first: list[float] = []

    def see(event: Event) -> None:
        if isinstance(event, TaskStarted) and not first:
            first.append(time.perf_counter())

    devices = [Device("cpu", index) for index in range(workers)]
    executor = Executor(ProcessPool(devices, tokenizer_threads=1), host_threads=workers)
    try:
        # Everybody is ready before the clock starts, as in a run where loading is shared work.
        warm = folder / "warm"
        warm.mkdir()
        some = make_files(warm, [1] * workers * 2)[0]
        run_stage(Counting(some, warm, seconds_per_base=0.01), executor, warm)
        outcomes, events = run_stage(stage, executor, folder, see)
        elapsed = time.perf_counter() - first[0]
    finally:
        executor.close()
    reports = [event for event in events if isinstance(event, WorkerReport)]
    busy, idle = sum(r.busy for r in reports), sum(r.idle for r in reports)
    return Figures(elapsed, busy, idle, len(outcomes))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="1,2,4,8", help="numbers of workers")
    parser.add_argument("--spans", default="1000,500,250,125", help="sequences a span")
    parser.add_argument("--seconds", type=float, default=24.0, help="device time in all")
    options = parser.parse_args()
    print(f"{'work':28} {'span':>5} {'workers':>7} {'tasks':>5} {'seconds':>8} {'gain':>5} idle")
    for name, counts in (("one file of 10,000", [10_000]), ("200 uneven files", uneven())):
        for span in map(int, options.spans.split(",")):
            for workers in map(int, options.workers.split(",")):
                with tempfile.TemporaryDirectory() as folder:
                    f = measure(Path(folder), counts, workers, span, options.seconds)
                share = 100 * f.idle / (f.idle + f.busy)
                print(
                    f"{name:28} {span:5} {workers:7} {f.tasks:5} {f.elapsed:8.2f} {f.gain:5.2f} "
                    f"{share:.1f} %",
                    flush=True,
                )


if __name__ == "__main__":
    main()
