"""Declarations of tables: formatting, reading, and files of a real run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tools.document_tables import PAGES, markdown, path_of
from virnucpro import columns
from virnucpro.errors import InputError
from virnucpro.layout import RunLayout
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import TOY_CLASSIFIER, AnalysisSettings, CutSettings, MachineSettings
from virnucpro.tables import (
    ALL_TABLES,
    CONSENSUS,
    FAILURES,
    RECORDS,
    REGIONS,
    RUN_TABLES,
    ResultTable,
)


class SizeRow(NamedTuple):
    """One row per thing."""

    name: str = columns.column("Its name.", "a")
    size: int = columns.column("Its size.", "1")
    share: float | None = columns.column("Its share, if it has one.", "0.50", ".2f")


TABLE = ResultTable("{stem}_sizes.tsv", SizeRow)


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
    with pytest.raises(ValueError, match="no column 'part'"):
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


def test_the_parts_of_a_declaration_become_a_column() -> None:
    name, size, share = TABLE.columns
    assert (name.type, name.format, name.optional) == (str, "", False)
    assert (size.type, size.format, size.optional) == (int, "d", False)
    assert (share.type, share.format, share.optional) == (float, ".2f", True)
    assert "| `share` | `0.50` | Its share, if it has one. |" in markdown(TABLE)


def test_cells_are_parsed_by_the_type_of_their_column() -> None:
    _, size, share = TABLE.columns
    call = CONSENSUS.columns[1]
    assert (call.parse("True"), call.parse("False"), size.parse("3")) == (True, False, 3)
    assert (share.parse("0.50"), share.parse("NA")) == (0.5, None)
    for column, text in ((call, "yes"), (size, "NA"), (size, "3.5"), (share, "x")):
        with pytest.raises(ValueError, match=r"."):
            column.parse(text)


def test_the_documentation_has_a_place_for_every_table() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    assert [t for t in map(path_of, ALL_TABLES) if f"<!-- columns of {t} -->" not in text] == []


@pytest.mark.parametrize("table", ALL_TABLES, ids=path_of)
def test_examples_are_of_the_type_of_their_column(table: ResultTable) -> None:
    for column in table.columns:
        value = column.parse(column.example)
        assert column.meaning.endswith(".")
        if column.format:
            assert column.text(value) == column.example


def test_the_files_of_a_run_are_as_declared(tmp_path: Path) -> None:
    source = tmp_path / "in.fa"
    source.write_text(
        ">open\n" + "GCTACCGGATTC" * 30 + "\n>closed\n" + "TAAT" * 30 + "\n>short\nAC\n"
        ">copy\n" + "GCTACCGGATTC" * 30 + "\n"
    )
    analysis = AnalysisSettings("custom", str(TOY_CLASSIFIER), 200, 50, "toy", "toy")
    request = PredictionRequest(
        str(source),
        tmp_path / "out",
        analysis,
        MachineSettings(device="cpu", threads=1, remove_intermediate=False),
        cuts=CutSettings(min_score=-1.0),
    )
    run_prediction(request, lambda _: None)
    root = request.layout.root
    for table in RUN_TABLES:
        path = root / table.place("in")
        assert path.exists() == (table is not FAILURES), path
        if table is FAILURES:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if table.has_header:
            assert lines.pop(0).split("\t") == list(table.names)
        assert lines or table is REGIONS  # whose rows tests/unit/stages/test_region_files.py checks
        for line in lines:
            cells = line.split("\t")
            assert len(cells) == len(table.columns)
            for column, cell in zip(table.columns, cells, strict=True):
                value = column.parse(cell)
                if column.format:
                    assert column.text(value) == cell


def test_every_table_of_a_run_lies_where_it_is_declared(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path, "a{b}", 500)
    places = {table.place("a{b}") for table in RUN_TABLES}
    paths = (value for value in vars(layout).values() if isinstance(value, Path))
    assert places <= {path.relative_to(tmp_path).as_posix() for path in paths}
