"""Whether a file still has the content that was hashed, told without hashing it each time.

A digest is taken when a run is prepared, and the file is read later, perhaps by eight processes and
perhaps after somebody has replaced it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """What changes when a file is written to or replaced; times are in nanoseconds."""

    device: int
    inode: int
    size: int
    modified_ns: int


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
    return FileStamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def hashed(path: Path) -> HashedFile:
    """Read a file for its digest; OSError where it cannot be read."""
    with path.open("rb") as stream:
        stamp = stamp_of(stream.fileno())
        sha = hashlib.sha256()
        while block := stream.read(1 << 20):
            sha.update(block)
    return HashedFile(path, sha.hexdigest(), stamp)
