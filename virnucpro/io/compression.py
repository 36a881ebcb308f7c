"""Open an input and expand it: plain, gzip, bzip2 or xz, recognised by content, never by name."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from virnucpro.errors import InputError, UsageError

BLOCK = 1 << 20  # largest block that is handed on, in bytes
_PACKED_BLOCK = 1 << 17  # small, because the rest of it is copied at each end of a gzip member
_XZ_MEMORY = 1 << 30  # an xz header may ask for 4 GiB; `xz -9` needs 65 MiB


class _Unpacker(Protocol):
    """The interface that the decompressors of ``bz2`` and ``lzma`` share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipMember:
    """The decompressor of ``zlib`` with the interface of those of ``bz2`` and ``lzma``."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)  # 31: gzip header, checksum verified

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


_FORMATS: tuple[tuple[str, bytes, Callable[[], _Unpacker]], ...] = (
    ("gzip", b"\x1f\x8b", _GzipMember),
    ("bzip2", b"BZh", bz2.BZ2Decompressor),
    ("xz", b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)),
)


def expanded_blocks(path: Path, *, limit: int | None = None) -> Generator[bytes, None, None]:
    """Yield the content of ``path``, expanded, in blocks of at most ``BLOCK`` bytes.

    ``limit`` is the largest expanded size of a compressed file in bytes. The file is closed at
    the end, and when the iterator is dropped.

    Raises:
        UsageError: the file is missing, a directory or unreadable.
        InputError: the compressed data are truncated, damaged, followed by something else, or
            expand to more than ``limit``.
    """
    with _open(path) as file:
        head = _read(file, path, _PACKED_BLOCK)
        for name, magic, unpacker in _FORMATS:
            if head.startswith(magic):
                yield from _limited(_unpacked(file, path, head, name, magic, unpacker), path, limit)
                return
        while head:
            yield head
            head = _read(file, path, BLOCK)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file; check the path of the input") from None
    except IsADirectoryError:
        raise UsageError(
            f"{path}: is a directory; give one FASTA or FASTQ file (several can be put together "
            "with `cat`)"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); check its permissions"
        ) from None


def _read(file: BinaryIO, path: Path, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check the disk") from None


def _limited(blocks: Iterator[bytes], path: Path, limit: int | None) -> Iterator[bytes]:
    total = 0
    for block in blocks:
        total += len(block)
        if limit is not None and total > limit:
            raise InputError(
                f"{path}: expands to more than the {limit:,} bytes that there is room for; "
                "check that it is what you expect, or choose an output directory with more space"
            )
        yield block


def _unpacked(
    file: BinaryIO,
    path: Path,
    data: bytes,
    name: str,
    magic: bytes,
    unpacker: Callable[[], _Unpacker],
) -> Iterator[bytes]:
    """Expand every member of ``file``; ``data`` is what was already read of it."""
    member = unpacker()
    while True:
        try:
            block = member.decompress(data, BLOCK)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise InputError(
                f"{path}: the {name} data are damaged ({error}); copy or download the file again"
            ) from None
        data = b""
        if block:
            yield block
        if member.eof:
            data = _next_member(file, path, member.unused_data, name, magic)
            if not data:
                return
            member = unpacker()
        elif member.needs_input:
            data = _read(file, path, _PACKED_BLOCK)
            if not data and not block:
                raise InputError(
                    f"{path}: the {name} data are truncated; copy or download the file again"
                )


def _next_member(file: BinaryIO, path: Path, data: bytes, name: str, magic: bytes) -> bytes:
    """Return what follows a member: empty at the end of the file, else the next member."""
    data = data.lstrip(b"\0")  # zero padding, which tapes and xz add, is accepted
    while len(data) < len(magic):
        more = _read(file, path, _PACKED_BLOCK)
        if not more:
            break
        data = (data + more).lstrip(b"\0")
    if data and not data.startswith(magic):
        raise InputError(
            f"{path}: something else follows the end of the {name} data; copy or download the "
            "file again, or decompress it yourself and give the result"
        )
    return data
