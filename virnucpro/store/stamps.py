"""Whether a file is still the one that was hashed, told without hashing it again.

A digest is taken when a run is prepared, and the file is read later, perhaps by eight processes and
perhaps after somebody has replaced it. Its stamp is compared before and after it is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FileStamp:
    """What changes when a file is written to or replaced, also where another one is put back.

    Attributes:
        device, inode: which file it is.
        size: in bytes.
        modified_ns: time of the last write, in nanoseconds of the Unix epoch.
        changed_ns: the same of the last change of its name or its attributes, which no program can
            set.
    """

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def stamp_of(file: Path | int) -> FileStamp:
    """Return the stamp of a path or of an open file.

    Raises:
        OSError: there is no such file, or it cannot be looked at.
    """
    status = os.stat(file)  # noqa: PTH116 - a path or a file descriptor
    return FileStamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def stamped_digest(path: Path) -> tuple[str, FileStamp]:
    """Return the SHA-256 (hex) of a file, and the stamp of the opened file before it was read.

    A file that is written to meanwhile has another stamp at once, so that its next comparison
    fails.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        stamp = stamp_of(stream.fileno())
        sha = hashlib.sha256()
        while block := stream.read(1 << 20):
            sha.update(block)
    return sha.hexdigest(), stamp


def changed_files(stamps: Mapping[Path, FileStamp]) -> list[Path]:
    """Return the files that are gone, or that are not those that were stamped."""
    return [path for path, stamp in stamps.items() if not _is_same(path, stamp)]


def _is_same(path: Path, stamp: FileStamp) -> bool:
    try:
        return stamp_of(path) == stamp
    except OSError:
        return False
