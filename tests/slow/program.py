"""A program that runs the counting stage on all nodes of a cluster: to be interrupted and killed.

python -m tests.slow.program FOLDER SECONDS_PER_BASE WORKERS

It begins when so many workers have joined, and prints the notices and losses of workers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.contract.counting import Counting
from tests.contract.running import run_stage
from tests.slow.nodes import ADDRESS
from virnucpro.errors import VirNucProError
from virnucpro.events import Event, Notice, WorkerDied
from virnucpro.executors.executor import Executor
from virnucpro.executors.ray_pool import RayPool, connected, cpu_places
from virnucpro.executors.signals import interruptible


def show(event: Event) -> None:
    if isinstance(event, Notice | WorkerDied):
        print(event, flush=True)


def main(folder: Path, seconds_per_base: float, workers: int) -> int:
    files = tuple(sorted(folder.glob("f*.fa")))
    stage = Counting(files, folder, seconds_per_base=seconds_per_base)
    with interruptible() as interruption, connected(ADDRESS):
        while len(cpu_places(1)) < workers:
            time.sleep(0.1)
        pool = RayPool(lambda: cpu_places(1), 1, emit=show).gather()
        executor = Executor(pool, 1, interruption)
        try:
            run_stage(stage, executor, folder, show)
        except VirNucProError as error:
            return error.exit_code
        finally:
            executor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
