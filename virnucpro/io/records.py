"""Read the sequences of an input: FASTA or FASTQ, of whatever provenance.

dnaio reads neither format here: it refuses ids that are not ASCII, silently skips FASTA lines that
begin with ``#``, and its errors do not name the line of a record. The tests compare with it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import TracebackType

from virnucpro.errors import InputError
from virnucpro.io.letters import BLANK, cleaned, complaint
from virnucpro.io.text import CONTROL, Text, shortened

LONGEST_HEADER = 1 << 20  # bytes; nobody writes such a line, but a file without line ends has one


@dataclass(frozen=True, slots=True)
class Record:
    """One sequence of the input.

    Attributes:
        id: first word of the header.
        header: the whole header line without its ``>`` or ``@``.
        sequence: IUPAC letters, case kept, ``U`` read as ``T``, blanks removed; may be empty.
    """

    id: str
    header: str
    sequence: str


class Records:
    """One reading of a file: an iterator over its records, which closes the file at the end.

    Attributes:
        uracil: whether a ``U`` was read as ``T`` so far.
    """

    def __init__(self, path: Path, *, limit: int | None = None) -> None:
        """``limit`` is the largest expanded size of a compressed file, in bytes."""
        self.uracil = False
        self._path = path
        self._text = Text(path, limit=limit)
        self._records = self._read()

    def __iter__(self) -> Iterator[Record]:
        """The records not read yet, in the order of the file."""
        return self._records

    def __next__(self) -> Record:
        """The next record."""
        return next(self._records)

    def __enter__(self) -> Records:
        """For a reading that may stop before the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._records.close()

    def _read(self) -> Generator[Record, None, None]:
        with closing(iter(self._text)) as blocks:
            for block in blocks:
                start = block.lstrip(BLANK)
                if start:
                    break
            else:
                return
            line = self._text.line - start.count(b"\n")
            if start.startswith(b">"):
                yield from self._fasta(chain((start[1:],), blocks), line)
            elif start.startswith(b"@"):
                yield from self._fastq(chain((start,), blocks), line)
            else:
                raise self._error(line, _Fault(_no_start(start)))

    def _fasta(self, blocks: Iterable[bytes], line: int) -> Iterator[Record]:
        """Split at the ``>`` that begin a line; the first one is already gone, on ``line``."""
        pieces: list[bytes] = []  # of the record that the blocks so far end in
        held = b""  # a line feed whose ">" may be in the next block
        for block in blocks:
            block = held + block
            held = b"\n" if block.endswith(b"\n") else b""
            parts = block.removesuffix(b"\n").split(b"\n>")
            pieces.append(parts.pop(0))
            if parts:
                last = parts.pop()
                parts.insert(0, b"".join(pieces))
                pieces = [last]
                yield from self._records_of(parts, line)
                line = self._text.line - len(held) - last.count(b"\n")
            elif _size(pieces) > LONGEST_HEADER and not any(b"\n" in piece for piece in pieces):
                break  # before it fills the memory; the header is refused below
        parts = [b"".join(pieces)]
        pieces.clear()  # a chromosome is not kept twice
        yield from self._records_of(parts, line)

    def _records_of(self, parts: list[bytes], line: int) -> Iterator[Record]:
        for number, part in enumerate(parts):
            head, _, lines = part.partition(b"\n")
            try:
                record = self._record(head, lines)
            except _Fault as fault:
                line += sum(before.count(b"\n") + 1 for before in parts[:number])
                raise self._error(line, fault) from None
            del lines  # it may be a chromosome
            yield record

    def _fastq(self, blocks: Iterable[bytes], line: int) -> Iterator[Record]:
        """Take four lines a record; blank lines between records are passed over."""
        lines = chain.from_iterable(_line_lists(blocks))
        for head in lines:
            if not head:
                line += 1
                continue
            rest = list(islice(lines, 3))
            try:
                _check_fastq(head, rest)
                record = self._record(head[1:], rest[0])
            except _Fault as fault:
                raise self._error(line, fault) from None
            yield record
            line += 4

    def _record(self, head: bytes, lines: bytes) -> Record:
        """Make a record of its header, without the mark, and sequence lines. Raises ``_Fault``."""
        if len(head) > LONGEST_HEADER:
            raise _Fault("the header is longer than 1 MiB; are the line ends missing?", head)
        header = head.decode()  # Text has seen that it is UTF-8
        words = header.split(None, 1)
        if not words:
            raise _Fault("the header has no id; write one after the '>' or '@'")
        # isprintable is the fast test; it is false for tabs and odd blanks too, which are fine.
        if not header.isprintable() and (control := CONTROL.search(header)):
            code = ord(control[0])
            raise _Fault(f"control character 0x{code:02x} in the header; remove it", head)
        letters = cleaned(lines)
        if letters is None:
            down, message = complaint(lines)
            raise _Fault(message, head, 1 + down)
        sequence, uracil = letters
        if uracil:
            self.uracil = True
        return Record(words[0], header, sequence)

    def _error(self, line: int, fault: _Fault) -> InputError:
        words = fault.head[:1000].decode(errors="replace").split(None, 1)
        named = f", record '{shortened(words[0])}'" if words else ""
        return InputError(f"{self._path}: line {line + fault.down}{named}: {fault.message}")


def read_records(path: Path, *, limit: int | None = None) -> Records:
    """Read the sequences of ``path``, lazily: FASTA or FASTQ, plain, gzip, bzip2 or xz.

    Blank files have no records; qualities are checked for their length and dropped. ``limit`` is
    the largest expanded size of a compressed file, in bytes. While iterating it

    Raises:
        UsageError: the file is missing, a directory or unreadable.
        InputError: the content is not usable; the message names file, line and record.
    """
    return Records(path, limit=limit)


class _Fault(Exception):
    """What is wrong with a record, and how many lines below its header."""

    def __init__(self, message: str, head: bytes = b"", down: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.head = head
        self.down = down


def _size(pieces: list[bytes]) -> int:
    return sum(map(len, pieces))


def _line_lists(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines of ``blocks``, a list a block."""
    pieces: list[bytes] = []  # of the line that the blocks so far end in
    for block in blocks:
        lines = block.split(b"\n")
        pieces.append(lines.pop(0))
        if lines:
            last = lines.pop()
            lines.insert(0, b"".join(pieces))
            pieces = [last]
            yield lines
    yield [b"".join(pieces)]


def _check_fastq(head: bytes, rest: list[bytes]) -> None:
    """Check the form of a FASTQ record. Raises ``_Fault``."""
    name = head[1:]
    if not head.startswith(b"@"):
        raise _Fault("a FASTQ record must begin with '@'; is a line missing or too many?")
    if len(rest) < 3:
        down = len(rest) - (rest[-1:] == [b""])  # what follows the final line feed is no line
        raise _Fault("the last FASTQ record is truncated; copy the file again", name, down)
    letters, plus, quality = rest
    if not plus.startswith(b"+"):
        raise _Fault(
            "the third line of a FASTQ record must begin with '+'; "
            "unwrap the sequences first (seqtk seq -l0)",
            name,
            2,
        )
    if len(letters) != len(quality):
        raise _Fault(
            f"{len(letters)} bases but {len(quality)} qualities; is the file truncated?", name, 3
        )
    if not quality.isascii() or quality.translate(None, _QUALITIES):
        raise _Fault("a quality is no printable ASCII character; copy the file again", name, 3)


_QUALITIES = bytes(range(32, 127)) + b"\t"


def _no_start(start: bytes) -> str:
    if start.startswith(b";"):
        return "comment lines (';') are not read; remove them (grep -v '^;')"
    words = start[:200].decode(errors="replace").splitlines()[0]
    return (
        f"text before the first '>': '{shortened(words)}'; "
        "give a FASTA ('>' first) or FASTQ ('@' first) file"
    )
