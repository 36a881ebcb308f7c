"""Whether a file still has the content that was hashed, told without hashing it each time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.errors import InputError, UsageError

FileStamp = tuple[int, int, int, int]
"""Device, inode, bytes and nanoseconds: what changes when a file is written to or replaced."""


@dataclass
class HashedFile:
    """A file whose content was hashed: its SHA-256 (hex), and its stamp from before it was read."""

    path: Path
    sha256: str
    stamp: FileStamp = field(compare=False)

    @property
    def changed(self) -> bool:
        """Whether it is gone or has other content; it is read only where its stamp is another."""
        try:
            if stamp_of(self.path) == self.stamp:
                return False
            found = hashed(self.path)
        except OSError:
            return True
        if found == self:
            self.stamp = found.stamp
        return found != self


def stamp_of(file: Path | int) -> FileStamp:
    """Return the stamp of a path or of an open file; OSError where it cannot be looked at."""
    status = os.stat(file)  # noqa: PTH116 - a path or a file descriptor
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def hashed(path: Path) -> HashedFile:
    """Read a file for its digest; OSError where it cannot be read."""
    with path.open("rb") as stream:
        stamp = stamp_of(stream.fileno())
        sha = hashlib.sha256()
        while block := stream.read(1 << 20):
            sha.update(block)
    return HashedFile(path, sha.hexdigest(), stamp)


def hashed_input(source: Path) -> HashedFile:
    """Read an input for its digest."""
    try:
        return hashed(source)
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}); put it back") from error


def refuse_changed_input(seen: Sequence[HashedFile]) -> None:
    """Raise InputError where a file of an input is gone or has other content than was hashed."""
    for file in seen:
        if file.changed:
            raise changed_input_error(file.path)


def changed_input_error(source: Path) -> InputError:
    """Return the error about an input that is not what it was at the start of the run."""
    return InputError(
        f"{source} changed while it was used; run the same command again when it is "
        f"whole, with --force where it has this option"
    )
