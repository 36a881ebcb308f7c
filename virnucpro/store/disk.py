"""All writing of files: atomic, durable, hashed while it is written, and never over a user's file.

A file appears under its name only when it is complete and on the disk: it is written to a
temporary name in the same folder, flushed with ``fsync``, checked on close, renamed, and the
folder is flushed too. A reader of the name sees the old content or the new one, never a part.

What stands under a name and is not, byte for byte, what the program wrote there belongs to the
user: before the name is used for something else, or removed, it is renamed to ``NAME.yours``.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import socket
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from virnucpro.contracts import OutputFile
from virnucpro.errors import OutputError, ResumeRefusedError
from virnucpro.events import Notice
from virnucpro.layout import state_folders, written_list
from virnucpro.store.hashed import FileStamp, hashed, stamp_of

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
    """Every change of the file system that the program makes.

    ``rename`` to ``mkdir`` are one system call each, which tests replace to inject faults.

    The SHA-256 of each file is listed in the checkpoint folder of ``root`` before the file gets its
    name, so that later starts and other processes know what the program wrote. Without ``root``,
    for a single file that a user names, this object alone knows. In a checkpoint folder everything
    is the program's own.

    Attributes:
        yours: the new places of what was renamed because the program had not written it.
    """

    _unsynced: set[Path] | None = None
    rename = staticmethod(os.replace)  # the second path by the first, in one step
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)  # of an empty folder

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self.yours: list[Path] = []
        self._digests = defaultdict[Path, set[str]](set)
        self._stamps: dict[Path, FileStamp] = {}  # of files that were found to be our own

    def __getstate__(self) -> dict[str, Any]:
        """Another process knows what is listed."""
        return {**self.__dict__, "_digests": defaultdict(set), "_stamps": {}}

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
        """Free a name: the file of the program is deleted, that of a user is renamed."""
        self.keep_yours(path)
        self._unlink(path)

    def _unlink(self, path: Path) -> None:
        with explain_write_errors(path), suppress(FileNotFoundError):
            self.unlink(path)

    def know(self, path: Path, sha256: str, stamp: FileStamp | None = None) -> None:
        """Note that the program wrote such a content; ``stamp`` is of the file that has it."""
        self._digests[path].add(sha256)
        if stamp is not None:
            self._stamps[path] = stamp

    def adopt(self, path: Path) -> None:
        """List a file that an earlier version of the program wrote."""
        self._list(path, hashed(path).sha256)

    def keep_yours(self, path: Path) -> None:
        """Rename what stands under a name, unless the program wrote it, or it is an empty file."""
        if not os.path.lexists(path) or self.wrote(path):
            return
        free, number = path.with_name(f"{path.name}.yours"), 1
        while os.path.lexists(free):
            number += 1
            free = path.with_name(f"{path.name}.yours.{number}")
        with explain_write_errors(free):
            self.rename(path, free)
        self.yours.append(free)

    def wrote(self, path: Path) -> bool:
        """Return whether a path is a file with a content that the program wrote there."""
        if path.is_symlink() or not path.is_file():
            return False
        stamp = stamp_of(path)
        if state_folders(path) or stamp.bytes == 0 or self._stamps.get(path) == stamp:
            return True
        try:
            found = hashed(path)
        except OSError:  # nobody can prove that it is ours
            return False
        if found.sha256 not in self._digests[path]:
            lines = b""
            if self.root is not None:
                with suppress(FileNotFoundError):
                    lines = written_list(self.root).read_bytes()
            if self._line(path, found.sha256) not in lines:
                return False
        self._stamps[path] = found.stamp
        return True

    def _line(self, path: Path, sha256: str) -> bytes:
        # With a line break before it, too: the line before may be torn.
        return f"\n{sha256} {json.dumps(os.path.relpath(path, self.root))}\n".encode()

    def _list(self, path: Path, sha256: str) -> None:
        """List a content that the program is about to put under a name."""
        self._digests[path].add(sha256)
        if self.root is None or state_folders(path):
            return
        listed = written_list(self.root)
        refuse_linked_state(listed)
        self.make_folder(listed.parent)
        with (
            explain_write_errors(listed),
            open(listed, "ab", buffering=0, opener=open_without_links) as stream,
        ):
            with suppress(OSError):  # a file system without locks
                fcntl.flock(stream, fcntl.LOCK_EX)  # several hosts may append to it
            self.write(stream, self._line(path, sha256))

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

    def clear(self, path: Path) -> None:
        """Delete a file, or all files in a folder, where the program wrote them; leave all others.

        A folder that is empty then goes, too. A link to a folder is not followed.
        """
        if path.is_dir() and not path.is_symlink():
            for inner in sorted(path.iterdir()):
                self.clear(inner)
            self.remove_folder(path)
        elif self.wrote(path):
            self._unlink(path)

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
                self._list(path, writing.output.sha256)
                self.keep_yours(path)
                self.rename(temporary, path)
                self._stamps[path] = stamp_of(path)
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


@contextmanager
def telling(disk: Disk, emit: Callable[[Notice], None]) -> Iterator[None]:
    """Say after the block, however it ends, which files of the user were renamed in it."""
    try:
        yield
    finally:
        if disk.yours:
            names = ", ".join(map(str, disk.yours))
            emit(
                Notice(
                    "warning",
                    f"kept under new names, because this program did not write them or they were "
                    f"changed since: {names}",
                )
            )
            disk.yours.clear()


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
