"""All writing of files: atomic, durable, and hashed while it is written.

A file appears under its name only when it is complete and on the disk: it is written to a
temporary name in the same folder, flushed with ``fsync``, checked on close, renamed, and the
folder is flushed too. A reader of the name sees the old content or the new one, never a part.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from virnucpro.contracts import OutputFile
from virnucpro.errors import OutputError, ResumeRefusedError
from virnucpro.layout import state_folders

GZIP_LEVEL = 4  # of 9: half of the time of the usual 6 for some percent more bytes
BUFFER = 1 << 20  # bytes gathered before a write: large enough that the system call costs nothing
AGAIN = "run the same command again, without --force"  # once the cause of a failure is gone
HOST_NAME = socket.gethostname().replace(".", "-")  # as lock and temporary files have it
Bytes = bytes | bytearray | memoryview
_TEMPORARY = re.compile(r"^\.(?P<name>.+)\.[^.]*\.\d+\.tmp$")  # with host and process


@dataclass
class OutputWriter:
    """An open output: takes bytes, counts and hashes them."""

    disk: Disk
    stream: BinaryIO
    bytes: int = 0
    rows: int = 0
    buffer: bytearray = field(default_factory=bytearray)
    sha: Any = field(default_factory=hashlib.sha256)
    output: OutputFile = field(init=False)
    """What was written; only there when the file is complete and safe."""

    def write(self, data: Bytes, rows: int = 0) -> None:
        """Append ``data``, which holds ``rows`` records; a memoryview must be of single bytes."""
        self.rows += rows
        if len(data) >= BUFFER:  # large enough, so it is written without a copy
            self.flush(data)
        else:
            self.buffer += data
            if len(self.buffer) >= BUFFER:
                self.flush()

    def flush(self, more: Bytes = b"") -> None:
        """Write what was gathered, and ``more``."""
        gathered, self.buffer = self.buffer, bytearray()
        for data in filter(len, (gathered, more)):
            self.sha.update(data)
            self.bytes += len(data)
            self.disk.write(self.stream, data)


class Disk:
    """Every change of the file system on which a result or a receipt depends.

    ``rename`` to ``mkdir`` are one system call each, which tests replace to inject faults.
    """

    _unsynced: set[Path] | None = None
    rename = staticmethod(os.replace)  # the second path by the first, in one step
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)  # of an empty folder

    def open_new(self, path: Path) -> BinaryIO:
        """Create ``path``, which must not exist, for unbuffered writing."""
        return open(path, "xb", buffering=0, opener=open_without_links)

    def write(self, stream: BinaryIO, data: Bytes) -> None:
        """Write all of ``data``; a short write goes on where it stopped."""
        view = memoryview(data)
        while view:
            view = view[stream.write(view) :]

    def sync(self, stream: BinaryIO) -> None:
        """Force a file's content to the disk."""
        os.fsync(stream.fileno())

    def sync_folder(self, folder: Path) -> None:
        """Force a folder's entries to the disk, so that a rename survives a power cut."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
                raise
        finally:
            os.close(descriptor)

    def mkdir(self, path: Path) -> None:
        """Create a folder and its missing parents; another run may do so at the same moment."""
        path.mkdir(parents=True, exist_ok=True)

    # --- made of these; all raise OutputError if the disk is full or unwritable

    def remove(self, path: Path) -> None:
        """Delete a file or a link, if it is there."""
        with explain_write_errors(path), suppress(FileNotFoundError):
            self.unlink(path)

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents, unless it is there."""
        if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir may raise
            with explain_write_errors(path):
                self.mkdir(path)

    def move(self, old: Path, new: Path) -> None:
        """Rename a file or folder, durably."""
        with explain_write_errors(new):
            self.rename(old, new)
            self.sync_folder(new.parent)

    def remove_folder(self, path: Path) -> None:
        """Delete an empty folder; one that is missing or not empty is left alone."""
        with explain_write_errors(path), suppress(FileNotFoundError):
            if not any(path.iterdir()):
                self.rmdir(path)

    @contextmanager
    def create(self, path: Path, *, durable: bool = True) -> Iterator[OutputWriter]:
        """Write ``path`` atomically; after the block ``OutputWriter.output`` describes it.

        A file that is not ``durable`` outlives this process, killed or not, but perhaps not a power
        cut: afterwards nothing, a part or all of it may be there, with or without its receipt.

        Raises:
            OutputError: the folder cannot be written, or the disk is full. Nothing is left behind.
            ResumeRefusedError: the checkpoint folder or a folder in it is a symbolic link.
        """
        refuse_linked_state(path)
        temporary = path.with_name(f".{path.name}.{HOST_NAME}.{os.getpid()}.tmp")
        self.make_folder(path.parent)
        with explain_write_errors(path):
            if os.path.lexists(temporary):  # of an earlier life of this process number
                self.unlink(temporary)
            stream = self.open_new(temporary)
            try:
                writing = OutputWriter(self, stream)
                yield writing
                writing.flush()
                if durable:
                    self.sync(stream)
                stream.close()
                writing.output = OutputFile(
                    path, writing.bytes, writing.sha.hexdigest(), writing.rows
                )
                self.rename(temporary, path)
                if durable and self._unsynced is not None:
                    self._unsynced.add(path.parent)
                elif durable:
                    self.sync_folder(path.parent)
            except BaseException:
                stream.close()
                with suppress(OSError):
                    self.unlink(temporary)
                raise

    def save(self, path: Path, data: Bytes, rows: int = 0, *, durable: bool = True) -> OutputFile:
        """Write ``data`` as :meth:`create` does, and describe the file."""
        with self.create(path, durable=durable) as out:
            out.write(data, rows)
        return out.output

    @contextmanager
    def together(self) -> Iterator[None]:
        """Flush the folders of the files that are written in the block once, at its end.

        Each file is flushed when it is written. Nothing that it replaces may be removed in here.
        """
        self._unsynced = folders = set[Path]()
        try:
            yield
        finally:
            self._unsynced = None
            for folder in sorted(folders):
                with explain_write_errors(folder):
                    self.sync_folder(folder)

    def sweep(self, folder: Path, names: Collection[str] | None = None) -> None:
        """Remove temporary files that an earlier process left in ``folder``.

        The caller holds the lock on what is written there: no other process is at work, whichever
        has the number of that one now. Where other runs share the folder, only those of files
        called ``names`` count.
        """
        if not folder.is_dir() or (folder.is_symlink() and state_folders(folder / "file")):
            return
        for path in folder.iterdir():
            match = _TEMPORARY.match(path.name)
            if not match or (names is not None and match["name"] not in names):
                continue
            with explain_write_errors(path), suppress(FileNotFoundError):
                self.unlink(path)


def is_running(pid: int) -> bool:
    """Return whether another process of this machine has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def refuse_linked_state(path: Path) -> None:
    """Raise ResumeRefusedError where a path is in a checkpoint folder behind a symbolic link."""
    for folder in state_folders(path):
        if folder.is_symlink():
            raise ResumeRefusedError(
                f"{folder} is a symbolic link, which is not followed, because the program keeps "
                f"and removes files there: remove the link, then run the same command again"
            )


def open_without_links(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file for ``open(..., opener=)``.

    A symbolic link in its place is not followed, and nobody waits for the other end of a pipe.

    Raises:
        OSError: it is no file, or cannot be opened.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file")
    return descriptor


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn an operating-system error on ``path`` into an :class:`OutputError` with advice."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: "free some space",
            errno.EDQUOT: "your quota is used up: free some space",
            errno.EROFS: "the file system is read-only: choose another folder",
            errno.EACCES: "check who may write there, or choose another folder",
            errno.ELOOP: "it is a symbolic link, which is not followed: remove it",
        }.get(error.errno or 0, "check the disk and the path")
        text = error.strerror or str(error)
        raise OutputError(f"cannot write {path}: {text}; {advice}, then {AGAIN}") from error
