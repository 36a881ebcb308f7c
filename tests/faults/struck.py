"""A command that meets something at its N-th write: a full disk, Ctrl-C, or a kill.

python -m tests.faults.struck N WORDS

carries out ``virnucpro WORDS`` and is killed at its N-th write, of which half is on the disk then.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO

from virnucpro.store.disk import Bytes, Disk

Write = Callable[[Disk, BinaryIO, Bytes], None]


def struck_write(number: int, strike: Callable[[], None]) -> Write:
    """What takes the place of ``Disk.write``, so that the write of this number, from 1, is torn."""
    write, count = Disk.write, 0

    def torn(disk: Disk, stream: BinaryIO, data: Bytes) -> None:
        nonlocal count
        count += 1
        if count == number:
            write(disk, stream, data[: len(data) // 2])
            strike()
            data = data[len(data) // 2 :]
        write(disk, stream, data)

    return torn


def full() -> None:
    """Fail as a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt() -> None:
    """Do what Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


def kill() -> None:
    """End at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Carry out a command until it is killed."""
    from virnucpro.cli import run

    Disk.write = struck_write(int(sys.argv[1]), kill)  # type: ignore[method-assign]
    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
