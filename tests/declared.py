"""Rows of tables and calls of records for tests; a new column changes none of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from virnucpro.classifier.contigs import ContigModel
from virnucpro.columns import ResultTable
from virnucpro.settings import DEFAULT_CUTS, Cuts
from virnucpro.stages.calls import Call, Chunk, call_of, summarise

EXAMPLES: dict[type, object] = {str: "x", int: 5, float: 0.5, bool: True}


def line_of(table: ResultTable, **cells: object) -> str:
    """Return a row with ``cells``; every other cell has a value of the type of its column."""
    examples = {column.name: EXAMPLES[column.type] for column in table.columns}
    return table.line(**(examples | cells))


def cells_of(table: ResultTable, path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a file, with their cells by the names of the columns."""
    for row in table.read(path, *table.row._fields):
        yield dict(zip(table.row._fields, row, strict=True))


def call_record(
    length: int,
    chunks: Sequence[Chunk],
    model: ContigModel | None = None,
    fdr: float | None = None,
    cuts: Cuts = DEFAULT_CUTS,
) -> Call:
    """The call of a record of ``length`` bases with these chunks."""
    return call_of(length, summarise(length, chunks, model)[0], fdr, cuts)
