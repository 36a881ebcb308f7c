"""One running process for an input in an output directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from virnucpro.errors import LockedError
from virnucpro.store.disk import host_name, unwritable

# What flock answers on a file system that has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class Owner:
    """Who holds a lock, as written in its file. ``since`` is in seconds of the Unix epoch."""

    host: str
    pid: int
    since: int

    def __str__(self) -> str:
        """``process 12 on node7, running since 2026-11-21 08:00:00``."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, running since {since}"

    @property
    def surely_dead(self) -> bool:
        """Whether it was a process of this machine that is no more."""
        if self.host != host_name():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return self.pid == os.getpid()


def read_owner(path: Path) -> Owner | None:
    """Who wrote the lock file last; None where nobody did, or whoever did has left it."""
    try:
        document = json.loads(path.read_text())
        return Owner(str(document["host"]), int(document["pid"]), int(document["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[Owner | None]:
    """Hold ``path`` for the duration of the block; ``wait`` until it is free, or refuse at once.

    The file is never unlinked: a lock on an unlinked file excludes nobody. The kernel releases it
    when the process ends, however it ends, also on another host of a network file system; so a
    stale owner does not block. Where the file system has no locks, the name in the file counts.

    Yields:
        The stale owner: a process that held the lock and did not leave it in good order.

    Raises:
        LockedError: another process holds it; the message names the owner (exit 5).
        OutputError: the file cannot be written.
    """
    with unwritable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+")
    with stream:
        _acquire(stream, path, wait)
        stale = read_owner(path)
        with unwritable(path):
            _write(stream, json.dumps(asdict(Owner(host_name(), os.getpid(), int(time.time())))))
        try:
            yield stale
        finally:
            with unwritable(path):
                _write(stream, "")


def _acquire(stream: TextIO, path: Path, wait: bool) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise _refusal(path) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        owner = read_owner(path)
        if owner is not None and not owner.surely_dead:
            raise _refusal(path) from None


def _refusal(path: Path) -> LockedError:
    owner = read_owner(path)
    who = f"{owner}," if owner else "another process"
    return LockedError(
        f"{who} is working on this input in {path.parent.parent}; wait for it to finish, or choose "
        f"another --output-dir (where that process is gone and the file system has no locks, "
        f"delete {path})"
    )


def _write(stream: TextIO, text: str) -> None:
    stream.seek(0)
    stream.truncate()
    stream.write(text)
    stream.flush()
