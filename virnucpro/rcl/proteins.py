"""Tables of proteins with and without an RCL, as RCL-identifier has them, read and checked.

A table is a CSV file with the columns ``id`` and ``Sequence``; a table of serpins also has
``rcl_start`` and ``rcl_end``, counted from 1, both inclusive. Other columns are not read.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.formatting import counted
from virnucpro.rcl.encodings import AMINO_ACIDS

COLUMNS = ("id", "Sequence")
REGION_COLUMNS = ("rcl_start", "rcl_end")
NAMED_ROWS = 3  # rows with a problem that a message names
# RCLs of the 1,384 training serpins have 11 to 68 residues, half of them 25 to 28.
SHORT_RCL, LONG_RCL = 10, 50
# What stands in tables of RCL-identifier where there is no annotation.
NO_VALUE = ("", "nan", "no result", "no start", "no end", "#value!")
EARLIER = "in an earlier table"
LISTED = 50  # problems that a report lists before it only counts the others


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


class RowProblem(NamedTuple):
    """A phrase that is the same for all rows with the problem, and what is there.

    An error is wrong; at others somebody should look. Training leaves out what ``is_skipped``.
    """

    problem: str
    value: str
    is_error: bool = True
    is_skipped: bool = True


def read_proteins(
    serpins: Path, others: Path | None, max_length: int
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
        for line, row in table_rows(path, (*COLUMNS, *(REGION_COLUMNS if with_rcl else ()))):
            problems = row_problems(row, max_length, with_rcl=with_rcl)
            if reason := next((p.problem for p in problems if p.is_skipped), None):
                skipped.setdefault(reason, []).append(str(line))
                continue
            ends = (int(float(row[name])) for name in REGION_COLUMNS) if with_rcl else ()
            proteins.append(AnnotatedProtein(row["id"].strip(), residues_of(row), *ends))
        if skipped:
            texts = [
                f"{len(lines):,} {reason} (line {', '.join(lines[:NAMED_ROWS])})"
                for reason, lines in skipped.items()
            ]
            count = sum(map(len, skipped.values()))
            warnings.append(f"{path}: {count:,} rows are skipped: {'; '.join(texts)}")
        if len(proteins) == used:
            raise InputError(warnings[-1] if skipped else f"{path} has no rows below its header")
    return proteins, warnings


def table_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of the last line of each row of a CSV table, and its cells by column."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8: is it the CSV table?") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    try:
        if missing := [name for name in needed if name not in (reader.fieldnames or ())]:
            raise InputError(
                f"{path} has no column {' and no column '.join(missing)}: expected a CSV table "
                f"with the columns {', '.join(needed)}"
            )
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        place = f"{path}, after line {reader.line_num}"
        raise InputError(f"{place}: not a row of a CSV table ({error})") from error


def residues_of(row: Mapping[str, str]) -> str:
    """Return the sequence of a row without spaces and the sign of a final stop codon."""
    return "".join(row["Sequence"].split()).rstrip("*")


def row_problems(
    row: Mapping[str, str], max_length: int, *, with_rcl: bool
) -> Iterator[RowProblem]:
    """Yield all that is wrong with a row by itself; ``with_rcl`` asks for coordinates, too."""
    accession, sequence = row["id"].strip(), residues_of(row)
    name = accession or "no id"
    if not accession:
        yield RowProblem("without an id", sequence[:20])
    if not sequence:
        yield RowProblem("without a sequence", name)
        return
    if others := sorted(set("".join(row["Sequence"].split()).upper()) - set(AMINO_ACIDS)):
        # Letters such as X and a final * can be encoded, others such as - shift all positions.
        wrong = not (sequence.isascii() and sequence.isalpha())
        problem = "with letters that are not one of the 20 amino acids"
        yield RowProblem(problem, f"{name}: {' '.join(others)}", wrong, wrong)
    if len(sequence) > max_length:
        problem = f"of more than {max_length:,} residues, which training leaves out"
        yield RowProblem(problem, f"{name}: {len(sequence):,}", is_error=False)
    if with_rcl:
        yield from _region_problems(row, name, sequence)


def _region_problems(row: Mapping[str, str], name: str, sequence: str) -> Iterator[RowProblem]:
    texts = [row[column].strip() for column in REGION_COLUMNS]
    value = f"{name}: {texts[0]} to {texts[1]} of {len(sequence)}"
    if any(text.lower() in NO_VALUE for text in texts):
        yield RowProblem("without an annotated RCL", value)
        return
    try:
        start, end = map(float, texts)
    except ValueError:
        start = end = float("nan")
    if not (start.is_integer() and end.is_integer()):
        yield RowProblem("whose rcl_start or rcl_end is not a whole number", value)
        return
    if not 1 <= start <= end <= len(sequence):
        yield RowProblem("whose RCL lies outside the sequence, or ends before it starts", value)
        return
    loop = sequence[int(start) - 1 : int(end)]
    annotated = "".join(row.get("rcl_seq", "").split())
    if annotated and annotated.upper() != loop.upper():
        problem = "whose rcl_seq is not what lies at its coordinates"
        yield RowProblem(problem, f"{name}: {annotated}, not {loop}", is_skipped=False)
    if not SHORT_RCL <= len(loop) <= LONG_RCL:
        bound = f"shorter than {SHORT_RCL}" if len(loop) < SHORT_RCL else f"longer than {LONG_RCL}"
        yield RowProblem(f"whose RCL is {bound} residues", value, is_error=False, is_skipped=False)


def check_tables(paths: Iterable[Path], max_length: int) -> tuple[list[str], bool]:
    """Return a report on the rows of tables as lines of text, and whether a row is wrong.

    ``rcl_start``, ``rcl_end`` and ``rcl_seq`` are checked where they are. Ids and sequences that
    occur more than once are found over all tables together.
    """
    lines: list[str] = []
    problems: list[tuple[str, RowProblem]] = []
    firsts: dict[tuple[str, str], tuple[Path, int, list[str]]] = {}
    for path in paths:
        rows = annotated = 0
        for line, row in table_rows(path, COLUMNS):
            with_rcl = set(REGION_COLUMNS) <= row.keys()
            found = list(row_problems(row, max_length, with_rcl=with_rcl))
            rows += 1
            annotated += with_rcl and not any(problem.is_error for problem in found)
            here = (path, line, [row.get(name, "").strip() for name in REGION_COLUMNS])
            name = row["id"].strip()
            for what, text in (("an id", name), ("a sequence", residues_of(row).upper())):
                first = firsts.setdefault((what, text), here) if text else here
                if first == here:
                    continue
                text = f"with {what} that occurs {'before' if first[0] == path else EARLIER}"
                if what == "a sequence" and first[2] != here[2]:
                    text += ", with another RCL"
                value = f"{name or 'no id'} ({first[0]}, line {first[1]})"
                found.append(RowProblem(text, value, is_error=False))
            problems += [(f"{path}, line {line}", problem) for problem in found]
        lines.append(f"{path}: {counted(rows, 'row')}, {annotated:,} with an RCL")
    for severity, is_error in (("error", True), ("warning", False)):
        listed = [(place, problem) for place, problem in problems if problem.is_error == is_error]
        lines += ["", f"{counted(len(listed), severity)}"]
        kinds = Counter(problem.problem for _, problem in listed)
        lines += [f"  {count:>6,}  {problem}" for problem, count in kinds.most_common()]
        for place, problem in listed[:LISTED]:
            lines.append(f"{severity}: {place}: {problem.problem}: {problem.value}")
        if len(listed) > LISTED:
            lines.append(f"and {len(listed) - LISTED:,} more")
    return lines, any(problem.is_error for _, problem in problems)
