"""Kill a run by SIGKILL at random moments, resume it, and compare with an undisturbed one.

    python -m tools.kill_and_resume FOLDER --reads 1000000 --kills 10
    python -m tools.kill_and_resume FOLDER --reads 20000 --kills 3 --workers 2

It uses the toy model type, prints what happened, and exits with 1 if a result file differs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

RESULTS = (
    "reads_merged/prediction_results.txt",
    "reads_merged/prediction_results_highestscore.csv",
    "reads_chunks.tsv",
    "reads_contigs.tsv",
    "reads_virus.fna",
)


def make_reads(path: Path, count: int) -> None:
    """Write ``count`` reads of 100 bases, drawn from one random genome."""
    rng = random.Random(5)
    genome = "".join(rng.choices("ACGT", k=1_000_000))
    with path.open("w") as out:
        for n in range(count):
            start = rng.randrange(len(genome) - 100)
            out.write(f">r{n}\n{genome[start : start + 100]}\n")


def start(source: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    """Start or resume a run in its own session."""
    command = [sys.executable, "-m", "virnucpro", "predict", str(source), "-o", str(out)]
    command += ["-m", "toy", "-e", "100", "-q", "--resume"]
    command += ["--cpu-workers", str(workers)] if workers else ["--device", "cpu"]
    return subprocess.Popen(command, start_new_session=True)


def main() -> int:
    """Kill, resume and compare; see the docstring of the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    source = options.folder / "reads.fa"
    undisturbed, killed = options.folder / "undisturbed", options.folder / "killed"
    for out in (undisturbed, killed):
        shutil.rmtree(out, ignore_errors=True)
    make_reads(source, options.reads)
    started_at = time.monotonic()
    assert start(source, undisturbed, options.workers).wait() == 0
    alone = time.monotonic() - started_at
    print(f"undisturbed: {options.reads} reads in {alone:.1f} s", flush=True)
    rng = random.Random(options.seed)
    kills = 0
    while kills < options.kills:
        process = start(source, killed, options.workers)
        # On average, the time before all kills together is some half of the time of the work.
        wait = rng.uniform(0.2, 1.2) * 0.7 * alone / options.kills
        try:
            process.wait(wait)
            break  # it finished before it was killed
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            print(f"killed after {wait:.1f} s", flush=True)
    code = start(source, killed, options.workers).wait()
    same = [(undisturbed / n).read_bytes() == (killed / n).read_bytes() for n in RESULTS]
    print(f"{kills} kills, then exit {code}; {sum(same)} of {len(same)} result files equal")
    return 0 if code == 0 and all(same) and kills else 1


if __name__ == "__main__":
    sys.exit(main())
