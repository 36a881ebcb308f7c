"""SIGKILL at random moments, and two runs at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.kill_and_resume import make_reads

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_killed_run_is_resumed_to_the_byte(tmp_path: Path, workers: str) -> None:
    command = [sys.executable, "-m", "tools.kill_and_resume", str(tmp_path)]
    command += ["--reads", "20000", "--kills", "3", "--workers", workers, "--seed", workers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_of_two_runs_at_once_one_leaves_and_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "reads.fa"
    make_reads(source, 60_000)
    command = [
        sys.executable,
        "-m",
        "virnucpro",
        "predict",
        str(source),
        "-o",
        str(tmp_path / "out"),
    ]
    command += ["-m", "toy", "-e", "100", "--device", "cpu"]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [run.communicate(timeout=200)[1] for run in runs]
    codes = sorted(run.returncode for run in runs)
    assert codes == [0, 5], errors
    assert "is working on this input" in "".join(errors)
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    assert "already finished" in again.stdout
