"""Measure what the parent process can do for its workers at most, and how many H200s that feeds.

    python -m benchmarks.parent [--workers 64] [--files 2000]

It gives a split file to one of the workers and takes its result, with log and screen; the workers do
nothing, so that the parent never waits for them. ``H200s`` is computed: the rate by CPU seconds of
the parent process, divided by the frames that one H200 embeds per second by arithmetic (ESM-2 3B
821, DNABERT-S 34,300), for the split files of a run of a million frames.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.scheduling import make_files
from tests.contract.counting import Counting
from tests.contract.running import run_stage
from virnucpro.contracts import Device
from virnucpro.executors.executor import Executor
from virnucpro.executors.processes import ProcessPool
from virnucpro.layout import Layout
from virnucpro.settings import DisplaySettings
from virnucpro.stages.splitting import frames_per_file
from virnucpro.ui.dashboard import RunScreen

# Frames of a chunk of 500 bases per second: 790 TFLOP/s over the FLOP of a frame.
FRAMES_PER_H200 = {"nucleotide": 34_300, "protein": 821}


def hand_out(folder: Path, workers: int, files: int) -> tuple[float, float]:
    """Have workers carry out files of one short sequence; return CPU and elapsed seconds."""
    devices = [Device("cpu", index) for index in range(workers)]
    executor = Executor(ProcessPool(devices, tokenizer_threads=1), host_threads=1)
    warm = folder / "warm"
    warm.mkdir()
    try:
        display = DisplaySettings(level="WARNING")
        with RunScreen(display, Layout(folder, "log", 500)).shown() as screen:
            # All workers are ready before the clock starts.
            run_stage(Counting(make_files(warm, [1] * 2 * workers)[0], warm), executor, warm)
            stage = Counting(make_files(folder, [1] * files)[0], folder)
            cpu, began = time.process_time(), time.perf_counter()
            run_stage(stage, executor, folder, screen.show)
            return time.process_time() - cpu, time.perf_counter() - began
    finally:
        executor.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--files", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cpu, elapsed = hand_out(Path(folder), options.workers, options.files)
    rate = options.files / cpu
    print(
        f"{1000 * cpu / options.files:.2f} ms of CPU and {1000 * elapsed / options.files:.2f} ms per file"
    )
    for molecule, frames in FRAMES_PER_H200.items():
        fed = rate * frames_per_file(1_000_000, proteins=True) / frames
        print(f"{molecule}: feeds {fed:,.0f} H200s")


if __name__ == "__main__":
    main()
