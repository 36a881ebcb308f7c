"""Read tab-separated tables with a header by the names of their columns."""

from __future__ import annotations

import csv
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

        Empty lines are skipped. A missing column or another number of fields is an InputError.
        """
        if missing := [name for name in names if name not in self.columns]:
            raise self.error(1, f"no column {missing[0]!r} between tabs")
        indices = [self.columns.index(name) for name in names]
        for number, fields in _lines(self.path):
            if number > 1 and len(fields) == len(self.columns):
                yield number, [fields[index] for index in indices]
            elif number > 1 and fields:
                raise self.error(number, f"{len(fields)} fields, expected {len(self.columns)}")

    def error(self, number: int, what: str) -> InputError:
        """Return an error at a line."""
        return InputError(f"{self.path}: line {number}: {what}; correct the table or make it again")


def open_table(path: Path) -> DelimitedTable:
    """Read the header of a table; InputError where it is not text, UsageError where it is none."""
    return DelimitedTable(path, tuple(name.strip() for name in next(_lines(path), (1, [""]))[1]))


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield from enumerate(csv.reader(stream, "excel-tab", quoting=csv.QUOTE_NONE), 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its path") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no tab-separated table in UTF-8: {error}") from error
