"""Read the sequences of an input: FASTA or FASTQ, plain or compressed, from any source.

``text.py`` makes text of the file, and :class:`Records` cuts it into records and checks their
letters, many at a time. Only where one of them is wrong are they looked at one by one, to name the
line. dnaio refuses FASTQ ids that are not ASCII, drops lines with ``#``, and names no line.
"""

from __future__ import annotations

import re
import string
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

from virnucpro.contracts import Molecule
from virnucpro.errors import InputError
from virnucpro.io.text import WRONG_SIGN, shortened, text_blocks

NUCLEOTIDES = "ACGTUNRYSWKMBDHV"  # IUPAC, Cornish-Bowden 1985, doi:10.1093/nar/13.9.3021
BLANK = " \t\n"  # what may stand between letters
_ALLOWED: dict[Molecule, str] = {
    "nucleotide": NUCLEOTIDES + NUCLEOTIDES.lower(),
    "protein": string.ascii_letters + "*",
}
# A letter becomes itself, U becomes T, and any other sign the one that stands between sequences.
_TABLES: dict[Molecule, bytes] = {
    molecule: bytes(ord(sign if sign in allowed else ">") for sign in map(chr, range(256)))
    for molecule, allowed in _ALLOWED.items()
}
_TABLES["nucleotide"] = _TABLES["nucleotide"].replace(b"U", b"T").replace(b"u", b"t")
_PROTEIN = re.compile("[EFILPQ]", re.IGNORECASE)  # amino acids that are not nucleotide codes
_PEPTIDE = re.compile(r"[A-Z*.\s-]*", re.IGNORECASE | re.ASCII)
# A protein of this many residues, all of them A, C, G, T or N, does not occur: these are 26 % of
# all residues in UniProtKB/Swiss-Prot (release statistics).
_SHORTEST_NUCLEOTIDES = 40


def describe_illegal_letter(lines: str, molecule: Molecule) -> tuple[int, str] | None:
    """Return the index of the first letter that is not one of the molecule, and the message.

    The result is None where every letter is one.
    """
    match = re.search(f"[^{re.escape(_ALLOWED[molecule])}{BLANK}]", lines)
    if match is None:
        if molecule == "protein" and _are_nucleotides("".join(lines.split())):
            return 0, "looks like nucleotides (only A, C, G, T, U and N); give proteins"
        return None
    protein = _PROTEIN.search(lines)
    if molecule == "nucleotide" and protein and _PEPTIDE.fullmatch(lines):
        message = f"looks like protein (letter '{protein[0]}'); give nucleotide sequences"
        return protein.start(), message
    code = f"nucleotide code (IUPAC: {NUCLEOTIDES})" if molecule == "nucleotide" else "amino acid"
    return match.start(), (
        f"'{shortened(match[0])}' is no {code}; remove gaps, stop signs, position numbers and "
        "comments, or correct the sequence"
    )


def _are_nucleotides(residues: str) -> bool:
    return (
        len(residues) >= _SHORTEST_NUCLEOTIDES
        and not residues.strip("ACGTUNacgtun")
        and len(set(residues.upper())) >= 3
    )


EMPTY = "no sequences; the file is empty, check what wrote it"
LONGEST_HEADER = 1 << 20  # letters; nobody writes such a line, but a file without line ends has one


class Record(NamedTuple):
    """One sequence of the input; ``mate`` is the second mate of a pair of reads."""

    id: str  # first word of the header, which ends at a space or a tab
    header: str  # without its ">" or "@"
    sequence: str  # letters without blanks, case kept, U of nucleotides read as T; may be empty
    qualities: str | None = None  # as they stand in a FASTQ file, one per letter
    mate: Record | None = None

    @property
    def sequences(self) -> tuple[str, ...]:
        """The sequence, and that of the mate where there is one."""
        return (self.sequence, self.mate.sequence) if self.mate else (self.sequence,)


@dataclass
class Records:
    """The records of a file: FASTA or FASTQ, plain or compressed; none of a blank file.

    ``limit`` is the largest expanded size of a compressed file in bytes. The file is opened when
    they are iterated over. That raises :class:`UsageError` for a file that cannot be read, and
    :class:`InputError` for content that is not usable; it names file, line and record.
    """

    path: Path
    _: KW_ONLY
    limit: int | None = None
    molecule: Molecule = "nucleotide"
    uracil: bool = field(default=False, init=False)  # whether a U was read as T so far
    _line: int = field(default=1, init=False)  # of the text that is looked at next

    def __iter__(self) -> Generator[Record, None, None]:
        """Yield the records in the order of the file, and close it at the end."""
        self._line = 1
        with closing(text_blocks(self.path, limit=self.limit)) as blocks:
            for block in blocks:
                start = block.lstrip(BLANK)
                self._line += block.count("\n", 0, len(block) - len(start))
                if start.startswith(">"):
                    yield from self._fasta(chain((start[1:],), blocks))
                elif start.startswith("@"):
                    yield from self._fastq(chain((start,), blocks))
                elif start:
                    line = start[:200].splitlines()[0]
                    message = (
                        f"text before the first record: '{shortened(line)}'; give FASTA ('>' "
                        f"first) or FASTQ ('@' first) in UTF-8, plain or as gzip, bz2, xz or zstd"
                    )
                    raise self._error(0, "", message)

    def _fasta(self, blocks: Iterable[str]) -> Iterator[Record]:
        """Split at the ``>`` that begin a line; the first one is already gone."""
        pieces: list[str] = []  # of the record that the blocks so far end in
        held = ""  # a line feed whose ">" may be in the next block
        line = self._line  # of the end of the blocks so far
        for block in blocks:
            block = held + block
            held = "\n" if block.endswith("\n") else ""
            line += block.count("\n") - len(held)
            first, *parts = block.removesuffix("\n").split("\n>")
            pieces.append(first)
            if parts:
                *whole, last = "".join(pieces), *parts
                pieces = [last]
                yield from self._fasta_records(whole)
                self._line = line - last.count("\n")
            elif sum(map(len, pieces)) > LONGEST_HEADER and not any("\n" in p for p in pieces):
                break  # before it fills the memory; the header is refused below
        whole = ["".join(pieces)]
        pieces.clear()  # a chromosome is not kept twice
        yield from self._fasta_records(whole)

    def _fasta_records(self, parts: list[str]) -> Iterator[Record]:
        heads, _, lines_of = zip(*(part.partition("\n") for part in parts), strict=True)
        sizes = (1 + part.count("\n") for part in parts)
        return self._checked(heads, lines_of, repeat(None), sizes)

    def _fastq(self, blocks: Iterable[str]) -> Iterator[Record]:
        """Take four lines per record; empty lines between records are passed over."""
        lines: list[str] = []
        rest = ""  # the line that the blocks so far end in
        for block in chain(blocks, ("\n",)):
            rest += block
            if "\n" in block:
                *more, rest = rest.split("\n")
                lines += more
            while len(lines) >= 4 or lines[:1] == [""]:
                heads = lines[: len(lines) // 4 * 4 : 4]
                count = 4 * (heads.index("") if "" in heads else len(heads))
                if count:
                    yield from self._fastq_records(lines[:count])
                if count < len(lines) and not lines[count]:
                    count += 1
                    self._line += 1
                del lines[:count]
        yield from self._fastq_records(lines)

    def _fastq_records(self, lines: list[str]) -> Iterator[Record]:
        if not lines:
            return iter(())
        if not _are_fastq(lines):
            starts = range(0, len(lines), 4)
            wrong = next(start for start in starts if not _are_fastq(lines[start : start + 4]))
            self._fastq_records(lines[:wrong])
            message = (
                "a FASTQ record has four lines: '@' and an id, letters, '+', and one "
                "printable quality per letter; is it truncated, or wrapped (seqtk seq -l0)?"
            )
            raise self._error(0, lines[wrong].removeprefix("@"), message)
        heads = [head[1:] for head in lines[::4]]
        records = self._checked(heads, lines[1::4], lines[3::4], repeat(4))
        self._line += len(lines)
        return records

    def _checked(
        self,
        heads: Sequence[str],
        lines_of: Sequence[str],
        qualities: Iterable[str | None],
        sizes: Iterable[int],
    ) -> Iterator[Record]:
        """Return records, checked many at a time; ``sizes`` are their numbers of lines."""
        words = "\n".join(heads).replace("\t", " ").split("\n")
        ids = [word.lstrip(" ").partition(" ")[0] for word in words]
        text, is_protein = ">".join(lines_of), self.molecule == "protein"
        letters = text.encode("ascii", "replace").translate(_TABLES[self.molecule], BLANK.encode())
        sequences = letters.decode("ascii").split(">")
        wrong = len(sequences) != len(lines_of) or not all(ids)
        wrong |= is_protein and any(map(_are_nucleotides, sequences))
        # isprintable is the fast test; it is false for tabs and odd blanks too, which are fine.
        readable = "".join(heads).isprintable() or not WRONG_SIGN.search("\n".join(heads))
        if wrong or not readable or max(map(len, heads)) > LONGEST_HEADER:
            for head, lines, size in zip(heads, lines_of, sizes, strict=False):
                self._refuse_wrong(head, lines)
                self._line += size
            raise AssertionError("no record is wrong")
        self.uracil |= not is_protein and ("U" in text or "u" in text)
        return map(Record, ids, heads, sequences, qualities)

    def _refuse_wrong(self, head: str, lines: str) -> None:
        """Raise an error if a header or the lines of its sequence are wrong."""
        place, message = 0, ""
        if not first_word(head):
            message = "the header has no id; write one after the '>' or '@'"
        elif len(head) > LONGEST_HEADER:
            message = "the header is longer than 1 MiB; are the line ends missing?"
        elif match := WRONG_SIGN.search(head):
            place, message = match.start(), "there is a control character in the header; remove it"
        elif wrong := describe_illegal_letter(lines, self.molecule):
            place, message = len(head) + 1 + wrong[0], wrong[1]
        text = f"{head}\n{lines}\n"
        if "\udc80" <= text[place] <= "\udcff":
            message = f"byte 0x{ord(text[place]) & 0xFF:02x} is not UTF-8; save the file as UTF-8"
        if message:
            raise self._error(text.count("\n", 0, place), head, message)

    def _error(self, down: int, head: str, message: str) -> InputError:
        word = first_word(head[:1000])
        named = f", record '{shortened(word)}'" if word else ""
        return InputError(f"{self.path}: line {self._line + down}{named}: {message}")


def holds_qualities(path: Path) -> bool:
    """Return whether ``path`` is a FASTQ file, by how it begins. Raises as reading does."""
    with closing(text_blocks(path)) as blocks:
        starts = filter(None, (block.lstrip(BLANK) for block in blocks))
        return next(starts, "").startswith("@")


def first_word(header: str) -> str:
    """Return the id that a header begins with."""
    return header.replace("\t", " ").lstrip(" ").partition(" ")[0]


def _are_fastq(lines: list[str]) -> bool:
    """Return whether lines have the form of FASTQ records."""
    letters, qualities = "".join(lines[1::4]), "".join(lines[3::4])
    return (
        len(lines) % 4 == 0
        and {head[:1] for head in lines[::4]} <= {"@"}
        and {plus[:1] for plus in lines[2::4]} <= {"+"}
        and list(map(len, lines[1::4])) == list(map(len, lines[3::4]))
        and qualities.isascii()
        and qualities.isprintable()
        and not (" " in letters or "\t" in letters)  # there would be a quality too many
    )
