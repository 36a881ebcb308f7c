"""Proteins: tables of those with and without an RCL, as RCL-identifier has them, and what is found.

A table is a CSV file with the columns ``id`` and ``Sequence``; a table of serpins also has
``rcl_start`` and ``rcl_end``, counted from 1, both inclusive. Other columns are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.formatting import counted

COLUMNS = ("id", "Sequence")
REGION_COLUMNS = ("rcl_start", "rcl_end")
NAMED_ROWS = 3  # rows with a problem that a message names
LONGEST = 1 << 20  # residues of a protein


@dataclass(frozen=True)
class AnnotatedProtein:
    """A row of a table. The RCL is counted from 1, inclusive; both ends are 0 without one."""

    accession: str
    sequence: str
    start: int = 0
    end: int = 0

    @property
    def has_rcl(self) -> bool:
        """Whether the protein has an RCL."""
        return self.start > 0

    def labels(self) -> npt.NDArray[np.int64]:
        """Return 1 for each residue of the RCL and 0 for all others: int64 ``[L]``."""
        labels = np.zeros(len(self.sequence), np.int64)
        if self.has_rcl:
            labels[self.start - 1 : self.end] = 1
        return labels


def read_proteins(
    serpins: Path, others: Path | None, max_length: int = LONGEST
) -> tuple[list[AnnotatedProtein], list[str]]:
    """Read a table of proteins with an RCL, and one of proteins without, where it is named.

    Rows that cannot be used are skipped, and so are proteins of more than ``max_length`` residues;
    the second value has a sentence on them per table.
    """
    proteins: list[AnnotatedProtein] = []
    warnings: list[str] = []
    for path, with_rcl in ((serpins, True), (others, False)):
        if path is None:
            continue
        used = len(proteins)
        skipped: dict[str, list[str]] = {}
        needed = (*COLUMNS, *(REGION_COLUMNS if with_rcl else ()))
        for line, row in enumerate(_rows(path, needed), 2):
            if problem := row_problem(row, max_length, with_rcl=with_rcl):
                skipped.setdefault(problem, []).append(str(line))
                continue
            start, end = (int(float(row[n])) if with_rcl else 0 for n in REGION_COLUMNS)
            proteins.append(AnnotatedProtein(row["id"].strip(), residues_of(row), start, end))
        if skipped:
            texts = [
                f"{len(lines):,} {reason} (line {', '.join(lines[:NAMED_ROWS])})"
                for reason, lines in skipped.items()
            ]
            count = sum(map(len, skipped.values()))
            warnings.append(f"{path}: skipped {counted(count, 'row')}: {'; '.join(texts)}")
        if len(proteins) == used:
            raise InputError(warnings[-1] if skipped else f"{path} has no rows below its header")
    return proteins, warnings


def _rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    import pandas

    try:
        table = pandas.read_csv(path, dtype=str, na_filter=False, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a CSV table in UTF-8 ({error})") from error
    if not set(needed) <= set(table):
        raise InputError(f"{path} needs the columns {', '.join(needed)}, between commas")
    return list(table.to_dict("records"))


def check_tables(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return errors in the rows of tables, and ids and sequences that occur more than once.

    Coordinates are checked where the table has them. Duplicates are found over all tables.
    """
    errors, repeated = [], []
    firsts: dict[tuple[str, str], str] = {}
    for path in paths:
        for line, row in enumerate(_rows(path, COLUMNS), 2):
            place = f"{path}, line {line}: {row['id']}"
            if problem := row_problem(row, LONGEST, with_rcl=set(REGION_COLUMNS) <= row.keys()):
                errors.append(f"error: {place}: a row {problem}")
            for what, text in (("id", row["id"].strip()), ("sequence", residues_of(row).upper())):
                if text and (first := firsts.setdefault((what, text), place)) != place:
                    repeated.append(f"warning: {place}: the {what} occurs in {first}")
    return errors, repeated


def residues_of(row: Mapping[str, str]) -> str:
    """Return the sequence of a row without spaces and the sign of a final stop codon."""
    return "".join(row["Sequence"].split()).rstrip("*")


def row_problem(row: Mapping[str, str], max_length: int, *, with_rcl: bool) -> str | None:
    """Return why a row cannot be used, as a phrase; ``with_rcl`` asks for coordinates, too."""
    sequence = residues_of(row)
    if not row["id"].strip():
        return "without an id"
    if not (sequence.isascii() and sequence.isalpha()):  # a gap shifts all positions
        return "whose sequence is empty, or has other characters than letters"
    if len(sequence) > max_length:
        return f"of more than {max_length:,} residues"
    if not with_rcl:
        return None
    try:
        start, end = (float(row[column]) for column in REGION_COLUMNS)
    except ValueError:
        start = end = float("nan")
    if not (start.is_integer() and end.is_integer()):
        return "without an RCL: rcl_start or rcl_end is not a whole number"
    if not 1 <= start <= end <= len(sequence):
        return "whose RCL is outside the sequence, or ends before it starts"
    annotated = "".join(row.get("rcl_seq", "").split()).upper()
    if annotated and annotated != sequence[int(start) - 1 : int(end)].upper():
        return "whose rcl_seq is not the sequence at its coordinates"
    return None


Region = tuple[int, int, float]
"""First and last residue of an RCL, counted from 1, and their mean probability."""


@dataclass(frozen=True)
class RclResult:
    """What a model says about a protein: the status as in ``STEM_rcl.tsv``, and the RCL.

    ``probabilities`` are float32 ``[L]``, of each residue to belong to the RCL; with a profile, of
    its place in the alignment, and 0 outside the region.
    """

    status: str
    region: Region | None
    probabilities: npt.NDArray[np.float32]
