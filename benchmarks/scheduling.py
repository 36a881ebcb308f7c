"""Measure how well N workers share work on devices that only sleep, in proportion to the tokens.

    python -m benchmarks.scheduling [--workers 1,2,4,8] [--seconds 24] [--frames 10000] [--slow 0]

``gain`` is the device time of all tasks divided by the time from the first task to the last commit:
how many times faster the workers are than one worker that never waits. The split files are as large
as those of a run, and receipts are written as there. ``idle`` is the share of the workers' time
without a task, from their reports. ``--slow`` workers have half the speed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.contract.counting import Counting
from tests.contract.running import run_stage
from virnucpro.contracts import Device
from virnucpro.events import Event, TaskStarted, WorkerReport
from virnucpro.executors.executor import Executor
from virnucpro.executors.processes import ProcessPool
from virnucpro.stages.splitting import frames_per_file


def make_files(folder: Path, counts: Sequence[int]) -> tuple[tuple[Path, ...], int]:
    """Write FASTA files with so many proteins of 30 to 166 residues, and count the residues."""
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


def print_row(counts: Sequence[int], workers: int, seconds: float, slow: int, folder: Path) -> None:
    """Run a stage on files of so many sequences, whose devices need ``seconds`` in all."""
    files, residues = make_files(folder, counts)
    first: list[float] = []

    def note_first_task(event: Event) -> None:
        if isinstance(event, TaskStarted) and not first:
            first.append(time.perf_counter())

    devices = [Device("cpu", index) for index in range(workers)]
    executor = Executor(ProcessPool(devices, tokenizer_threads=1), host_threads=workers)
    try:
        # All workers are ready before the clock starts. The time of loading is not measured.
        warm = folder / "warm"
        warm.mkdir()
        some = make_files(warm, [1] * workers * 2)[0]
        run_stage(Counting(some, warm, seconds_per_base=0.01), executor, warm)
        stage = Counting(files, folder, seconds / residues, batch=64, slow=slow)
        outcomes, events = run_stage(stage, executor, folder, note_first_task)
        elapsed = time.perf_counter() - first[0]
    finally:
        executor.close()
    reports = [event for event in events if isinstance(event, WorkerReport)]
    busy, idle = sum(r.busy for r in reports), sum(r.idle for r in reports)
    print(
        f"{workers:7} {len(outcomes):5} {elapsed:8.2f} {seconds / elapsed:5.2f} "
        f"{100 * idle / (idle + busy):.1f} %",
        flush=True,
    )


def main() -> None:
    """Print a row per number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="1,2,4,8", help="numbers of workers")
    parser.add_argument("--seconds", type=float, default=24.0, help="device time in all")
    parser.add_argument("--frames", type=int, default=10_000, help="of the input")
    parser.add_argument("--slow", type=int, default=0, help="workers at half speed")
    options = parser.parse_args()
    print(f"{'workers':>7} {'files':>5} {'seconds':>8} {'gain':>5} idle")
    size = frames_per_file(options.frames, proteins=True)
    full, rest = divmod(options.frames, size)
    counts = [size] * full + [rest] * (rest > 0)
    for workers in map(int, options.workers.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            print_row(counts, workers, options.seconds, options.slow, Path(folder))


if __name__ == "__main__":
    main()
