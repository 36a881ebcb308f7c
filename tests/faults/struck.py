"""A command that something strikes at its n-th operation on the disk.

    python -m tests.faults.struck STRIKE N COMMAND ...

A write is torn: half of its data is on the disk then. With ``STRIKE`` before a slash, as in
``stop/failing``, the toy encoders fail on some sequences, so that what a run writes of failures is
written, too. The last line on standard output is the number of operations.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import BinaryIO

from tests.cli.inputs import poisoned
from virnucpro.cli import run
from virnucpro.store.disk import Bytes, Disk

STOPPED = 99
VERBS = ("open_new", "sync", "sync_folder", "rename", "unlink", "mkdir", "rmdir")


def _fail(number: int) -> None:
    raise OSError(number, os.strerror(number))


def _interrupt(number: int) -> None:
    os.kill(os.getpid(), number)


# With the exit code of a start that is struck.
STRIKES: dict[str, tuple[Callable[[], object], int]] = {
    "none": (lambda: None, 0),
    "stop": (lambda: os._exit(STOPPED), STOPPED),
    "EIO": (partial(_fail, errno.EIO), 6),
    "ENOSPC": (partial(_fail, errno.ENOSPC), 6),
    "EDQUOT": (partial(_fail, errno.EDQUOT), 6),
    "EROFS": (partial(_fail, errno.EROFS), 6),
    "SIGINT": (partial(_interrupt, signal.SIGINT), 130),
    "SIGTERM": (partial(_interrupt, signal.SIGTERM), 143),
}


def is_poisonous(sequence: str) -> bool:
    """Whether the toy encoders are to fail on a sequence: on one of fifty."""
    return sum(map(ord, sequence)) % 50 == 7


class Struck:
    """Counts the operations of ``Disk`` in this process, and strikes at the one ``at``, from 1."""

    def __init__(self, strike: Callable[[], object], at: int) -> None:
        self.count, self._strike, self._at = 0, strike, at
        write = Disk.write

        def torn(disk: Disk, stream: BinaryIO, data: Bytes) -> None:
            if self._is_due():
                write(disk, stream, data[: len(data) // 2])
                self._strike()
                data = data[len(data) // 2 :]
            write(disk, stream, data)

        setattr(Disk, "write", torn)  # noqa: B010 - mypy refuses the assignment
        for name in VERBS:
            is_static = isinstance(vars(Disk)[name], staticmethod)
            verb = self._struck(getattr(Disk, name))
            setattr(Disk, name, staticmethod(verb) if is_static else verb)

    def _is_due(self) -> bool:
        self.count += 1
        return self.count == self._at

    def _struck(self, verb: Callable[..., object]) -> Callable[..., object]:
        def struck(*arguments: object) -> object:
            if self._is_due():
                self._strike()
            return verb(*arguments)

        return struck


def main() -> int:
    """Strike a command; see the docstring of the module."""
    strike, _, failing = sys.argv[1].partition("/")
    with ExitStack() as stack:
        if failing:
            stack.enter_context(poisoned(is_poisonous))
        struck = Struck(STRIKES[strike][0], int(sys.argv[2]))
        code = run(sys.argv[3:])
    print(struck.count)
    return code


if __name__ == "__main__":
    sys.exit(main())
