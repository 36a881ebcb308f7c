"""Read the sequences of an input: FASTA or FASTQ, plain or compressed, from any source.

The way of the bytes: ``compression.py`` expands the file, ``text.py`` makes sure that it is UTF-8
text with line feeds, and :class:`Records` cuts it into records and checks their letters.

dnaio reads neither format here: it refuses ids that are not ASCII, silently skips FASTA lines that
begin with ``#``, and its errors do not name the line of a record. The tests compare with it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from virnucpro.errors import InputError
from virnucpro.io.compression import BLOCK
from virnucpro.io.letters import (
    BLANK,
    are_nucleotides,
    clean_letters,
    clean_residues,
    describe_illegal_letter,
    describe_illegal_residue,
    sequences_of,
)
from virnucpro.io.text import CONTROL, InputText, shortened
from virnucpro.layout import Molecule

LONGEST_HEADER = 1 << 20  # bytes; nobody writes such a line, but a file without line ends has one
_QUALITIES = bytes(range(32, 127)) + b"\t"


class Record(NamedTuple):
    """One sequence of the input.

    Attributes:
        id: first word of the header, which ends at a space or tab.
        header: the whole header line without its ``>`` or ``@``.
        sequence: IUPAC letters, case kept, ``U`` read as ``T``, blanks removed; may be empty.
            Of a protein: any letter, and ``*``, case kept, blanks removed.
        qualities: one character per letter of the sequence, as they stand in a FASTQ file; None
            of a FASTA file.
        mate: the second mate of a pair of reads; None of a single record.
    """

    id: str
    header: str
    sequence: str
    qualities: str | None = None
    mate: Record | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """The letters of the sequence, and those of the mate where there is one."""
        if self.mate is None:
            return (len(self.sequence),)
        return len(self.sequence), len(self.mate.sequence)


class Records:
    """One reading of a file: an iterator over its records, which closes the file at the end.

    Attributes:
        uracil: whether a ``U`` was read as ``T`` so far.
    """

    def __init__(
        self, path: Path, *, limit: int | None = None, molecule: Molecule = "nucleotide"
    ) -> None:
        """Prepare to read ``path``.

        ``limit`` is the largest expanded size of a compressed file in bytes.
        """
        self.uracil = False
        self._molecule = molecule
        self._path = path
        self._text = InputText(path, limit=limit)
        self._records = self._read()

    def __iter__(self) -> Iterator[Record]:
        """Return the records that were not read yet, in the order of the file."""
        return self._records

    def __next__(self) -> Record:
        """Return the next record."""
        return next(self._records)

    def __enter__(self) -> Records:
        """Close the file at the end of a ``with`` block, for a reading that may stop early."""
        return self

    def __exit__(self, *_: object) -> None:
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
                raise self._error(line, _RecordError(_describe_wrong_start(start)))

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
            elif sum(map(len, pieces)) > LONGEST_HEADER and not any(
                b"\n" in piece for piece in pieces
            ):
                break  # before it fills the memory; the header is refused below
        parts = [b"".join(pieces)]
        pieces.clear()  # a chromosome is not kept twice
        yield from self._records_of(parts, line)

    def _records_of(self, parts: list[bytes], line: int) -> Iterator[Record]:
        if len(parts) > 1 and len(parts[0]) <= BLOCK and self._molecule == "nucleotide":
            heads, _, lines_of = zip(*(part.partition(b"\n") for part in parts), strict=True)
            if plain := _plain_records(heads, lines_of):
                yield from map(Record, *plain)
                return
        for number, part in enumerate(parts):
            head, _, lines = part.partition(b"\n")
            try:
                record = self._record(head, lines)
            except _RecordError as fault:
                line += sum(before.count(b"\n") + 1 for before in parts[:number])
                raise self._error(line, fault) from None
            del lines  # it may be a chromosome
            yield record

    def _fastq(self, blocks: Iterable[bytes], line: int) -> Iterator[Record]:
        """Read the records of a block together, as long as nothing in them is unusual."""
        lists = _lists_of_lines(blocks)
        lines: list[bytes] = []
        for more in lists:
            lines += more
            complete = len(lines) // 4 * 4
            if complete:
                records = self._plain_fastq(lines[:complete])
                if records is None:
                    break
                del lines[:complete]
                yield from records
                line += complete
        yield from self._fastq_by_record(chain(lines, chain.from_iterable(lists)), line)

    def _plain_fastq(self, lines: list[bytes]) -> Iterator[Record] | None:
        """Return the records of ``lines``, four each; None where something in them is unusual."""
        heads, letters, pluses, qualities = (lines[place::4] for place in range(4))
        if (
            self._molecule != "nucleotide"
            or not all(head.startswith(b"@") for head in heads)
            or not all(plus.startswith(b"+") for plus in pluses)
            or b"".join(qualities).translate(None, _QUALITIES)
            or not (plain := _plain_records([head[1:] for head in heads], letters))
        ):
            return None
        texts = b"\n".join(qualities).decode("ascii").split("\n")
        if list(map(len, texts)) != list(map(len, plain[2])):
            return None
        return map(Record, *plain, texts)

    def _fastq_by_record(self, lines: Iterator[bytes], line: int) -> Iterator[Record]:
        """Take four lines per record; blank lines between records are passed over."""
        unit = "bases" if self._molecule == "nucleotide" else "residues"
        for head in lines:
            if not head:
                line += 1
                continue
            rest = list(islice(lines, 3))
            try:
                _check_fastq(head, rest, unit)
                record = self._record(head[1:], rest[0])
            except _RecordError as fault:
                raise self._error(line, fault) from None
            yield record._replace(qualities=_qualities_of_letters(rest[0], rest[2]))
            line += 4

    def _record(self, head: bytes, lines: bytes) -> Record:
        """Return the record of a header, without its ``>`` or ``@``, and of sequence lines.

        Raises:
            _RecordError: the header or a letter is wrong.
        """
        if len(head) > LONGEST_HEADER:
            raise _RecordError("the header is longer than 1 MiB; are the line ends missing?", head)
        header = head.decode()  # InputText has seen that it is UTF-8
        words = head.split(None, 1)  # of bytes: at spaces and tabs, not at other blanks
        if not words:
            raise _RecordError("the header has no id; write one after the '>' or '@'")
        # isprintable is the fast test; it is false for tabs and odd blanks too, which are fine.
        if not header.isprintable() and (control := CONTROL.search(header)):
            code = ord(control[0])
            raise _RecordError(f"control character 0x{code:02x} in the header; remove it", head)
        if self._molecule == "protein":
            return Record(words[0].decode(), header, _residues(lines, head))
        letters = clean_letters(lines)
        if letters is None:
            down, message = describe_illegal_letter(lines)
            raise _RecordError(message, head, 1 + down)
        sequence, uracil = letters
        if uracil:
            self.uracil = True
        return Record(words[0].decode(), header, sequence)

    def _error(self, line: int, fault: _RecordError) -> InputError:
        words = fault.head[:1000].split(None, 1)
        named = f", record '{shortened(words[0].decode(errors='replace'))}'" if words else ""
        return InputError(f"{self._path}: line {line + fault.down}{named}: {fault.message}")


def read_records(
    path: Path, *, limit: int | None = None, molecule: Molecule = "nucleotide"
) -> Records:
    """Read the sequences of ``path``, lazily: FASTA or FASTQ, plain, gzip, bzip2 or xz.

    Blank files have no records. ``limit`` is the largest expanded size of a compressed file, in
    bytes. While iterating it

    Raises:
        UsageError: the file is missing, a directory or unreadable.
        InputError: the content is not usable; the message names file, line and record.
    """
    return Records(path, limit=limit, molecule=molecule)


def holds_qualities(path: Path) -> bool:
    """Return whether ``path`` is a FASTQ file, by how it begins.

    Raises:
        UsageError: the file is missing, a directory or unreadable.
        InputError: the file is damaged, or not text.
    """
    with closing(iter(InputText(path))) as blocks:
        starts = filter(None, (block.lstrip(BLANK) for block in blocks))
        return next(starts, b"").startswith(b"@")


class _RecordError(Exception):
    """A record is wrong, ``down`` lines below its header."""

    def __init__(self, message: str, head: bytes = b"", down: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.head = head
        self.down = down


def _plain_records(
    heads: Sequence[bytes], lines_of: Sequence[bytes]
) -> tuple[list[str], list[str], list[str]] | None:
    """Return ids, headers and sequences of records of nucleotides, all of them together.

    This is much faster than one after the other. The result is None where something is unusual:
    a header, a letter, or a U, which has to be counted.
    """
    text = b"\n".join(heads).decode()
    headers = text.split("\n")
    words = [head.split(None, 1) for head in heads]
    if not all(words) or max(map(len, heads)) > LONGEST_HEADER:
        return None
    if not "".join(headers).isprintable() and CONTROL.search(text):
        return None
    sequences = sequences_of(lines_of)
    return None if sequences is None else ([word[0].decode() for word in words], headers, sequences)


def _residues(lines: bytes, head: bytes) -> str:
    """Return the residues of sequence lines without blanks.

    Raises:
        _RecordError: a character is not a letter, or the letters are those of nucleotides.
    """
    residues = clean_residues(lines)
    if residues is None:
        down, message = describe_illegal_residue(lines)
        raise _RecordError(message, head, 1 + down)
    if are_nucleotides(residues):
        raise _RecordError(
            "looks like nucleotides (only the letters A, C, G, T, U and N); give proteins, for "
            "example translated genes",
            head,
            1,
        )
    return residues


def _lists_of_lines(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of ``blocks`` as one list per block."""
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


def _check_fastq(head: bytes, rest: list[bytes], unit: str) -> None:
    """Check the form of a FASTQ record, whose letters are ``unit``. Raises ``_RecordError``."""
    name = head[1:]
    if not head.startswith(b"@"):
        raise _RecordError("a FASTQ record must begin with '@'; is a line missing or too many?")
    if len(rest) < 3:
        down = len(rest) - (rest[-1:] == [b""])  # what follows the final line feed is not a line
        raise _RecordError("the last FASTQ record is truncated; copy the file again", name, down)
    letters, plus, quality = rest
    if not plus.startswith(b"+"):
        raise _RecordError(
            "the third line of a FASTQ record must begin with '+'; "
            "unwrap the sequences first (seqtk seq -l0)",
            name,
            2,
        )
    if len(letters) != len(quality):
        raise _RecordError(
            f"{len(letters)} {unit} but {len(quality)} qualities; is the file truncated?", name, 3
        )
    if not quality.isascii() or quality.translate(None, _QUALITIES):
        raise _RecordError(
            "a quality is not a printable ASCII character; copy the file again", name, 3
        )


def _qualities_of_letters(letters: bytes, qualities: bytes) -> str:
    """Return ``qualities`` without those of blanks between the letters."""
    if letters.translate(None, BLANK) != letters:
        pairs = zip(letters, qualities, strict=True)
        qualities = bytes(quality for letter, quality in pairs if letter not in BLANK)
    return qualities.decode("ascii")


def _describe_wrong_start(start: bytes) -> str:
    if start.startswith(b";"):
        return "comment lines (';') are not read; remove them (grep -v '^;')"
    words = start[:200].decode(errors="replace").splitlines()[0]
    return (
        f"text before the first '>': '{shortened(words)}'; "
        "give a FASTA ('>' first) or FASTQ ('@' first) file"
    )
