"""A program that runs the counting stage on two workers: to be interrupted and killed.

python -m tests.faults.program FOLDER SECONDS_PER_BASE
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.contract.counting import Counting
from tests.contract.running import run_stage
from virnucpro.contracts import Device
from virnucpro.errors import RunInterruptedError
from virnucpro.workers import scheduler
from virnucpro.workers.processes import ProcessPool
from virnucpro.workers.scheduler import Workers
from virnucpro.workers.signals import interruptible


def main(folder: Path, seconds_per_base: float) -> int:
    files = tuple(sorted(folder.glob("f*.fa")))
    stage = Counting(files, folder, seconds_per_base=seconds_per_base)
    scheduler.GRACE = 250.0  # longer than any of its tasks
    with interruptible() as interruption:
        pool = ProcessPool([Device("cpu")] * 2, tokenizer_threads=1)
        workers = Workers(pool, interruption)
        try:
            run_stage(stage, workers, folder)
        except RunInterruptedError as error:
            return error.exit_code
        finally:
            workers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
