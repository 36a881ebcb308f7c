"""The text of an input: what kind of file it is, its blocks as UTF-8, and its line ends."""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.io.compression import expanded_blocks

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but tab and line feed; with the C1 set
_CONTROL_BYTE = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LINE_END = re.compile(rb"[\r\n]")
_HEAD = 512  # bytes that tell what a file is; the name of the tar format is at 257
_REFUSED = (
    (b"PK\x03\x04", "a zip archive", "decompress first (unzip)"),
    (b"PK\x05\x06", "an empty zip archive", "decompress first (unzip)"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "decompress first (zstd -d)"),
    (b"\x1f\x8b", "compressed twice", "decompress first (gunzip)"),
    (b"BZh", "compressed twice", "decompress first (bunzip2)"),
    (b"\xfd7zXZ\0", "compressed twice", "decompress first (unxz)"),
    (b"\x1f\x9d", "compressed with compress", "decompress first (uncompress)"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "decompress first (lz4 -d)"),
    (b"LZIP", "compressed with lzip", "decompress first (lzip -d)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "decompress first (7z x)"),
    (b"Rar!", "a rar archive", "decompress first (unrar x)"),
    (b"BAM\1", "a BAM file", "convert it first (samtools fasta)"),
    (b"CRAM", "a CRAM file", "convert it first (samtools fasta)"),
)
# Text files of other formats, by how they begin. A SAM file may have no header: 11 columns then.
_OTHER_FORMATS = (
    (rb"@(HD\tVN|SQ\t[A-Z][A-Za-z0-9]|RG\tID|PG\tID):", "a SAM file", "samtools fasta"),
    (rb"[^>@\s]\S*\t\d+\t\S+\t\d+\t\d+\t[\dMIDNSHPX=*]+\t", "a SAM file", "samtools fasta"),
    (rb"LOCUS {2,}\S", "a GenBank file", "any2fasta"),
    (rb"\S+\.SEQ +Genetic Sequence Data Bank", "a GenBank file", "any2fasta"),
    (rb"ID {3}\S+[; ]", "an EMBL file", "any2fasta"),
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b">\0", b"\0>", b"@\0", b"\0@")


class InputText:
    """The text of an input as blocks of UTF-8, without a byte-order mark and with line feeds only.

    Attributes:
        line: the number, from 1, of the line on which the next block begins.
    """

    def __init__(self, path: Path, *, limit: int | None = None) -> None:
        """Prepare to read ``path``.

        ``limit`` is the largest expanded size of a compressed file in bytes.
        """
        self.path = path
        self.line = 1
        self._limit = limit

    def __iter__(self) -> Generator[bytes, None, None]:
        """Yield the blocks.

        Raises:
            UsageError: see :func:`expanded_blocks`.
            InputError: the content is not text, or not UTF-8.
        """
        with closing(expanded_blocks(self.path, limit=self._limit)) as blocks:
            head = b""
            for block in blocks:
                head += block
                if len(head) >= _HEAD:
                    break
            self._check_kind(head)
            yield from self._normalised(self._checked_utf8(chain((head,), blocks)))

    def _normalised(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass the blocks on with line feeds only, and count them."""
        held = b""  # a carriage return whose line feed may be in the next block
        for block in blocks:
            block = held + block
            held = b""
            if b"\r" in block:
                if block.endswith(b"\r"):
                    block, held = block[:-1], b"\r"
                block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            self.line += block.count(b"\n")
            yield block
        if held:
            self.line += 1
            yield b"\n"

    def _check_kind(self, head: bytes) -> None:
        if head.startswith(_UTF16):
            raise InputError(
                f"{self.path}: line 1: the file is UTF-16; save it as UTF-8 "
                "(iconv -f UTF-16 -t UTF-8)"
            )
        for magic, what, advice in _REFUSED:
            if head.startswith(magic):
                raise InputError(f"{self.path}: the file is {what}; {advice}")
        if head[257:262] == b"ustar":
            raise InputError(f"{self.path}: the file is a tar archive; unpack it first (tar x)")
        start = head.removeprefix(codecs.BOM_UTF8).lstrip()
        for pattern, what, program in _OTHER_FORMATS:
            if re.match(pattern, start):
                advice = f"convert it to FASTA first ({program})"
                raise InputError(f"{self.path}: line 1: the file is {what}; {advice}")
        if not start.startswith((b">", b"@", b";")) and _CONTROL_BYTE.search(head):
            raise InputError(
                f"{self.path}: line 1: the file is binary, not text; give a FASTA or FASTQ file"
            )

    def _checked_utf8(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass the blocks on, less a byte-order mark, as long as they are UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        offset = 0  # of the block, in bytes of the expanded file
        previous = b""  # the end of what was passed on, to name the record
        for block in blocks:
            pending = decoder.getstate()[0]
            if pending or not block.isascii():
                try:
                    decoder.decode(block)
                except UnicodeDecodeError as error:
                    at = error.start - len(pending)
                    raise self._not_utf8(previous, block, offset, at) from None
            size = len(block)
            if offset == 0:
                block = block.removeprefix(codecs.BOM_UTF8)
            offset += size
            previous = (previous + block[-_HEAD:])[-_HEAD:]
            yield block
        if pending := decoder.getstate()[0]:
            raise self._not_utf8(previous, b"", offset, -len(pending))

    def _not_utf8(self, previous: bytes, block: bytes, offset: int, at: int) -> InputError:
        """Describe the byte at ``at``, relative to the start of ``block``, which is ``offset``."""
        before = previous + block[: max(at, 0)]
        if at < 0:
            before = before[:at]
        # self.line is where the block begins, unless a lone carriage return was held back before it
        line = self.line + (previous.endswith(b"\r") and not block.startswith(b"\n"))
        line += block[: max(at, 0)].replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
        rest = (previous + block)[len(before) :]
        text = _LINE_END.split(before)[-1] + _LINE_END.split(rest[:_HEAD])[0]
        words = text.decode(errors="replace").lstrip("\ufeff").split()
        named = ""
        if words and words[0][0] in ">@" and len(words[0]) > 1:
            named = f", record '{shortened(words[0][1:])}'"
        return InputError(
            f"{self.path}: line {line}{named}: byte 0x{rest[0]:02x} at byte offset {offset + at} "
            "is not UTF-8; save the file as UTF-8 (for example iconv -f LATIN1 -t UTF-8)"
        )


def shortened(text: str) -> str:
    """Return ``text`` in at most 60 characters, with control characters escaped."""
    text = text if len(text) <= 60 else text[:57] + "..."
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
