"""What a tab-separated table is: its columns, how a row is written, and how a file is read."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import quote

from virnucpro.errors import InputError, UsageError

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS_AT_A_TIME = 4096
MISSING = "NA"
"""The text of a cell that has no value."""


class Column(NamedTuple):
    """A column of a table: ``format`` is what ``format`` and ``%`` take.

    A cell of an ``optional`` column may be ``NA``.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    format: str
    optional: bool


@dataclass(frozen=True)
class ResultTable:
    """A table that the program writes: tab-separated, UTF-8, each line ended by a line feed.

    Attributes:
        path: where the table is below the output directory; ``{stem}`` stands for the name of
            the run, or of the part of a data set.
        row: a NamedTuple whose fields are the columns from left to right. An annotation such as
            ``Annotated[float, ".4f"] | None`` says how a value is written, and that it may miss;
            a ``msgspec.Meta`` behind the format says which values a reader takes.
        has_header: whether the first line holds the names of the columns.
    """

    path: str
    row: type[NamedTuple]
    has_header: bool = True

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns from left to right."""
        made = []
        for name, hint in get_type_hints(self.row, include_extras=True).items():
            optional = type(None) in get_args(hint)
            kind = get_args(hint)[0] if optional else hint
            kind, form, *_ = get_args(kind) if get_origin(kind) is Annotated else (kind, "")
            made.append(Column(name, kind, form, optional))
        return tuple(made)

    @cached_property
    def header(self) -> str:
        """The first line of the file, with its line feed; empty where there is none."""
        return "\t".join(self.row._fields) + "\n" if self.has_header else ""

    def line(self, **values: object) -> str:
        """Format one row, with its line feed, from a value for each column.

        Raises:
            TypeError: a column has no value, or a value no column.
        """
        return self.lines(**{name: (value,) for name, value in values.items()})

    def lines(self, **columns: Iterable[object]) -> str:
        """Format rows, each with its line feed, from the values of each column.

        Raises:
            TypeError: a column has no values, or values no column.
            ValueError: the columns are not of one length.
        """
        row = self.row(**columns)  # type: ignore[call-overload]
        line, cells = [], []
        for values, column in zip(row, self.columns, strict=True):
            if column.optional:
                values = [
                    MISSING if value is None else format(value, column.format) for value in values
                ]
            line.append("%s" if column.optional or not column.format else f"%{column.format}")
            cells.append(values)
        return "".join(map(("\t".join(line) + "\n").__mod__, zip(*cells, strict=True)))

    def read(self, path: Path, *names: str) -> Iterator[list[str]]:
        """Yield the cells of the columns ``names``, row by row, as :meth:`read_columns` does."""
        for columns in self.read_columns(path, *names):
            yield from map(list, zip(*columns, strict=True))

    def read_columns(self, path: Path, *names: str) -> Iterator[list[list[str]]]:
        """Yield the columns ``names`` of ``ROWS_AT_A_TIME`` rows each of a file of this program.

        Millions of rows are read faster this way: Python need not look after a list for each.

        Raises:
            ValueError: the table has no such column.
            InputError: the first line is not the header of this table, or a row is too short or
                too long.
            OSError: the file cannot be read.
        """
        fields = self.row._fields
        places, width = [fields.index(name) for name in names], len(fields)
        # newline="\n" so that only a line feed ends a line: ids may hold any other character
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as stream:
            if self.has_header:
                header = next(stream, "")
                if header != self.header:
                    raise InputError(
                        f"{path} begins with {header[:80]!r} instead of the columns "
                        f"{', '.join(fields)}; make the table again"
                    )
            while lines := list(islice(stream, ROWS_AT_A_TIME)):
                cells = "".join(lines).removesuffix("\n").replace("\n", "\t").split("\t")
                if len(cells) != width * len(lines):
                    raise InputError(f"{path} has rows without {width} cells; make it again")
                yield [cells[place::width] for place in places]


def read_table(path: Path) -> DataFrame:
    """Read a tab-separated table of a user as text. Its index has the lines, from 0 on.

    Cells that a line lacks at its end are empty, because editors strip tabs.

    Raises:
        UsageError: it cannot be read.
        InputError: it is empty or not UTF-8, or a line has more cells than the first one.
    """
    import pandas

    try:
        table = pandas.read_csv(
            path,
            sep="\t",
            dtype=object,
            keep_default_na=False,
            quoting=csv.QUOTE_NONE,
            encoding="utf-8-sig",
            skip_blank_lines=False,  # or the lines would have other numbers
        )
        # Where the lines have more cells than the header, the first ones become the index.
        if not isinstance(table.index, pandas.RangeIndex):
            raise ValueError("lines have more cells than the header")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its path") from error
    except ValueError as error:
        raise InputError(f"{path} is no tab-separated table in UTF-8: {error}") from error
    table = table.rename(columns=str.strip).fillna("")
    is_blank = table.iloc[:, 0] == ""
    if is_blank.any():
        table = table[~is_blank | (table != "").any(axis=1)]
    return table


def table_rows(
    path: Path, *names: str, optional: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of a user's table, row by row, of the named columns.

    Cells of ``optional`` columns that are not there are empty.

    Raises:
        UsageError, InputError: as :func:`read_table`, or a column is missing.
    """
    table = read_table(path)
    if missing := [name for name in names if name not in table]:
        raise row_error(path, 1, f"no column {missing[0]!r} between tabs")
    columns = table.reindex(columns=[*names, *optional], fill_value="")
    for line, *cells in columns.itertuples(name=None):
        yield line + 2, cells


def row_error(path: Path, number: int, what: str) -> InputError:
    """Return an error at a line of a table."""
    return InputError(f"{path}: line {number}: {what}; correct the table or make it again")


GFF3_HEADER = "##gff-version 3\n"  # gff3.md of github.com/The-Sequence-Ontology/Specifications


def gff3_escaped(text: str) -> str:
    """Return an id for the first column of GFF3, or for an attribute in its last one."""
    return quote(text, safe=".:^*$@!+_?-|")
