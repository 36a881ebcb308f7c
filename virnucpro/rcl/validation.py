"""Check tables of annotated proteins before something is trained on them."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.formatting import counted
from virnucpro.rcl.encodings import AMINO_ACIDS

_LISTED = 50  # problems that a report lists before it only counts the others
_REGION = ("rcl_start", "rcl_end")
# RCLs of the 1,384 training serpins have 11 to 68 residues, half of them 25 to 28.
_SHORT_RCL, _LONG_RCL = 10, 50
# What stands in tables of RCL-identifier where there is no annotation.
_NO_VALUE = ("", "nan", "no result", "no start", "no end", "#value!")

ERROR = "error"
"""The row is wrong. Training leaves most of such rows out."""
WARNING = "warning"
"""The row can be used, but somebody should look at it."""
_NOT_ANNOTATED = "without an annotated RCL"


@dataclass(frozen=True)
class RowProblem:
    """Something that is wrong with a row.

    Attributes:
        path: the table.
        line: of the row in the file, from 1.
        severity: ``ERROR`` or ``WARNING``.
        problem: a phrase, the same for all rows that have the problem.
        value: what is there.
    """

    path: Path
    line: int
    severity: str
    problem: str
    value: str


@dataclass
class TableReport:
    """What is in some tables.

    Attributes:
        rows: rows by table.
        annotated: rows with an RCL that can be used, by table.
        problems: in the order of the tables.
    """

    rows: Counter[Path] = field(default_factory=Counter)
    annotated: Counter[Path] = field(default_factory=Counter)
    problems: list[RowProblem] = field(default_factory=list)

    def count(self, severity: str) -> int:
        """Return the number of problems of a severity."""
        return sum(problem.severity == severity for problem in self.problems)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        text = [
            f"{path}: {counted(rows, 'row')}, {self.annotated[path]:,} with an RCL"
            for path, rows in self.rows.items()
        ]
        for severity in (ERROR, WARNING):
            listed = [problem for problem in self.problems if problem.severity == severity]
            text += ["", f"{counted(len(listed), severity)}"]
            kinds = Counter(problem.problem for problem in listed)
            text += [f"  {count:>6,}  {problem}" for problem, count in kinds.most_common()]
            for problem in listed[:_LISTED]:
                place = f"{problem.path}, line {problem.line}"
                text.append(f"{severity}: {place}: {problem.problem}: {problem.value}")
            if len(listed) > _LISTED:
                text.append(f"and {len(listed) - _LISTED:,} more")
        return text


def check_tables(paths: Iterable[Path], max_length: int) -> TableReport:
    """Check every row of tables in CSV, with the columns of RCL-identifier.

    ``id`` and ``Sequence`` are needed; ``rcl_start``, ``rcl_end`` and ``rcl_seq`` are checked where
    they are. Ids and sequences that occur more than once are found over all tables together.
    ``max_length`` is the length in residues from which training leaves a protein out.

    Raises:
        InputError: a table cannot be read, or has no such columns.
    """
    report = TableReport()
    first_ids: dict[str, tuple[Path, int]] = {}
    first_sequences: dict[str, tuple[Path, int]] = {}
    regions: dict[tuple[Path, int], tuple[str, ...]] = {}
    for path in paths:
        reader, columns = _opened(path)
        report.rows[path] = 0
        try:
            for row in reader:
                report.rows[path] += 1
                problems = _row_problems(row, columns, max_length)
                has_region = set(_REGION) <= set(columns)
                if has_region and ERROR not in [severity for severity, _, _ in problems]:
                    report.annotated[path] += 1
                here = (path, reader.line_num)
                regions[here] = tuple(row.get(name, "").strip() for name in _REGION)
                accession = row["id"].strip()
                sequence = "".join(row["Sequence"].split()).upper()
                for what, text, firsts in (
                    ("an id", accession, first_ids),
                    ("a sequence", sequence, first_sequences),
                ):
                    first = firsts.setdefault(text, here) if text else here
                    if first == here:
                        continue
                    where = "before" if first[0] == path else "in an earlier table"
                    problem = f"with {what} that occurs {where}"
                    if what == "a sequence" and regions[first] != regions[here]:
                        problem += ", with another RCL"
                    value = f"{accession or 'no id'} ({first[0]}, line {first[1]})"
                    problems.append((WARNING, problem, value))
                report.problems += [
                    RowProblem(path, reader.line_num, severity, problem, value)
                    for severity, problem, value in problems
                ]
        except csv.Error as error:
            place = f"{path}, behind line {reader.line_num}"
            raise InputError(f"{place}: not a row of a CSV table ({error})") from error
    return report


def _opened(path: Path) -> tuple[csv.DictReader[str], Sequence[str]]:
    """Open a table; return its reader and columns. Raises InputError for another file."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check its path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: save the table as CSV in UTF-8") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval="")
    try:
        columns = list(reader.fieldnames or ())
    except csv.Error as error:
        raise InputError(f"{path}, line 1: not a row of a CSV table ({error})") from error
    for name in ("id", "Sequence"):
        if name not in columns:
            raise InputError(f"{path} has no column {name!r}: give a CSV table with a header")
    return reader, columns


def _row_problems(
    row: Mapping[str, str], columns: Sequence[str], max_length: int
) -> list[tuple[str, str, str]]:
    """Return severity, problem and value of all that is wrong with a row by itself."""
    accession, sequence = row["id"].strip(), "".join(row["Sequence"].split())
    name = accession or "no id"
    problems = []
    if not accession:
        problems.append((ERROR, "without an id", sequence[:20]))
    if not sequence:
        return [*problems, (ERROR, "without a sequence", name)]
    if others := sorted(set(sequence.upper()) - set(AMINO_ACIDS)):
        # Letters such as X and a final * can be encoded, others such as - shift all positions.
        usable = sequence.isascii() and sequence.rstrip("*").isalpha()
        severity = WARNING if usable else ERROR
        problem = "with letters that are not one of the 20 amino acids"
        problems.append((severity, problem, f"{name}: {' '.join(others)}"))
    if len(sequence) > max_length:
        problem = f"of more than {max_length:,} residues, which training leaves out"
        problems.append((WARNING, problem, f"{name}: {len(sequence):,}"))
    if not set(_REGION) <= set(columns):
        return problems
    texts = [row[column].strip() for column in _REGION]
    value = f"{name}: {texts[0]} to {texts[1]} of {len(sequence)}"
    if any(text.lower() in _NO_VALUE for text in texts):
        return [*problems, (ERROR, _NOT_ANNOTATED, value)]
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return [*problems, (ERROR, "with an rcl_start or rcl_end that is not a number", value)]
    if not all(number.is_integer() for number in numbers):
        problem = "with an rcl_start or rcl_end that is not a whole number"
        return [*problems, (ERROR, problem, value)]
    start, end = map(int, numbers)
    if start < 1:
        problems.append((ERROR, "whose RCL starts before the first residue", value))
    if end < start:
        problems.append((ERROR, "whose RCL ends before it starts", value))
    if max(start, end) > len(sequence):
        problems.append((ERROR, "whose RCL ends behind the last residue", value))
    if not 1 <= start <= end <= len(sequence):
        return problems
    loop, annotated = sequence[start - 1 : end], "".join((row.get("rcl_seq") or "").split())
    if annotated and annotated.upper() != loop.upper():
        problem = "whose rcl_seq is not what lies at its coordinates"
        problems.append((ERROR, problem, f"{name}: {annotated}, not {loop}"))
    if not _SHORT_RCL <= len(loop) <= _LONG_RCL:
        size = (
            f"shorter than {_SHORT_RCL}" if len(loop) < _SHORT_RCL else f"longer than {_LONG_RCL}"
        )
        problems.append((WARNING, f"whose RCL is {size} residues", value))
    return problems
