"""The text of an input: blocks of UTF-8 without a byte-order mark, with line feeds only."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from virnucpro.io.compression import expanded_blocks

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
