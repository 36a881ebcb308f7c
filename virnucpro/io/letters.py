"""The letters that nucleotides and proteins have, and what is said of any other one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from virnucpro.layout import Molecule

NUCLEOTIDES = b"ACGTUNRYSWKMBDHV"  # IUPAC, Cornish-Bowden 1985, doi:10.1093/nar/13.9.3021
BLANK = b" \t\n"  # what may stand between letters
_BOTH_CASES = NUCLEOTIDES + NUCLEOTIDES.lower()


def _letter_table(letters: bytes, read_as: bytes) -> bytes:
    table = bytearray(b"\xff" * 256)
    for letter, new in zip(letters, read_as, strict=True):
        table[letter] = new
    return bytes(table)


_SEPARATOR = b"\xff"  # what tables have for any other letter
# Without U, so that finding one costs nothing where there is none; and with U read as T.
_DNA = _letter_table(_BOTH_CASES.translate(None, b"Uu"), _BOTH_CASES.translate(None, b"Uu"))
_RNA = _letter_table(_BOTH_CASES, _BOTH_CASES.replace(b"U", b"T").replace(b"u", b"t"))

_ILLEGAL = re.compile(b"[^" + _BOTH_CASES + BLANK + b"]")
_PROTEIN = re.compile(rb"[EFILPQ]", re.IGNORECASE)  # amino acids that are not nucleotide codes
_PEPTIDE = re.compile(rb"[A-Z*.\s-]*", re.IGNORECASE)


def sequences_of(lines_of: Sequence[bytes]) -> list[str] | None:
    """Return the letters of several sequences without blanks.

    The result is None where a letter is not a nucleotide code, or is a U.
    """
    # What is no letter becomes the byte between the sequences, so that there are too many of it.
    letters = _SEPARATOR.join(lines_of).translate(_DNA, BLANK).decode("latin-1")
    sequences = letters.split(_SEPARATOR.decode("latin-1"))
    return sequences if len(sequences) == len(lines_of) else None


def clean_letters(lines: bytes) -> tuple[str, bool] | None:
    """Return the letters of ``lines`` and whether there was a U.

    Blanks are removed and U is read as T. The result is None where a letter is not a nucleotide
    code.
    """
    # One pass makes of every other letter a byte that is not ASCII, which is found at once.
    letters = lines.translate(_DNA, BLANK)
    if letters.isascii():
        return letters.decode("ascii"), False
    letters = lines.translate(_RNA, BLANK)
    return (letters.decode("ascii"), True) if letters.isascii() else None


def describe_illegal_letter(lines: bytes) -> tuple[int, str]:
    """Describe the first letter of ``lines`` that is not a nucleotide code.

    Returns how many lines come before the line of that letter, and the sentence.

    Raises:
        ValueError: every letter is a nucleotide code.
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
        message = _describe_letter(match[0][0], lines, match.start())
    return lines.count(b"\n", 0, match.start()), message


def _describe_letter(byte: int, lines: bytes, index: int, molecule: Molecule = "nucleotide") -> str:
    starts_line = index == 0 or lines[index - 1] == ord("\n")
    char = lines[index : index + 4].decode("utf-8", "ignore")[:1]
    if char in "-.":
        return f"the sequence has gaps ('{char}'); remove them (seqkit seq --remove-gaps)"
    if char == ";" and starts_line:
        return "comment lines (';') are not read; remove them (grep -v '^;')"
    if char == ">":
        return "there is a '>' inside a sequence line; put it on a line of its own"
    if char == "*" or char.isdigit():
        letter = "a nucleotide" if molecule == "nucleotide" else "an amino acid"
        return f"'{char}' is not {letter}; remove stop signs and position numbers"
    if byte < 32 or byte == 127:
        return f"control character 0x{byte:02x}; the file may be damaged, copy it again"
    if molecule == "protein":
        return f"'{char}' is not a letter of an amino acid; correct the sequence"
    return (
        f"'{char}' is not a nucleotide code (IUPAC: {NUCLEOTIDES.decode()}); correct the sequence"
    )


_RESIDUES = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1)) + b"*"
_NOT_RESIDUE = re.compile(b"[^" + re.escape(_RESIDUES) + BLANK + b"]")
_BASES = "ACGTUNacgtun"
# A protein of this many residues, all of them A, C, G, T or N, does not occur: these are 26 % of
# all residues in UniProtKB/Swiss-Prot (release statistics).
_SHORTEST_NUCLEOTIDES = 40


def clean_residues(lines: bytes) -> str | None:
    """Return the residues of ``lines`` without blanks; None where a letter is no amino acid."""
    residues = lines.translate(None, BLANK)
    return None if residues.translate(None, _RESIDUES) else residues.decode("ascii")


def describe_illegal_residue(lines: bytes) -> tuple[int, str]:
    """Describe the first character of ``lines`` that is not the letter of an amino acid.

    Returns how many lines come before the line of that character, and the sentence.

    Raises:
        ValueError: every character is one.
    """
    match = _NOT_RESIDUE.search(lines)
    if match is None:
        raise ValueError("every character is the letter of an amino acid")
    message = _describe_letter(match[0][0], lines, match.start(), "protein")
    return lines.count(b"\n", 0, match.start()), message


def are_nucleotides(residues: str) -> bool:
    """Return whether what was given as a protein can only be a nucleotide sequence."""
    return (
        len(residues) >= _SHORTEST_NUCLEOTIDES
        and not residues.strip(_BASES)
        and len(set(residues.upper())) >= 3
    )
