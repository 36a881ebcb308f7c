"""Measure what looking for copies of frames costs, and from which share of copies it pays.

    python -m benchmarks.copies [--frames 200000]

Frames without a copy are written into split files with and without ``--dedup``, in turns. An embedding
takes as long as on one H200.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.models import CHUNK
from benchmarks.whole_run import RATES
from virnucpro.contracts import MOLECULES
from virnucpro.layout import Layout
from virnucpro.stages.splitting import SplittingStage
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger

ROUNDS = 3
LETTERS = {"nucleotide": ("ACGT", CHUNK - 2), "protein": ("ACDEFGHIKLMNPQRSTVWY", CHUNK // 3)}


def write_frames(layout: Layout, frames: int) -> None:
    """Write frames of random letters."""
    for molecule in MOLECULES:
        letters, length = LETTERS[molecule]
        draw = random.Random(frames)
        with layout.frames[molecule].open("w") as file:
            for number in range(frames):
                text = "".join(draw.choices(letters, k=length))
                file.write(f">r{number}_chunk_1F1\n{text}\n")


def split(layout: Layout, *, dedup: bool) -> float:
    """Write the split files; returns the seconds of the processor."""
    stage = SplittingStage(layout, Disk(), dedup=dedup)
    task, began = stage.task(Ledger(layout, Disk())), time.process_time()
    stage.run(task, lambda *_: None)
    return time.process_time() - began


def main() -> None:
    """Measure in turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=200_000)
    frames = parser.parse_args().frames
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder), "frames", CHUNK)
        write_frames(layout, frames)
        rounds = [[split(layout, dedup=dedup) for dedup in (False, True)] for _ in range(ROUNDS)]
    plain, looked = (median(seconds) for seconds in zip(*rounds, strict=True))
    cost, embedding = (looked - plain) / frames, sum(1 / rate for rate in RATES.values())
    print(
        f"{frames:,} frames are split in {plain:.2f} s, and in {looked:.2f} s with a look for copies"
    )
    print(f"cost {1e6 * cost:.1f} us per frame; an embedding takes {1e6 * embedding:.0f} us")
    print(f"pays from a share of copies of {cost / embedding:.2%}")


if __name__ == "__main__":
    main()
