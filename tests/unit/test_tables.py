"""Declarations of tables: formatting, reading, and files of a real run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.errors import InputError
from virnucpro.tables import CONSENSUS, CONTIGS, FRAMES, RECORDS, Column, ResultTable

TABLE = ResultTable(
    "{stem}_sizes.tsv",
    "One row per thing.",
    (
        Column("name", str, "Its name.", "a"),
        Column("size", int, "Its size.", "1", "d"),
        Column("share", float, "Its share, if it has one.", "0.50", ".2f", optional=True),
    ),
)


def test_a_row_is_formatted_by_the_names_of_its_columns() -> None:
    assert TABLE.header == "name\tsize\tshare\n"
    assert TABLE.line(share=1 / 3, name="a", size=2) == "a\t2\t0.33\n"
    assert TABLE.line(name="a", size=2, share=None) == "a\t2\tNA\n"
    assert TABLE.row_format("size", "share", "name")(2, "0.33", "a") == "a\t2\t0.33\n"


@pytest.mark.parametrize("values", [{"name": "a"}, {"name": "a", "size": 1, "part": 1}])
def test_a_missing_or_unknown_column_is_an_error(values: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="share"):
        TABLE.line(**values)
    with pytest.raises(TypeError, match="share"):
        TABLE.row_format(*values)


def test_columns_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    # a line separator of Unicode is part of a name
    path.write_text(TABLE.header + "a\u2028b\t1\tNA\nc\t2\t0.50\n", encoding="utf-8")
    assert list(TABLE.read(path, "share", "name")) == [("NA", "a\u2028b"), ("0.50", "c")]
    assert [list(row) for row in TABLE.read(path, "size")] == [["1"], ["2"]]
    assert list(TABLE.read(path, *TABLE.names))[1] == ["c", "2", "0.50"]
    with pytest.raises(ValueError, match="not in tuple"):
        TABLE.read(path, "part")


def test_a_file_with_another_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("other\tcolumns\n")
    with pytest.raises(InputError, match="instead of the columns name, size, share"):
        list(TABLE.read(path, "name"))


def test_a_table_without_a_header_is_read_from_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "r.tsv"
    path.write_text(RECORDS.header + RECORDS.line(record="a", length=3))
    assert [list(row) for row in RECORDS.read(path, "record", "length")] == [["a", "3"]]


def test_an_added_column_is_written_read_and_checked(tmp_path: Path) -> None:
    """Only the declaration and the values that its writer gives change."""
    added = Column("weight", float, "Its weight in grams.", "1.5", ".1f")
    table = replace(TABLE, columns=(*TABLE.columns[:1], added, *TABLE.columns[1:]))
    path = tmp_path / "t.tsv"
    path.write_text(table.header + table.line(name="a", size=2, share=None, weight=0.25))
    assert path.read_text() == "name\tweight\tsize\tshare\na\t0.2\t2\tNA\n"
    assert list(table.read(path, "size", "weight")) == [("2", "0.2")]
    with pytest.raises(TypeError, match="the columns weight are missing"):
        table.line(name="a", size=2, share=None)


def test_cells_are_parsed_by_the_type_of_their_column() -> None:
    call, coverage = CONSENSUS.columns[1], CONTIGS.columns[4]
    assert call.parse("True") is True
    assert coverage.parse("0.5000") == 0.5
    assert CONTIGS.columns[-1].parse("NA") is None
    assert FRAMES.columns[1].parse("3") == 3
    for column, text in ((call, "yes"), (coverage, "NA"), (FRAMES.columns[1], "3.5")):
        with pytest.raises(ValueError, match=r"invalid|neither|convert"):
            column.parse(text)
