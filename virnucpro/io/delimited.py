"""Read tab-separated tables with a header by the names of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virnucpro.errors import InputError, UsageError


@dataclass(frozen=True)
class DelimitedTable:
    """A table on disk. ``columns`` are the names in its first line."""

    path: Path
    columns: tuple[str, ...]

    def rows(self, *names: str) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the fields of the columns ``names``, row by row.

        Empty lines are skipped.

        Raises:
            InputError: a column is missing, or a line has another number of fields.
        """
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise InputError(
                f"{self.path} has no column {missing[0]!r}, its first line names "
                f"{', '.join(self.columns[:12])}: check that it is the right table, with "
                f"tabs between its columns"
            )
        indices = [self.columns.index(name) for name in names]
        for number, fields in _lines(self.path):
            if number > 1 and len(fields) == len(self.columns):
                yield number, [fields[index] for index in indices]
            elif number > 1 and fields != [""]:
                raise self.error(number, f"{len(fields)} fields, expected {len(self.columns)}")

    def error(self, number: int, what: str) -> InputError:
        """Return an error at a line."""
        return InputError(f"{self.path}: line {number}: {what}; correct the table or make it again")


def open_table(path: Path) -> DelimitedTable:
    """Read the header of a table.

    Raises:
        UsageError: the file is missing or cannot be read.
        InputError: it is empty, or it is not text.
    """
    _, columns = next(_lines(path), (1, [""]))
    if not any(map(str.strip, columns)):
        raise InputError(f"{path} is empty: name a tab-separated table with a header")
    return DelimitedTable(path, tuple(column.strip() for column in columns))


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as stream:
            for number, line in enumerate(stream, 1):
                yield number, line.rstrip("\r\n").split("\t")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8: name a tab-separated table") from error
