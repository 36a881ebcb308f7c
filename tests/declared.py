"""Rows of tables for tests, from their declarations: a new column changes none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from virnucpro.columns import ResultTable

EXAMPLES: dict[type, object] = {str: "x", int: 5, float: 0.5, bool: True}


def line_of(table: ResultTable, **cells: object) -> str:
    """Return a row with ``cells``; every other cell has a value of the type of its column."""
    examples = {column.name: EXAMPLES[column.type] for column in table.columns}
    return table.line(**(examples | cells))


def cells_of(table: ResultTable, path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a file, with their cells by the names of the columns."""
    for row in table.read(path, *table.row._fields):
        yield dict(zip(table.row._fields, row, strict=True))
