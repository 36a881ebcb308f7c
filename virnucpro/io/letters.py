"""The letters of a nucleotide sequence, and what to say about the others."""

from __future__ import annotations

import re

NUCLEOTIDES = b"ACGTUNRYSWKMBDHV"  # IUPAC, Cornish-Bowden 1985, doi:10.1093/nar/13.9.3021
_BOTH_CASES = NUCLEOTIDES + NUCLEOTIDES.lower()
BLANK = b" \t\n"  # what may stand between letters
_OTHER = b"\xff"


def _table(letters: bytes, read_as: bytes) -> bytes:
    table = bytearray(_OTHER * 256)
    for letter, new in zip(letters, read_as, strict=True):
        table[letter] = new
    return bytes(table)


# Without U, so that finding one costs nothing where there is none; and with U read as T.
_DNA = _table(_BOTH_CASES.translate(None, b"Uu"), _BOTH_CASES.translate(None, b"Uu"))
_RNA = _table(_BOTH_CASES, _BOTH_CASES.replace(b"U", b"T").replace(b"u", b"t"))

_ILLEGAL = re.compile(b"[^" + _BOTH_CASES + BLANK + b"]")
_PROTEIN = re.compile(rb"[EFILPQ]", re.IGNORECASE)  # amino acids that are no nucleotide code
_PEPTIDE = re.compile(rb"[A-Z*.\s-]*", re.IGNORECASE)


def cleaned(lines: bytes) -> tuple[str, bool] | None:
    """The letters of ``lines`` less blanks and with U read as T, and whether there was a U.

    None where a letter is no nucleotide code.
    """
    # One pass makes of every other letter a byte that is not ASCII, which is found at once.
    letters = lines.translate(_DNA, BLANK)
    if letters.isascii():
        return letters.decode("ascii"), False
    letters = lines.translate(_RNA, BLANK)
    return (letters.decode("ascii"), True) if letters.isascii() else None


def complaint(lines: bytes) -> tuple[int, str]:
    """Say what is wrong with ``lines``, for which ``cleaned`` gave None.

    Returns the number of lines before the one to blame, and the sentence.
    """
    match = _ILLEGAL.search(lines)
    if match is None:
        raise ValueError("every letter is a nucleotide code")
    protein = _PROTEIN.search(lines)
    if protein and _PEPTIDE.fullmatch(lines):
        match = protein
        found = protein[0].decode()
        message = f"looks like protein (letter '{found}'); give nucleotide sequences"
    else:
        message = _about(match[0][0], lines, match.start())
    return lines.count(b"\n", 0, match.start()), message


def _about(byte: int, lines: bytes, index: int) -> str:
    starts_line = index == 0 or lines[index - 1] == ord("\n")
    char = lines[index : index + 4].decode("utf-8", "ignore")[:1]
    if char in "-.":
        return f"the sequence has gaps ('{char}'); remove them (seqkit seq --remove-gaps)"
    if char == ";" and starts_line:
        return "comment lines (';') are not read; remove them (grep -v '^;')"
    if char == ">":
        return "there is a '>' inside a sequence line; put it on a line of its own"
    if char == "*" or char.isdigit():
        return f"'{char}' is no nucleotide; remove stop signs and position numbers"
    if byte < 32 or byte == 127:
        return f"control character 0x{byte:02x}; the file may be damaged, copy it again"
    return f"'{char}' is no nucleotide code (IUPAC: {NUCLEOTIDES.decode()}); correct the sequence"
