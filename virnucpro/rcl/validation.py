"""Check tables of annotated proteins before something is trained on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from virnucpro.formatting import counted
from virnucpro.rcl.proteins import (
    COLUMNS,
    REGION_COLUMNS,
    RowProblem,
    residues_of,
    row_problems,
    table_rows,
)

LISTED = 50  # problems that a report lists before it only counts the others


def check_tables(paths: Iterable[Path], max_length: int) -> tuple[list[str], bool]:
    """Check every row of tables in CSV, with the columns of RCL-identifier.

    ``id`` and ``Sequence`` are needed; ``rcl_start``, ``rcl_end`` and ``rcl_seq`` are checked where
    they are. Ids and sequences that occur more than once are found over all tables together.
    ``max_length`` is the length in residues from which training leaves a protein out.

    Returns:
        The report as lines of text, and whether a row is wrong.

    Raises:
        InputError: a table cannot be read, or has no such columns.
    """
    lines: list[str] = []
    problems: list[tuple[str, RowProblem]] = []
    firsts: dict[tuple[str, str], tuple[Path, int, tuple[str, ...]]] = {}
    for path in paths:
        rows = annotated = 0
        for line, row in table_rows(path, COLUMNS):
            with_rcl = set(REGION_COLUMNS) <= row.keys()
            found = list(row_problems(row, max_length, with_rcl=with_rcl))
            rows += 1
            annotated += with_rcl and not any(problem.is_error for problem in found)
            found += _repeats(row, path, line, firsts)
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


def _repeats(
    row: Mapping[str, str],
    path: Path,
    line: int,
    firsts: dict[tuple[str, str], tuple[Path, int, tuple[str, ...]]],
) -> Iterable[RowProblem]:
    """Yield what of a row an earlier row had; ``firsts`` has the first row with each of these."""
    accession = row["id"].strip()
    region = tuple(row.get(name, "").strip() for name in REGION_COLUMNS)
    for what, text in (("an id", accession), ("a sequence", residues_of(row).upper())):
        here = (path, line, region)
        first = firsts.setdefault((what, text), here) if text else here
        if first == here:
            continue
        where = "before" if first[0] == path else "in an earlier table"
        problem = f"with {what} that occurs {where}"
        if what == "a sequence" and first[2] != region:
            problem += ", with another RCL"
        value = f"{accession or 'no id'} ({first[0]}, line {first[1]})"
        yield RowProblem(problem, value, is_error=False)
