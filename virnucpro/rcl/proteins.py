"""Tables of proteins with and without an RCL, as RCL-identifier has them.

A table is a CSV file with the columns ``id`` and ``Sequence``; that of serpins also has
``rcl_start`` and ``rcl_end``, counted from 1, both inclusive. Other columns are not read.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError

COLUMNS = ("id", "Sequence")
REGION_COLUMNS = ("rcl_start", "rcl_end")
NAMED_ROWS = 3  # rows with a problem that a message names


@dataclass(frozen=True)
class AnnotatedProtein:
    """A row of a table.

    Attributes:
        accession: its ``id``.
        sequence: its residues.
        start: the first residue of the RCL, counted from 1; 0 for a protein without an RCL.
        end: the last residue of the RCL; 0 for a protein without an RCL.
    """

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


@dataclass(frozen=True)
class ProteinTable:
    """The proteins of a table that can be used.

    Attributes:
        path: the file.
        proteins: in the order of the table.
        skipped: the line and the problem of each row that cannot be used.
    """

    path: Path
    proteins: Sequence[AnnotatedProtein]
    skipped: Sequence[tuple[int, str]]

    def warning(self) -> str | None:
        """Return a sentence on the rows that were skipped; None where there are none."""
        if not self.skipped:
            return None
        reasons = Counter(problem for _, problem in self.skipped)
        texts = []
        for problem, count in reasons.items():
            lines = [str(line) for line, reason in self.skipped if reason == problem]
            more = ", ..." if count > NAMED_ROWS else ""
            texts.append(f"{count:,} {problem} (line {', '.join(lines[:NAMED_ROWS])}{more})")
        return f"{self.path}: {len(self.skipped):,} rows are skipped: {'; '.join(texts)}"


def read_protein_table(path: Path, *, with_rcl: bool, max_length: int) -> ProteinTable:
    """Read a table; rows that cannot be used are skipped, and listed with their problem.

    ``with_rcl`` says whether its proteins are serpins with an annotated RCL. Proteins of more than
    ``max_length`` residues are skipped.

    Raises:
        InputError: the file cannot be read, is not such a table, or has no row that can be used.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8: is it the CSV table?") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    columns = (*COLUMNS, *(REGION_COLUMNS if with_rcl else ()))
    proteins: list[AnnotatedProtein] = []
    skipped: list[tuple[int, str]] = []
    try:
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError(
                f"{path} has no column {' and no column '.join(missing)}: expected a CSV table "
                f"with the columns {', '.join(columns)}"
            )
        for row in reader:
            protein = _protein(row, with_rcl, max_length)
            if isinstance(protein, str):
                skipped.append((reader.line_num, protein))
            else:
                proteins.append(protein)
    except csv.Error as error:
        place = f"{path}, after line {reader.line_num}"
        raise InputError(f"{place}: not a row of a CSV table ({error})") from error
    table = ProteinTable(path, proteins, skipped)
    if not proteins:
        raise InputError(table.warning() or f"{path} has no rows below its header")
    return table


def _protein(row: dict[str, str], with_rcl: bool, max_length: int) -> AnnotatedProtein | str:
    """Return the protein of a row, or why it cannot be used."""
    accession, sequence = row["id"].strip(), "".join(row["Sequence"].split())
    if not accession:
        return "without an id"
    if not sequence:
        return "without a sequence"
    if not (sequence.isascii() and sequence.rstrip("*").isalpha()):
        return "whose sequence holds other characters than letters"
    sequence = sequence.rstrip("*")  # a stop codon
    if len(sequence) > max_length:
        return f"of more than {max_length:,} residues"
    if not with_rcl:
        return AnnotatedProtein(accession, sequence)
    try:
        start, end = (float(row[name]) for name in REGION_COLUMNS)
    except ValueError:
        return "whose rcl_start or rcl_end is not a number"
    if not (start.is_integer() and end.is_integer()):
        return "whose rcl_start or rcl_end is not a whole number"
    if not 1 <= start <= end <= len(sequence):
        return "whose RCL lies outside the sequence, or ends before it starts"
    return AnnotatedProtein(accession, sequence, int(start), int(end))
