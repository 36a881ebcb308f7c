"""SIGKILL at random moments, and two runs at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.processes import until
from tools.kill_and_resume import make_reads

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_killed_run_is_resumed_to_the_byte(tmp_path: Path, workers: str) -> None:
    command = [sys.executable, "-m", "tools.kill_and_resume", str(tmp_path)]
    command += ["--reads", "10000", "--kills", "3", "--workers", workers, "--seed", workers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_runs_in_one_folder_while_workers_die(tmp_path: Path) -> None:
    """Some of their sequences fail too: the table of failures belongs to both."""
    command = [sys.executable, "-m", "tools.two_runs", str(tmp_path), "--kills", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_of_two_runs_at_once_one_leaves_and_changes_nothing(tmp_path: Path) -> None:
    """The second one starts while the first is at work, and is held there until the second ends."""
    source = tmp_path / "reads.fa"
    make_reads(source, 10_000)
    command = [sys.executable, "-m", "virnucpro", "predict", str(source)]
    command += ["-o", str(tmp_path / "out"), "-m", "toy", "-e", "100", "--device", "cpu"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    first = start()
    until(lambda: list((tmp_path / "out").glob("reads_*")) or first.poll() is not None, 200)
    first.send_signal(signal.SIGSTOP)
    before = _contents(tmp_path / "out")
    second = start()
    assert "is working on this input" in second.communicate(timeout=200)[1]
    assert second.returncode == 5
    assert _contents(tmp_path / "out") == before
    first.send_signal(signal.SIGCONT)
    errors = first.communicate(timeout=200)[1]
    assert first.returncode == 0, errors
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    assert "already finished" in again.stdout


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
