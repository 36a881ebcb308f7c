"""SIGKILL at random moments, and two runs at once."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.faults.processes import until
from tests.faults.survival import make_input
from tests.forked import run_forked


def test_a_killed_run_is_resumed_to_the_byte(tmp_path):
    options = ("--records", 2000, "--kills", 2)
    pool = ("--", "-m", "toy", "-e", 100, "--cpu-workers", 2)
    done = run_forked(tmp_path, *options, *pool, module="tools.kill_and_resume")
    assert done.code == 0, done.out + done.err


def test_of_two_runs_at_once_one_leaves_and_changes_nothing(start, tmp_path):
    """The second one starts while the first is at work, and is held there until the second ends."""
    source = tmp_path / "reads.fa"
    make_input(source, 5_000)
    command = ["virnucpro", "predict", source, "-o", tmp_path / "out"]
    command += ["-m", "toy", "-e", "100", "--device", "cpu"]
    first = start(*command)
    until(lambda: list((tmp_path / "out").glob("reads_*")) or first.poll() is not None, 200)
    first.send_signal(signal.SIGSTOP)
    before = _contents(tmp_path / "out")
    second = start(*command)
    assert second.wait() == 5
    assert "is working on this input" in second.err
    assert _contents(tmp_path / "out") == before
    first.send_signal(signal.SIGCONT)
    assert first.wait() == 0, first.err
    again = start(*command, "--resume")
    assert again.wait() == 0
    assert "already finished" in again.out


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
