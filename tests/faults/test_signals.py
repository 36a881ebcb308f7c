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

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the counting program, or a command line, in a process group of its own."""
    started = []

    def _start(*arguments: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *map(str, arguments)]
        log = (tmp_path / "stderr").open("wb")
        with log:
            started.append(
                subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log, start_new_session=True)
            )
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.wait()


def _counting(start: Start, folder: Path, slow: float) -> subprocess.Popen[bytes]:
    if not (folder / "f0000.fa").exists():
        fastas(folder, IDS, 4)
    return start("tests.faults.program", folder, slow)


def _proved(folder: Path) -> set[Path]:
    return files_under(folder, ".done")


def _complete(folder: Path) -> bool:
    return written(folder) == IDS


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 143)]
)
def test_tasks_in_flight_are_kept_and_the_next_run_does_the_rest(start, tmp_path, number, code):
    process = _counting(start, tmp_path, 0.005)
    until(lambda: _proved(tmp_path))
    workers = family(process.pid)
    before = len(_proved(tmp_path))
    os.killpg(process.pid, number)  # everybody gets it, as from a terminal or from Slurm
    assert process.wait(200) == code
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("f*.txt")}
    assert before + 1 <= len(_proved(tmp_path)) <= before + 3  # two at work, one perhaps in between
    assert len(workers) == 3
    until(lambda: not any(map(running, workers)))
    again = _counting(start, tmp_path, 0.0)
    assert again.wait(200) == 0
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items())
    assert _complete(tmp_path)


def test_a_second_signal_ends_at_once(start, tmp_path):
    process = _counting(start, tmp_path, 0.1)
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
from virnucpro.executors.signals import interruptible
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
def test_nobody_outlives_a_parent_that_is_killed(start, tmp_path, moment):
    process = _counting(start, tmp_path, 0.01)
    until(lambda: len(family(process.pid)) == 3 if moment == "loading" else _proved(tmp_path))
    workers = family(process.pid)
    process.kill()
    process.wait()
    until(lambda: not any(map(running, workers)), 60)
    assert _counting(start, tmp_path, 0.0).wait(200) == 0
    assert _complete(tmp_path)
