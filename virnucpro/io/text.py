"""The text of an input: expanded by its content and not its name, UTF-8, with line feeds only."""

from __future__ import annotations

import codecs
import io
import re
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from virnucpro.errors import InputError, UsageError

BLOCK = 1 << 20  # largest block that is handed on, in bytes
_FORMATS = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}
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
            form = next((name for magic, name in _FORMATS.items() if head.startswith(magic)), None)
            if form:
                yield from _unpacked(file, form, path, limit)
            while block := file.read(BLOCK):
                yield block
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}); check its path and its permissions"
        ) from None


def _unpacked(
    file: BinaryIO, form: str, path: Path, limit: int | None
) -> Generator[bytes, None, None]:
    from xopen import xopen

    loaded = [(sys.modules.get(module), name) for module, name in _DECODER_ERRORS]
    damage = tuple(getattr(module, name) for module, name in loaded if module)
    total = 0
    with xopen(file, "rb", threads=0, format=form) as stream:
        while True:
            try:
                block = stream.read(BLOCK)
            except (EOFError, OSError, *damage) as error:
                text = f"{path}: the compressed data are damaged or truncated ({error}); copy"
                raise InputError(f"{text} or download the file again") from None
            total += len(block)
            if limit is not None and total > limit:
                raise InputError(
                    f"{path}: expands to more than the {limit:,} bytes that there is room for; "
                    "check that it is what you expect, or choose another output directory"
                )
            if not block:
                return
            yield block


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
