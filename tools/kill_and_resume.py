"""Kill a run by SIGKILL at random moments, resume it, and compare with an undisturbed one.

    python -m tools.kill_and_resume FOLDER --reads 1000000 --kills 10
    python -m tools.kill_and_resume FOLDER --reads 20000 --kills 3 --workers 2
    python -m tools.kill_and_resume FOLDER --reads 20000 --length 600 --kills 50 -- -m lite -e 500

What follows ``--`` are options of ``predict``; without them, the toy model type is used. All starts
are forked from this process, which has imported what they import, so that a start costs a fraction
of a second and not several. An undisturbed run is measured first. Four of five kills come after a
start has proved new work, so that each of these starts gets on, and so much later that all of them
together do about 70 % of the run; the fifth comes while the program still starts. The program prints
what happened, and exits with 1 if a result file differs, or if the run ended before the first kill.
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import random
import shutil
import sys
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import tests.preloaded  # noqa: F401
from tests.faults.processes import files_under
from tools.fault_sweep import RESULTS as RESULTS_OF_IN
from virnucpro.cli import run
from virnucpro.layout import Layout

RESULTS = [name.replace("in_", "reads_", 1) for name in RESULTS_OF_IN]
TOY = ("-m", "toy", "-e", "100")
POLL_SECONDS = 0.005
KILLED_AT_WORK = 0.8  # share of the kills that come after new work was proved
WORK_BEFORE_KILLS = 0.7  # share of the work that is done by all starts that are killed


def make_reads(path: Path, count: int, length: int = 100) -> None:
    """Write ``count`` reads of ``length`` bases, drawn from one random genome."""
    rng = random.Random(5)
    genome = "".join(rng.choices("ACGT", k=1_000_000))
    with path.open("w") as out:
        for n in range(count):
            start = rng.randrange(len(genome) - length)
            out.write(f">r{n}\n{genome[start : start + length]}\n")


def carry_out(arguments: list[str]) -> None:
    """Run a command line in a session of its own."""
    os.setsid()
    sys.exit(run(arguments))


def start(source: Path, out: Path, predict_options: list[str]) -> BaseProcess:
    """Start or resume a run."""
    arguments = ["predict", str(source), "-o", str(out), *predict_options, "-q", "--resume"]
    process = multiprocessing.get_context("fork").Process(target=carry_out, args=(arguments,))
    process.start()
    return process


def proved_work(out: Path) -> set[tuple[Path, int]]:
    """Return the files of receipts in a folder, each with its time of change."""
    proofs = set()
    for path in files_under(out, ".done") | files_under(out, "receipts.json"):
        with suppress(FileNotFoundError):  # a run that ends removes some receipts
            proofs.add((path, path.stat().st_mtime_ns))
    return proofs


def seconds_until_work(process: BaseProcess, out: Path) -> float:
    """Wait until a start has proved new work, or has ended; return how long that took."""
    started_at, before = time.monotonic(), proved_work(out)
    while process.is_alive() and not proved_work(out) - before:
        time.sleep(POLL_SECONDS)
    return time.monotonic() - started_at


def killed_after(process: BaseProcess, out: Path, wait: float) -> bool:
    """Kill a run after ``wait`` seconds; return False where it had ended before."""
    process.join(wait)
    if not process.is_alive():
        return False
    process.kill()
    process.join()
    # Workers that were forked hold the lock of the run until they end, too.
    with suppress(FileNotFoundError), Layout(out, "reads").lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
    return True


def main() -> int:
    """Kill, resume and compare; see the docstring of the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=100, help="bases of a read")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options, predict_options = parser.parse_args(words[:end]), words[end + 1 :] or [*TOY]
    workers = ["--cpu-workers", str(options.workers)]
    predict_options += workers if options.workers else ["--device", "cpu"]
    options.folder.mkdir(parents=True, exist_ok=True)
    source = options.folder / "reads.fa"
    undisturbed, killed = options.folder / "undisturbed", options.folder / "killed"
    for out in (undisturbed, killed):
        shutil.rmtree(out, ignore_errors=True)
    make_reads(source, options.reads, options.length)

    started_at = time.monotonic()
    process = start(source, undisturbed, predict_options)
    start_seconds = seconds_until_work(process, undisturbed)
    process.join()
    assert process.exitcode == 0, "the undisturbed run failed"
    work_seconds = time.monotonic() - started_at - start_seconds
    print(f"undisturbed: {start_seconds:.1f} s of start, {work_seconds:.1f} s of work", flush=True)

    rng = random.Random(options.seed)
    longest_wait = 2 * WORK_BEFORE_KILLS * work_seconds / (KILLED_AT_WORK * options.kills)
    kills = 0
    while kills < options.kills:
        process = start(source, killed, predict_options)
        at_work = rng.random() < KILLED_AT_WORK
        if at_work:
            seconds_until_work(process, killed)
        wait = rng.uniform(0, longest_wait if at_work else start_seconds)
        if not killed_after(process, killed, wait):
            print("the run ended before it was killed so often: use more --reads")
            break
        kills += 1
        print(
            f"kill {kills}: {wait:.2f} s after {'new work' if at_work else 'the start'}", flush=True
        )
    process = start(source, killed, predict_options)
    process.join()
    names = [n for n in RESULTS if (undisturbed / n).exists() or (killed / n).exists()]
    equal = [(undisturbed / n).read_bytes() == (killed / n).read_bytes() for n in names]
    print(f"exit {process.exitcode}; {sum(equal)} of {len(equal)} result files equal")
    return int(process.exitcode != 0 or not all(equal) or not kills)


if __name__ == "__main__":
    sys.exit(main())
