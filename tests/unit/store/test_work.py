"""Whether a run may go on in a directory, and whether earlier work is the same work."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from virnucpro.errors import LockedError, ResumeRefusedError
from virnucpro.events import Event, Notice
from virnucpro.layout import Layout
from virnucpro.store.disk import HOST_NAME, Disk
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.lock import LockOwner, holder, locked, read_owner
from virnucpro.store.work import RunState, WorkIdentity, check_run, check_same, write_state

STATE = RunState("/data/s.fa", {"input": "a" * 64, "chunk length": 500, "precision": "fp32"})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, "s", 500)


@pytest.fixture
def begun(layout: Layout) -> Layout:
    """A run whose first stage is finished."""
    write_state(layout, Disk(), STATE)
    layout.receipt("chunking").write_text("{}")
    layout.contigs_table.write_text("old")
    return layout


def _check(layout: Layout, state: RunState = STATE, *, force: bool = False) -> str:
    said: list[Event] = []
    check_run(layout, Disk(), state, said.append, force=force)
    return "".join(event.message for event in said if isinstance(event, Notice))


def test_receipts_without_a_state_are_a_run_of_ours(begun):
    begun.state_file.unlink()
    assert "going on" in _check(begun)
    begun.run_record.write_text("{}")
    assert "is finished" in _check(begun)
    begun.failed_fasta.write_text(">a\nA\n")
    assert "going on" in _check(begun)
    begun.state.rename(begun.checkpoints / "gone")
    folder = begun.folders["protein"]
    folder.mkdir()
    (folder / "output_1_ESM.pt.done").write_text("{}")
    assert "going on" in _check(begun)


def test_nothing_counts_before_the_first_receipt(layout):
    write_state(layout, Disk(), STATE)
    other = RunState(STATE.source, {**STATE.decided_by, "input": "b" * 64})
    assert _check(layout, other) == ""  # the input was corrected: nothing of the run is kept


def test_force_removes_what_the_program_wrote_and_nothing_else(begun):
    disk = Disk()
    disk.save(begun.virus_table, b"ours")
    disk.save(begun.split("protein", 1), b"ours")
    (begun.folders["protein"] / "output_notes.txt").write_text("mine")
    _check(begun, force=True)
    left = {p.name for p in begun.root.rglob("*") if p.is_file()}
    assert left == {"output_notes.txt"}
    assert "going on" not in _check(begun)


def test_state_of_another_schema_is_refused(begun):
    document = unsealed(begun.state_file.read_bytes())
    begun.state_file.write_bytes(sealed({**document, "schema": 99}))
    with pytest.raises(ResumeRefusedError, match="another version") as caught:
        _check(begun)
    assert caught.value.exit_code == 3
    assert "starting over" in _check(begun, force=True)


@pytest.mark.parametrize("locks", [True, False])
def test_who_did_not_leave_a_lock_is_named(tmp_path, monkeypatch, locks):
    """Where the file system has no locks, the name in the file counts."""
    if not locks:
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "no locks")))
    for host, is_dead in (("elsewhere", False), (HOST_NAME, True)):
        path, owner = tmp_path / host, LockOwner(host, 999_999_999, 1)
        assert owner.is_dead is is_dead
        path.write_text(json.dumps(asdict(owner)))
        with nullcontext() if locks or is_dead else pytest.raises(LockedError), locked(path) as had:
            assert had == owner
        assert (read_owner(path) is None) is (locks or is_dead)
        path.write_text(json.dumps(asdict(owner)))
        assert holder(path) == (None if locks or is_dead else owner)


def test_a_look_at_who_holds_a_lock_keeps_nobody_from_taking_it(tmp_path):
    path = tmp_path / "lock"
    assert holder(path) is None
    with locked(path):
        owner = holder(path)
        assert owner is not None
        assert owner.pid == os.getpid()
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.01, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with locked(path):
            assert holder(path) is not None


EARLIER = WorkIdentity("the run of s.fa", {"input": "a" * 64, "chunk length": 500, "lengths": [1]})


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"chunk length": 300}, "chunk length: was 500, is 300"),
        ({"input": "b" * 64}, "input: was sha256 aaaaaaaaaaaa..., is sha256 bbbbbbbbbbbb..."),
        ({"precision": "fp32"}, "precision: was not set, is fp32"),
        ({"lengths": ["x" * 300]}, f'lengths: was [1], is ["{"x" * 198}...'),
        ({"lengths": ...}, "lengths: was [1], is not set"),
        ({"lengths": (1,)}, None),  # a tuple is the list that JSON makes of it
    ],
)
def test_another_identity_is_refused_and_the_change_is_named(change, row):
    settings = {n: v for n, v in {**EARLIER.settings, **change}.items() if v is not ...}
    wanted = replace(EARLIER, label="the run of moved/s.fa", settings=settings)
    if row is None:
        check_same(wanted, EARLIER, Path("out"))
        return
    with pytest.raises(ResumeRefusedError) as caught:
        check_same(wanted, EARLIER, Path("out"))
    assert f"\n  {row}\n" in str(caught.value)


PIPE_AS_LOCK = """
import sys
from pathlib import Path
from virnucpro.errors import OutputError
from virnucpro.store.lock import holder, locked
path = Path(sys.argv[1])
assert holder(path) is None
try:
    with locked(path):
        pass
except OutputError as error:
    sys.exit(error.exit_code)
"""


def test_nobody_waits_for_a_pipe_in_the_place_of_a_lock(tmp_path):
    os.mkfifo(tmp_path / "lock")
    command = [sys.executable, "-c", PIPE_AS_LOCK, tmp_path / "lock"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 6
