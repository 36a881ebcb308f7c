"""Runs that are interrupted or killed: what was finished is kept, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.running import fastas, written
from tests.faults.processes import family, files_under, running, until

ROOT = Path(__file__).parents[2]
IDS = [f"a{n}" for n in range(40)]  # ten files of four; all of it takes 1000 letters


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Callable[[float], subprocess.Popen[bytes]]]:
    """Starts the counting program with so many seconds a letter, in a process group of its own."""
    fastas(tmp_path, IDS, 4)
    started = []

    def _counting(seconds: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.faults.program", tmp_path, str(seconds)]
        started.append(subprocess.Popen(command, cwd=ROOT, start_new_session=True))
        return started[-1]

    yield _counting
    for process in started:
        process.kill()
        process.wait()


def _proved(folder: Path) -> set[Path]:
    return files_under(folder, ".done")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 143)]
)
def test_tasks_in_flight_are_kept_and_the_next_run_does_the_rest(counting, tmp_path, number, code):
    process = counting(0.005)
    until(lambda: _proved(tmp_path))
    workers = family(process.pid)
    before = len(_proved(tmp_path))
    os.killpg(process.pid, number)  # everybody gets it, as from a terminal or from Slurm
    assert process.wait(200) == code
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("f*.txt")}
    assert before + 1 <= len(_proved(tmp_path)) <= before + 3  # two at work, one perhaps in between
    assert len(workers) == 3
    until(lambda: not any(map(running, workers)))
    again = counting(0.0)
    assert again.wait(200) == 0
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items())
    assert written(tmp_path) == IDS


def test_a_second_signal_ends_at_once(counting, tmp_path):
    process = counting(0.1)
    until(lambda: _proved(tmp_path))
    workers = family(process.pid)
    time.sleep(0.5)  # the worker that has finished a file gets the next one
    process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130  # long before the grace is over
    until(lambda: not any(map(running, workers)))


LOST = """
import os, signal, time
from virnucpro.workers.signals import interruptible
class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
with interruptible():
    Interrupted()
    time.sleep(60)
"""


def test_a_signal_in_a_destructor_is_not_lost():
    assert subprocess.run([sys.executable, "-c", LOST], cwd=ROOT, check=False).returncode == 143


@pytest.mark.parametrize("moment", ["loading", "working"])
def test_nobody_outlives_a_parent_that_is_killed(counting, tmp_path, moment):
    process = counting(0.01)
    until(lambda: len(family(process.pid)) == 3 if moment == "loading" else _proved(tmp_path))
    workers = family(process.pid)
    process.kill()
    process.wait()
    until(lambda: not any(map(running, workers)), 60)
    assert counting(0.0).wait(200) == 0
    assert written(tmp_path) == IDS
