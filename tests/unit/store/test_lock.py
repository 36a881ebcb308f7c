"""Who holds a lock, and who left it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from virnucpro.store.disk import host_name
from virnucpro.store.lock import LockOwner, locked, read_owner


@pytest.mark.parametrize(("host", "dead"), [(host_name(), True), ("elsewhere", False)])
def test_the_process_that_did_not_leave_a_lock_is_named(
    tmp_path: Path, host: str, dead: bool
) -> None:
    path, earlier = tmp_path / "lock", LockOwner(host, 999_999_999, 1)
    assert earlier.is_dead is dead
    path.write_text(json.dumps(asdict(earlier)))
    with locked(path) as stale:
        owner = read_owner(path)
        assert stale == earlier
        assert owner is not None
        assert (owner.host, owner.pid) == (host_name(), os.getpid())
    assert read_owner(path) is None
