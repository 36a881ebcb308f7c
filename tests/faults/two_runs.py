"""Two runs in one output directory, with sequences that fail, while workers are killed at random.

    python -m tests.faults.two_runs FOLDER --records 20000 --kills 20 --seed 1

Both use the toy model type on two worker processes each. The results, the table of failures and
the failed records must be those of the same two runs, one after the other and without kills. A
kill waits until the run has proved more work since its last one, so that no task is killed twice
and taken for the cause. Exits with 1 where a file differs.
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

from tests.faults.poisoned_run import make_request
from tests.faults.processes import files_under, workers_of

STEMS = ("first", "second")
RESULTS = (
    "{}_contigs.tsv",
    "{}_chunks.tsv",
    "{}_virus.fna",
    "{}_merged/prediction_results.txt",
    "{}_failed_sequences.fa",
)


def start(source: Path, out: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Start a run in its own session."""
    command = [sys.executable, "-m", "tests.faults.poisoned_run", str(source), str(out)]
    return subprocess.Popen([*command, str(seconds)], start_new_session=True)


def proved(out: Path, stem: str) -> int:
    """Return how many feature files of a run are proved."""
    return sum(path.parts[len(out.parts)].startswith(stem) for path in files_under(out, ".pt.done"))


def kill_workers(
    runs: dict[str, subprocess.Popen[bytes]], out: Path, kills: int, rng: random.Random
) -> int:
    """Kill workers of runs that go forward, until both have ended; returns how many were killed."""
    at_last_kill = dict.fromkeys(runs, 0)
    killed = 0
    while any(run.poll() is None for run in runs.values()):
        time.sleep(rng.uniform(0.02, 0.3))
        stem = rng.choice(STEMS)
        workers = workers_of(runs[stem].pid)
        forward = proved(out, stem) > at_last_kill[stem]
        if killed < kills and len(workers) == 2 and forward:
            os.kill(rng.choice(workers), signal.SIGKILL)
            at_last_kill[stem] = proved(out, stem)
            killed += 1
            print(f"killed a worker of {stem} after {at_last_kill[stem]} files", flush=True)
    return killed


def contents(out: Path) -> dict[str, list[bytes]]:
    """Return the lines of all results; those of the table of failures are in no fixed order."""
    names = [name.format(stem) for stem in STEMS for name in RESULTS]
    lines = {name: (out / name).read_bytes().splitlines() for name in names}
    return lines | {"table": sorted((out / "failed_files.txt").read_bytes().splitlines())}


def main() -> int:
    """Run, kill and compare; see the docstring of the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.3, help="per task, to be killed in")
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    quiet, disturbed = folder / "undisturbed", folder / "disturbed"
    sources = {stem: folder / f"{stem}.fa" for stem in STEMS}
    for path in (quiet, disturbed):
        shutil.rmtree(path, ignore_errors=True)
    for number, source in enumerate(sources.values()):
        source.unlink(missing_ok=True)
        make_request(source, quiet, options.records + number)
        assert start(source, quiet, 0.0).wait() == 0
    runs = {stem: start(sources[stem], disturbed, options.seconds) for stem in STEMS}
    killed = kill_workers(runs, disturbed, options.kills, random.Random(options.seed))
    codes = [run.wait() for run in runs.values()]
    before, after = contents(quiet), contents(disturbed)
    same = [before[name] == after[name] for name in before]
    print(f"{killed} workers killed, exit codes {codes}; {sum(same)} of {len(same)} files equal")
    return 0 if codes == [0, 0] and all(same) and killed else 1


if __name__ == "__main__":
    sys.exit(main())
