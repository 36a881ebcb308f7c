"""Measure what the parent process can do for its workers at most, and how many H200s that feeds.

    python -m benchmarks.parent [--workers 64] [--files 200]

Three things are measured, each in CPU seconds of the parent process and in elapsed seconds:

    hand out   give a span to one of the workers, take its result, write the receipt and the log;
               the workers do nothing, so that the parent never waits for them
    join       make a feature file of 10,000 frames of its part files, in one thread; two work
    transfer   write the features of a span that came through Ray (--cluster-files transfer)

A row is a kind of work: spans of a molecule with the width of the released encoder. ``H200s`` is
computed: the rate of the row, by CPU seconds, divided by the frames that one H200 embeds per second
by arithmetic (ESM-2 3B 821, DNABERT-S 34,300).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from virnucpro.executors.transfer import Delivery, FilesOnDisk

from benchmarks.scheduling import make_files
from tests.contract.counting import Counting
from tests.contract.running import run_stage
from virnucpro.contracts import Device, SessionFigures, Task, TaskResult
from virnucpro.executors.executor import Executor
from virnucpro.executors.pool import TaskCompleted
from virnucpro.executors.processes import ProcessPool
from virnucpro.layout import Molecule, RunLayout
from virnucpro.settings import DisplaySettings
from virnucpro.stages.embedding import LEAST_SPAN, EmbeddingStage
from virnucpro.store.disk import Disk
from virnucpro.store.features import Features, encode_features
from virnucpro.ui.run_screen import RunScreen

SPANS_PER_FILE = 40
FRAMES = 10_000  # of a split file
WIDTH = {"nucleotide": 768, "protein": 2560}
# Frames of a chunk of 500 bases per second: 790 TFLOP/s over the FLOP of a frame.
FRAMES_PER_H200 = {"nucleotide": 34_300, "protein": 821}


@dataclass
class Seconds:
    """CPU seconds of this process, and elapsed seconds."""

    cpu: float = 0.0
    elapsed: float = 0.0


@contextmanager
def measured() -> Iterator[Seconds]:
    """Measure a block."""
    seconds, cpu, began = Seconds(), time.process_time(), time.perf_counter()
    yield seconds
    seconds.cpu, seconds.elapsed = time.process_time() - cpu, time.perf_counter() - began


def hand_out(folder: Path, workers: int, files: int) -> tuple[Seconds, int]:
    """Have workers carry out spans of one short sequence; return the seconds and the spans."""
    paths, _ = make_files(folder, [SPANS_PER_FILE] * files)
    stage = Counting(paths, folder, span=1)
    devices = [Device("cpu", index) for index in range(workers)]
    executor = Executor(ProcessPool(devices, tokenizer_threads=1), host_threads=1)
    display = DisplaySettings(level="WARNING")
    try:
        with RunScreen(display, RunLayout(folder, "log", 500)) as screen:
            warm = folder / "warm"
            warm.mkdir()
            run_stage(
                Counting(make_files(warm, [workers * 2])[0], warm, span=1), executor, warm
            )  # all workers are ready before the clock starts
            with measured() as seconds:
                outcomes, _ = run_stage(stage, executor, folder, screen.show)
    finally:
        executor.close()
    return seconds, len(outcomes)


def part_features(molecule: Molecule, count: int) -> bytes:
    """Return the content of a part file."""
    ids = [f"NC_045512.2_chunk_{n}_F1" for n in range(count)]
    rows = Features(ids, torch.rand(count, WIDTH[molecule]))
    return b"".join(bytes(piece) for piece in encode_features(rows, molecule))


def join(folder: Path, molecule: Molecule) -> Seconds:
    """Join the parts of a split file."""
    layout, disk = RunLayout(folder, "x", 500), Disk()
    stage = EmbeddingStage(layout, disk, molecule, None, "bf16", 1024, None)  # type: ignore[arg-type]
    content, size = part_features(molecule, LEAST_SPAN[molecule]), LEAST_SPAN[molecule]
    parts = []
    for start in range(0, FRAMES, size):
        path = layout.part(molecule, 1, start, start + size)
        output = disk.save(path, content, size, durable=False)
        parts.append(TaskResult(_task(path), (output,)))
    whole = _task(layout.features(molecule, 1))
    with measured() as seconds:
        stage.join(whole, parts, ())
    return seconds


def transfer(folder: Path, molecule: Molecule, spans: int = 20) -> Seconds:
    """Write the features of spans that were transferred; returns the seconds per span."""
    content, disk = part_features(molecule, LEAST_SPAN[molecule]), Disk()
    files = FilesOnDisk(disk, lambda text: text)
    output = disk.save(folder / "part.pt", content, LEAST_SPAN[molecule], durable=False)
    result = TaskResult(_task(output.path, (0, LEAST_SPAN[molecule])), (output,))
    delivery = Delivery(TaskCompleted(0, result, 0.0, 0, SessionFigures()), (content,))
    with measured() as seconds:
        for _ in range(spans):
            assert isinstance(files.written(delivery), TaskCompleted)
    return Seconds(seconds.cpu / spans, seconds.elapsed / spans)


def _task(path: Path, span: tuple[int, int] | None = None) -> Task:
    return Task("x", 1, (), (path,), path.with_suffix(".done"), span=span)


def print_row(work: str, molecule: Molecule, seconds: Seconds, times: float, frames: float) -> None:
    """Print a row: ``times`` units took the seconds; ``frames`` is the frames of a unit."""
    rate = times / seconds.cpu
    fed = rate * frames / FRAMES_PER_H200[molecule]
    print(
        f"| {work} | {molecule} | {1000 * seconds.cpu / times:.2f} | "
        f"{1000 * seconds.elapsed / times:.2f} | {rate:,.0f} | {rate * frames:,.0f} | {fed:,.0f} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--files", type=int, default=200, help="of 40 spans each")
    options = parser.parse_args()
    print("| work | molecule | CPU ms | elapsed ms | per second | frames/s | H200s |")
    print("|---|---|---|---|---|---|---|")
    molecules: tuple[Molecule, ...] = ("protein", "nucleotide")
    with tempfile.TemporaryDirectory() as folder:
        seconds, spans = hand_out(Path(folder), options.workers, options.files)
    for molecule in molecules:
        print_row("hand out", molecule, seconds, spans, LEAST_SPAN[molecule])
        with tempfile.TemporaryDirectory() as folder:
            print_row("join", molecule, join(Path(folder), molecule), 1, FRAMES)
            written = transfer(Path(folder), molecule)
            print_row("transfer", molecule, written, 1, LEAST_SPAN[molecule])


if __name__ == "__main__":
    main()
