"""One running process for an input in an output directory."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from virnucpro.checkpoint.disk import host_name, unwritable
from virnucpro.errors import LockedError


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold ``path`` for the duration of the block; ``wait`` until it is free, or refuse at once.

    The file is never unlinked (a lock on an unlinked file excludes nobody); the kernel releases
    it when the process ends, however it ends, so a stale owner cannot block a run.

    Raises:
        LockedError: another process holds it; the message names the owner (exit 5).
        OutputError: the file cannot be created.
    """
    with unwritable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+")
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise LockedError(_describe(path)) from None
        stream.seek(0)
        stream.truncate()
        json.dump({"host": host_name(), "pid": os.getpid(), "since": int(time.time())}, stream)
        stream.flush()
        yield


def _describe(path: Path) -> str:
    try:
        owner = json.loads(path.read_text())
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["since"]))
        who = f"process {owner['pid']} on {owner['host']}, running since {since},"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return (
        f"{who} is working on this input in {path.parent.parent}; wait for it to finish, "
        f"or choose another --output-dir"
    )
