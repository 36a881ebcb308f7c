"""The letters that nucleotides and proteins have, and what is said of any other one."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from virnucpro.io.text import shortened
from virnucpro.layout import Molecule

NUCLEOTIDES = "ACGTUNRYSWKMBDHV"  # IUPAC, Cornish-Bowden 1985, doi:10.1093/nar/13.9.3021
BLANK = " \t\n"  # what may stand between letters
_BLANK_BYTES = BLANK.encode()
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


def clean_sequences(lines_of: Sequence[str], molecule: Molecule) -> tuple[list[str], bool] | None:
    """Return the letters of several sequences without blanks, and whether a U was among them.

    A U of nucleotides is read as T. The result is None where :func:`describe_illegal_letter` has
    something to say of one of the sequences.
    """
    text = ">".join(lines_of)
    letters = text.encode("ascii", "replace").translate(_TABLES[molecule], _BLANK_BYTES)
    sequences = letters.decode("ascii").split(">")
    if len(sequences) != len(lines_of):
        return None
    if molecule == "protein" and any(map(_are_nucleotides, sequences)):
        return None
    return sequences, molecule == "nucleotide" and ("U" in text or "u" in text)


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
