"""The text of an input: expanded by its content and not its name, UTF-8, with line feeds only."""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO

from virnucpro.errors import InputError, UsageError

BLOCK = 1 << 18  # largest block that is handed on, in bytes
# How a compressed file begins. One of zstd may begin with a frame that readers skip (pzstd).
_FORMATS = {
    "gz": rb"\x1f\x8b",
    "bz2": rb"BZh",
    "xz": rb"\xfd7zXZ\0",
    "zst": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
}
# The errors of the decoders that xopen may have loaded: not each of them exists on each machine.
_DECODER_ERRORS = (
    ("isal.isal_zlib", "error"),
    ("zlib_ng.zlib_ng", "error"),
    ("zlib", "error"),
    ("lzma", "LZMAError"),
    ("backports.zstd", "ZstdError"),
    ("compression.zstd", "ZstdError"),
)


def expanded_blocks(path: Path, *, limit: int | None = None) -> Generator[bytes, None, None]:
    """Yield the content of ``path``, expanded, in blocks of at most ``BLOCK`` bytes.

    Raises:
        UsageError: the file is missing, a directory or unreadable.
        InputError: compressed data are damaged, or expand to more than ``limit`` bytes.
    """
    try:
        with path.open("rb") as file:
            head = file.peek(6)
            form = next((name for name, magic in _FORMATS.items() if re.match(magic, head)), None)
            if form:
                yield from _unpacked(file, form, path, limit)
            else:
                yield from iter(partial(file.read, BLOCK), b"")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}); check its path and its permissions"
        ) from None


def _unpacked(
    file: BinaryIO, form: str, path: Path, limit: int | None
) -> Generator[bytes, None, None]:
    total = 0
    try:
        for block in filter(None, _decoded(file, form)):
            total += len(block)
            if limit is not None and total > limit:
                raise InputError(
                    f"{path}: expands to more than the {limit:,} bytes that there is room for; "
                    "check that it is what you expect, or choose another output directory"
                )
            yield block
    except _decoding_errors() as error:
        text = f"{path}: the compressed data are damaged or truncated ({error}); copy"
        raise InputError(f"{text} or download the file again") from None


def _decoding_errors() -> tuple[type[Exception], ...]:
    loaded = [(sys.modules.get(module), name) for module, name in _DECODER_ERRORS]
    return (EOFError, OSError, *(getattr(module, name) for module, name in loaded if module))


def _decoded(file: BinaryIO, form: str) -> Generator[bytes, None, None]:
    """Yield the content of all streams of a compressed file in blocks, some of them empty."""
    if form == "bz2":
        yield from _streams(file, bz2.BZ2Decompressor)
    elif form == "xz":
        yield from _streams(file, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), padding=b"\0")
    else:
        from xopen import xopen

        with xopen(file, "rb", threads=0, format=form) as stream:
            yield from iter(partial(stream.read, BLOCK), b"")


def _streams(
    file: BinaryIO,
    start: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
    padding: bytes = b"",
) -> Iterator[bytes]:
    """Yield the content of streams that follow one another, or are separated by ``padding``.

    The file objects of the standard library end without an error at whatever is no stream.
    """
    data = b""
    while data := data or file.read(BLOCK):
        data = data.lstrip(padding)
        if not data:
            continue
        stream = start()
        while not stream.eof:
            if stream.needs_input:
                data = data or file.read(BLOCK)
                if not data:
                    raise EOFError("the last stream has no end")
            yield stream.decompress(data, BLOCK)
            data = b""
        data = stream.unused_data


# Control characters but tab and line feed, with the C1 set; and bytes that are not UTF-8, as the
# error handler "surrogateescape" has them.
WRONG_SIGN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")


def text_blocks(path: Path, *, limit: int | None = None) -> Generator[str, None, None]:
    """Yield the text of ``path``, expanded, with U+DC80 to U+DCFF for bytes that are not UTF-8.

    ``limit`` is the largest expanded size of a compressed file in bytes. Raises as
    :func:`expanded_blocks` does.
    """
    utf8 = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    with closing(expanded_blocks(path, limit=limit)) as blocks:
        for block in blocks:
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def shortened(text: str) -> str:
    """Return ``text`` in at most 60 characters, with control characters escaped."""
    text = text if len(text) <= 60 else text[:57] + "..."
    return WRONG_SIGN.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", text)
