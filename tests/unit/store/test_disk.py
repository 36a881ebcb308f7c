"""Atomic writing, and what a full or read-only disk leaves behind: nothing."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from unittest.mock import Mock

import pytest

from tests.unit.store.noting import Noting
from virnucpro.errors import OutputError, ResumeRefusedError
from virnucpro.store.disk import BUFFER, HOST_NAME, Disk, is_running
from virnucpro.store.hashed import hashed


def test_describes_what_it_wrote(tmp_path):
    data = os.urandom(3 * BUFFER + 17)
    with Disk().create(tmp_path / "new/a.bin") as out:
        for start in range(0, len(data), 100_000):
            out.write(data[start : start + 100_000], 2)
        assert not (tmp_path / "new/a.bin").exists()
    assert (tmp_path / "new/a.bin").read_bytes() == data
    assert out.output.bytes == len(data)
    assert out.output.sha256 == hashlib.sha256(data).hexdigest() == hashed(out.output.path).sha256
    assert out.output.rows == 2 * 32


def test_data_is_safe_before_its_name(tmp_path):
    disk, folder = Noting(), ("sync folder", tmp_path.name)
    disk.save(tmp_path / "a", b"x")
    assert disk.notes == [*((verb, "a") for verb in ("open", "write", "sync", "rename")), folder]
    disk.notes.clear()
    assert disk.save(tmp_path / "b", b"x", 3, durable=False).rows == 3
    assert disk.notes == [(verb, "b") for verb in ("open", "write", "rename")]
    disk.notes.clear()
    disk.move(tmp_path / "b", tmp_path / "c")
    assert disk.notes == [("rename", "c"), folder]


def test_folders_of_files_together_are_flushed_once_whatever_happens(tmp_path):
    disk = Noting()
    with suppress(ZeroDivisionError), disk.together():
        for name in ("a", "b", "c/d"):
            disk.save(tmp_path / name, b"x")
        assert "sync folder" not in dict(disk.notes)
        raise ZeroDivisionError
    verbs = [verb for verb, _ in disk.notes]
    assert (verbs.count("sync"), verbs.count("sync folder")) == (3, 2)
    disk.save(tmp_path / "e", b"x")
    assert disk.notes[-1] == ("sync folder", tmp_path.name)


@pytest.mark.parametrize("verb", ["open", "write", "sync", "rename"])
def test_a_failing_disk_keeps_the_old_content(tmp_path, verb):
    path = tmp_path / "a"
    Disk().save(path, b"old")
    with pytest.raises(OutputError, match="free some space"):
        Noting(failing=verb).save(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_an_exception_in_the_block_leaves_nothing(tmp_path):
    with suppress(ZeroDivisionError), Disk().create(tmp_path / "a") as out:
        out.write(b"x")
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_sweep_removes_what_earlier_processes_left(tmp_path):
    dead = tmp_path / f".a.{HOST_NAME}.999999999.tmp"
    with_a_number_in_use = tmp_path / f".a.{HOST_NAME}.{os.getppid()}.tmp"
    elsewhere = tmp_path / ".a.otherhost.1.tmp"
    theirs = tmp_path / f".b.{HOST_NAME}.999999999.tmp"
    users = tmp_path / "notes.tmp"
    for path in (dead, with_a_number_in_use, elsewhere, theirs, users):
        path.touch()
    Disk().sweep(tmp_path, {"a"})
    assert sorted(tmp_path.iterdir()) == sorted([theirs, users])


def test_a_write_within_a_second_and_a_process_of_another_user_are_seen(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")
    seen, written = hashed(tmp_path / "a"), (tmp_path / "a").stat().st_mtime_ns
    (tmp_path / "a").write_text("new")
    os.utime(tmp_path / "a", ns=(written + 1, written + 1))
    assert seen.changed
    (tmp_path / "a").unlink()
    assert seen.changed
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    assert is_running(1)


def test_nothing_is_written_behind_a_linked_checkpoint_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResumeRefusedError, match="symbolic link"):
        Disk().save(tmp_path / ".checkpoints/state/a", b"x")
    assert not list((tmp_path / "elsewhere").iterdir())
