"""A disk that can be listened to, and that may be full."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from virnucpro.store.disk import Bytes, Disk


class Noting(Disk):
    """Notes its verbs in order, each with the name of a file; is full when it is to do ``failing``.

    The name of a temporary file is that of the file that it becomes.
    """

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.notes: list[tuple[str, str]] = []

    def _note(self, verb: str, path: Path | str) -> None:
        name = Path(path).name
        if name.endswith(".tmp"):  # .NAME.HOST.PID.tmp
            name = name[1:].rsplit(".", 3)[0]
        self.notes.append((verb, name))
        if verb == self.failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_new(self, path: Path) -> BinaryIO:
        self._note("open", path)
        return super().open_new(path)

    def write(self, stream: BinaryIO, data: Bytes) -> None:
        self._note("write", stream.name)
        super().write(stream, data)

    def sync(self, stream: BinaryIO) -> None:
        self._note("sync", stream.name)
        super().sync(stream)

    def rename(self, old: Path, new: Path) -> None:
        self._note("rename", new)
        super().rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        self._note("sync folder", folder)
        super().sync_folder(folder)

    def unlink(self, path: Path) -> None:
        self._note("unlink", path)
        super().unlink(path)
