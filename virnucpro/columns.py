"""What a tab-separated table is: its columns, how a row is written, and how a file is read."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from virnucpro.errors import InputError

MISSING = "NA"
"""The text of a cell that has no value."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: what stands in the header.
        type: what a cell is: text, a whole number, a number, or ``True`` and ``False``.
        meaning: one sentence for the documentation.
        example: the cell of the example in the documentation.
        format: how a value is written, as for the function ``format``. A number without a format
            is given as text.
        optional: whether a cell may be ``NA``.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    meaning: str
    example: str
    format: str
    optional: bool

    def text(self, value: object) -> str:
        """Return a cell with ``value``; ``NA`` for None in an optional column."""
        return MISSING if value is None and self.optional else format(value, self.format)

    @property
    def parse(self) -> Callable[[str], str | int | float | bool | None]:
        """The function that returns the value of a cell; None where it is missing.

        It raises ValueError where the text is not of the column's type.
        """
        parse = _parse_bool if self.type is bool else self.type
        if not self.optional:
            return parse
        return lambda text: None if text == MISSING else parse(text)


def _parse_bool(text: str) -> bool:
    return bool(("False", "True").index(text))


def column(meaning: str, example: str, format: str = "") -> Any:
    """Declare a column in the class of a row; its annotation says of which type the cells are."""
    return meaning, example, format


def figure(meaning: str, example: str) -> Any:
    """Declare a column of numbers with six digits."""
    return column(meaning, example, ".6f")


@dataclass(frozen=True)
class ResultTable:
    """A table that the program writes: tab-separated, UTF-8, each line ended by a line feed.

    Attributes:
        path: where the table lies below the output directory; ``{stem}`` stands for the name of
            the run, or of the part of a data set.
        row: a NamedTuple whose fields are the columns from left to right. Its documentation says
            what a row is, and in which order rows come.
        has_header: whether the first line holds the names of the columns.
    """

    path: str
    row: type[NamedTuple]
    has_header: bool = True

    def place(self, stem: str) -> str:
        """Return the path of the table below the output directory for the run ``stem``."""
        return self.path.format(stem=stem)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns from left to right."""
        return self.row._fields

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns from left to right."""
        hints = get_type_hints(self.row)
        made = []
        for name, (meaning, example, form) in self.row._field_defaults.items():
            kind, *none = get_args(hints[name]) or (hints[name],)
            form = form or ("d" if kind is int else "")
            made.append(Column(name, kind, meaning, example, form, bool(none)))
        return tuple(made)

    @cached_property
    def _all_names(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _optional(self) -> tuple[tuple[str, str], ...]:
        """Name and format of each column whose cells may be missing."""
        return tuple((column.name, column.format) for column in self.columns if column.optional)

    @cached_property
    def _line_of(self) -> Callable[..., str]:
        """A function that formats one row from its cells by name; optional ones are text."""
        return self._format([column.name for column in self.columns])

    def _format(self, places: Iterable[object]) -> Callable[..., str]:
        formats = ("" if column.optional else column.format for column in self.columns)
        cells = (f"{{{place}:{form}}}" for place, form in zip(places, formats, strict=True))
        return ("\t".join(cells) + "\n").format

    @cached_property
    def header(self) -> str:
        """The first line of the file, with its line feed; empty where there is none."""
        return "\t".join(self.names) + "\n" if self.has_header else ""

    def select(self, *names: str) -> tuple[str, ...]:
        """Return ``names``, of which each must be a column of this table.

        Raises:
            ValueError: the table has no such column.
        """
        if unknown := [name for name in names if name not in self.names]:
            raise ValueError(f"{self.path} has no column {unknown[0]!r}")
        return names

    def line(self, **values: object) -> str:
        """Format one row, with its line feed, from a value for each column.

        Raises:
            TypeError: a column has no value, or a value no column.
        """
        if values.keys() != self._all_names:
            self._check(values)
        for name, form in self._optional:
            value = values[name]
            values[name] = MISSING if value is None else format(value, form)
        return self._line_of(**values)

    def row_format(self, *names: str) -> Callable[..., str]:
        """Return a fast function that formats one row from values in the order of ``names``.

        It costs what an f-string costs, so it is for tables with a row per chunk or frame. Give a
        value of an optional column as text.

        Raises:
            TypeError: ``names`` are not the columns of this table.
        """
        self._check(names)
        return self._format(names.index(name) for name in self.names)

    def read(self, path: Path, *names: str) -> Iterator[Sequence[str]]:
        """Return the cells of the columns ``names``, row by row, of a file of this program.

        The file is opened at the first row, and the rows are not checked.

        Raises:
            ValueError: the table has no such column.
            InputError: the first line is not the header of this table.
            OSError: the file cannot be read.
        """
        places = [self.names.index(name) for name in self.select(*names)]
        if names == self.names:
            return self._rows(path)
        if len(places) == 1:
            return (cells[places[0] : places[0] + 1] for cells in self._rows(path))
        return map(itemgetter(*places), self._rows(path))

    def _rows(self, path: Path) -> Iterator[list[str]]:
        # newline="\n" so that only a line feed ends a line: ids may hold any other character
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as stream:
            if self.has_header and (header := next(stream, "")) != self.header:
                raise InputError(
                    f"{path} begins with {header[:80]!r} instead of the columns "
                    f"{', '.join(self.names)}; make the table again"
                )
            for line in stream:
                yield line.rstrip("\n").split("\t")

    def _check(self, names: Iterable[str]) -> None:
        if wrong := set(self.names).symmetric_difference(names):
            columns = ", ".join(sorted(wrong))
            raise TypeError(f"{self.path}: the columns {columns} are missing or unknown")
