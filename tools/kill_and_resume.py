"""Kill a run by SIGKILL at random moments, resume it, and compare with an undisturbed one.

    python -m tools.kill_and_resume FOLDER --records 500000 --kills 10
    python -m tools.kill_and_resume FOLDER --records 9000 --kills 3 -- -m toy -e 100 --cpu-workers 2
    python -m tools.kill_and_resume FOLDER --records 9000 --kills 50 -- -m lite -e 500

What follows ``--`` are options of ``predict``; without them, the toy model type is used, in one
process. All starts are forked from this process, which has imported what they import, so that a
start costs a fraction of a second and not several. An undisturbed run is measured first; all starts
that are killed get about 70 % of its time together. The program prints what happened, and exits
with 1 if a result file differs, or if the run ended before the first kill.
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
from tests.faults.survival import make_input, results
from virnucpro.cli import run
from virnucpro.layout import Layout

TOY = ("-m", "toy", "-e", "100", "--device", "cpu")
BEFORE_KILLS = 0.7  # of the time of an undisturbed run, for all starts that are killed


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


def killed_after(process: BaseProcess, out: Path, wait: float) -> bool:
    """Kill a run after ``wait`` seconds; return False where it had ended before."""
    process.join(wait)
    if not process.is_alive():
        return False
    process.kill()
    process.join()
    # Workers that were forked hold the lock of the run until they end, too.
    with suppress(FileNotFoundError), Layout(out, "in").lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
    return True


def main() -> int:
    """Kill, resume and compare; see the docstring of the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=9_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options, predict_options = parser.parse_args(words[:end]), words[end + 1 :] or [*TOY]
    options.folder.mkdir(parents=True, exist_ok=True)
    source = options.folder / "in.fa"
    undisturbed, killed = options.folder / "undisturbed", options.folder / "killed"
    for out in (undisturbed, killed):
        shutil.rmtree(out, ignore_errors=True)
    make_input(source, options.records)

    started_at = time.monotonic()
    process = start(source, undisturbed, predict_options)
    process.join()
    assert process.exitcode == 0, "the undisturbed run failed"
    seconds = time.monotonic() - started_at
    print(f"undisturbed: {seconds:.1f} s", flush=True)

    rng = random.Random(options.seed)
    kills = 0
    while kills < options.kills:
        process = start(source, killed, predict_options)
        wait = rng.uniform(0, 2 * BEFORE_KILLS * seconds / options.kills)
        if not killed_after(process, killed, wait):
            print("the run ended before it was killed so often: use more --records")
            break
        kills += 1
        print(f"kill {kills}: {wait:.2f} s after the start", flush=True)
    process = start(source, killed, predict_options)
    process.join()
    equal = results(killed) == results(undisturbed)
    print(f"exit {process.exitcode}; results are {'equal' if equal else 'NOT equal'}")
    return int(process.exitcode != 0 or not equal or not kills)


if __name__ == "__main__":
    sys.exit(main())
