"""Lock files: one process at a time works on the same thing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TextIO

import msgspec

from virnucpro.errors import LockedError
from virnucpro.layout import state_folders
from virnucpro.store.disk import (
    HOST_NAME,
    explain_write_errors,
    is_running,
    open_without_links,
    refuse_linked_state,
)
from virnucpro.store.documents import parse_json

# The error numbers of flock on a file system that has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

LOOK_SECONDS = 0.1  # a look at who holds a lock takes far less

A_RUN = "this input"  # what a run of predict or train embed holds a lock for


@dataclass(frozen=True)
class LockOwner:
    """The process ``pid`` on ``host`` that took a lock at the time ``since``.

    ``work`` is what it works on, in words.
    """

    host: str
    pid: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    since: Annotated[int, msgspec.Meta(ge=0, lt=1 << 33)]  # seconds of the Unix epoch
    work: str = A_RUN

    def __str__(self) -> str:
        """Return ``process 12 on node7, running since 2026-11-21 08:00:00``."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, running since {since}"

    @property
    def is_dead(self) -> bool:
        """Whether it was a process of this machine that has certainly ended, or is this one."""
        return self.host == HOST_NAME and not is_running(self.pid)


def read_owner(path: Path) -> LockOwner | None:
    """Return who wrote the lock file last; None where the lock was left, or never taken."""
    try:
        with open(path, "rb", opener=open_without_links) as stream:
            return msgspec.convert(parse_json(stream.read()), LockOwner)
    except (OSError, ValueError):
        return None


def holder(path: Path) -> LockOwner | None:
    """Return who holds the lock file now; None where nobody does. Nobody is kept from taking it.

    A process that was lost, here or on another host, holds nothing, whatever it wrote.
    """
    try:
        with open(path, opener=open_without_links) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
    except BlockingIOError:
        return read_owner(path)
    except OSError:  # there is no file, or the file system has no locks
        owner = read_owner(path)
        return None if owner is None or owner.is_dead else owner


@contextmanager
def locked(path: Path, work: str = A_RUN, *, wait: bool = False) -> Iterator[LockOwner | None]:
    """Hold the lock file ``path`` for the duration of the block.

    ``wait`` waits until it is free; otherwise LockedError says at once who holds it. ``work`` says
    what is worked on, for the messages of others. Yields a process that held the lock and ended
    without leaving it, if there was one.

    The file is never unlinked: a lock on an unlinked file excludes nobody. The kernel releases it
    when the process ends, however it ends, also on another host of a network file system; so a
    stale owner does not block. Where the file system has no locks, the name in the file counts.
    """
    refuse_linked_state(path)
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "a+", opener=open_without_links)  # noqa: SIM115
    with stream:
        _acquire(stream, path, work, wait)
        stale = read_owner(path)
        owner = LockOwner(HOST_NAME, os.getpid(), int(time.time()), work)
        with explain_write_errors(path):
            stream.truncate(0)
            text = json.dumps(asdict(owner)).encode()
            os.write(stream.fileno(), text)  # not through a buffer, which would be flushed again
        try:
            yield stale
        finally:
            with explain_write_errors(path):
                stream.truncate(0)


def refuse_held(path: Path) -> None:
    """Raise LockedError at once where another process holds a lock; :func:`locked` takes it."""
    # Where it cannot be opened, there is none, or locked() will say what is wrong with it.
    with suppress(OSError), open(path, "r+", opener=open_without_links) as stream:
        _acquire(stream, path, A_RUN, wait=False)


def _acquire(stream: TextIO, path: Path, work: str, wait: bool) -> None:
    try:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:  # perhaps by a look of holder(), which is over by now
            time.sleep(LOOK_SECONDS)
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except OSError as error:
        owner = read_owner(path)
        if error.errno in _NO_LOCKS:
            if owner is None or owner.is_dead:
                return
        elif not isinstance(error, BlockingIOError):
            raise
    # Locks are at different depths below the output directory.
    folders = state_folders(path)
    place = folders[-1].parent if folders else path.parent
    raise LockedError(
        f"{f'{owner},' if owner else 'another process'} is working on {work} in {place}; wait for "
        f"it to finish, or choose another output (where that process is gone and the file system "
        f"has no locks, delete {path})"
    ) from None
