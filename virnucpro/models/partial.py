"""The bytes of a file that is being downloaded: ``NAME.part``, and ``NAME.part.version`` beside it.

The second file holds the version that the bytes belong to, so that two versions are never joined.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from virnucpro.errors import OutputError
from virnucpro.store.disk import Disk, explain_download_errors

STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
"""What names a version for good (RFC 9110, 8.8.3); a weak name begins with ``W/``."""


@dataclass(frozen=True)
class _Version:
    """A version of a file on a server: only a part of the same one is continued.

    Attributes:
        address: where it is.
        etag: its strong ETag. Without one (empty) it cannot be told from others.
        bytes: its size.
    """

    address: str
    etag: str
    bytes: int


class PartialFile:
    """``NAME.part``, open for writing, and the version of the file that its bytes belong to.

    Attributes:
        path: ``NAME.part``.
        address: where the file comes from.
        size: the expected size of the whole file in bytes, or None.
        starts: how often the file was begun from its first byte.
    """

    def __init__(self, path: Path, address: str, size: int | None) -> None:
        """Open the file, or create it.

        Raises:
            OutputError: it is a symbolic link, or cannot be written.
        """
        self.path, self.address, self.size, self.starts = path, address, size, 0
        self._version_file = path.with_name(f"{path.name}.version")
        if path.is_symlink():
            raise OutputError(
                f"{path} is a symbolic link, and nothing is written through it: remove the link, "
                f"then run the command again"
            )
        with explain_download_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # A link that was made since is refused by the system.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._stream = os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)
        self._version = self._saved_version()

    def _saved_version(self) -> _Version | None:
        try:
            version = _Version(**json.loads(self._version_file.read_bytes()))
            same_file = version.address == self.address and self.size in (None, version.bytes)
            if same_file and STRONG_ETAG.fullmatch(version.etag):
                return version if 0 < self.received <= version.bytes else None
        except (OSError, ValueError, TypeError, RecursionError):  # missing or damaged
            pass
        return None

    @property
    def received(self) -> int:
        """Return the number of bytes so far."""
        return os.fstat(self._stream.fileno()).st_size

    @property
    def etag(self) -> str:
        """Return the strong ETag of the version, or an empty text."""
        return self._version.etag if self._version else ""

    @property
    def total(self) -> int:
        """Return the size of the whole file in bytes; 0 while it is not known."""
        return self._version.bytes if self._version else 0

    @property
    def can_continue(self) -> bool:
        """Return whether a later attempt can add to the bytes so far."""
        return bool(self.etag and self.received)

    @property
    def is_complete(self) -> bool:
        """Return whether all bytes are there."""
        return self._version is not None and self.received == self._version.bytes

    def begin(self, etag: str, total: int) -> None:
        """Start over, as that version of the file."""
        self.discard()
        self.starts += 1
        self._version = _Version(self.address, etag, total)
        with explain_download_errors(self._version_file):
            Disk().save(self._version_file, json.dumps(asdict(self._version)).encode())

    def append(self, block: bytes) -> None:
        """Add a block of bytes at the end."""
        with explain_download_errors(self.path):
            Disk().write(self._stream, block)

    def discard(self) -> None:
        """Throw all bytes away."""
        self._version = None
        with explain_download_errors(self.path):
            self._stream.truncate(0)

    def move_to(self, target: Path) -> None:
        """Give the complete file its name, safe from a power cut."""
        with explain_download_errors(target):
            Disk().sync(self._stream)
            self.path.replace(target)
            self._version_file.unlink(missing_ok=True)
            Disk().sync_folder(target.parent)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, and remove it if nothing can be continued."""
        with self._stream, explain_download_errors(self.path):
            if not self.can_continue:
                self.path.unlink(missing_ok=True)
                self._version_file.unlink(missing_ok=True)
