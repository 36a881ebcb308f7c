"""Declarations of tables: formatting, reading, and files of a real run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import pytest

import virnucpro.tables as tables
from tests.cli.inputs import toy_request
from virnucpro.errors import InputError
from virnucpro.run.predict import run_prediction
from virnucpro.tables import FAILURES, RECORDS, REGIONS, ResultTable

ROOT = Path(__file__).parents[2]
ALL_TABLES = [table for table in vars(tables).values() if isinstance(table, ResultTable)]
# Those of a run of single reads.
RUN_TABLES = [
    *(tables.CONTIGS, tables.VIRUS, REGIONS, tables.CHUNKS, tables.PREDICTIONS, tables.CONSENSUS),
    *(FAILURES, RECORDS, tables.FRAMES, tables.COPIES),
]


class SizeRow(NamedTuple):
    """One row per thing."""

    name: str
    size: int
    share: Annotated[float, ".2f"] | None


TABLE = ResultTable("{stem}_sizes.tsv", SizeRow)


def test_rows_are_formatted_by_the_names_of_their_columns():
    assert TABLE.header == "name\tsize\tshare\n"
    lines = [TABLE.line(share=1 / 3, name="a", size=2), TABLE.line(name="b", size=30, share=None)]
    assert lines == ["a\t2\t0.33\n", "b\t30\tNA\n"]
    assert TABLE.lines(share=[1 / 3, None], name=["a", "b"], size=[2, 30]) == "".join(lines)
    assert TABLE.lines(share=[], name=[], size=[]) == ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.tsv"


def test_columns_are_read_by_name(path):
    # a line separator of Unicode is part of a name
    path.write_text(TABLE.header + "a\u2028b\t1\tNA\nc\t2\t0.50\n", encoding="utf-8")
    assert list(TABLE.read(path, "share", "name")) == [["NA", "a\u2028b"], ["0.50", "c"]]
    assert list(TABLE.read(path, *TABLE.row._fields))[1] == ["c", "2", "0.50"]
    with pytest.raises(ValueError, match="not in tuple"):
        list(TABLE.read(path, "part"))
    path.write_text(RECORDS.header + RECORDS.line(record="a", length=3))  # which is empty
    assert [list(row) for row in RECORDS.read(path, "record", "length")] == [["a", "3"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("other\tcolumns\n", "instead of the columns name, size, share"),
        ("name\tsize", "t.tsv"),  # cut off
        (f"{TABLE.header}a\t2\t0.33\nc\t3\n", "rows without 3 cells"),
        (f"{TABLE.header}a\t2\t0.33\nc\t3\t0.1\tmore\n", "rows without 3 cells"),
        (f"{TABLE.header}a\t2\t0.33\n\n", "rows without 3 cells"),
    ],
)
def test_another_header_and_rows_without_all_cells_are_refused(path, text, message):
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(TABLE.read(path, "name"))


def test_the_documentation_has_every_column_with_a_right_example():
    text = (ROOT / "docs/files.md").read_text(encoding="utf-8")
    rows: list[tuple[str, str]] = []
    for table in (table for table in ALL_TABLES if not table.path.startswith(".checkpoints")):
        place = table.path.format(stem="PART" if table.path == "{stem}_frames.tsv" else "STEM")
        part = text[text.index(f"<!-- columns of {place} -->") :].split("<!-- end -->")[0]
        rows = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? \| .*\. \|$", part, re.MULTILINE)
        assert [name for name, _ in rows] == list(table.row._fields), place
        check_cells(table, [example for _, example in rows])


def check_cells(table: ResultTable, cells: list[str]) -> None:
    """The cells are of the types of the columns, and written as these say."""
    gaps = [c.optional and cell == "NA" for c, cell in zip(table.columns, cells, strict=True)]
    values = [None if gap else cell for gap, cell in zip(gaps, cells, strict=True)]
    row = msgspec.convert(values, table.row, strict=False)
    assert table.line(**row._asdict()) == "\t".join(cells) + "\n"


def test_the_files_of_a_run_are_as_declared(tmp_path):
    source = tmp_path / "in.fa"
    source.write_text(
        ">open\n" + "GCTACCGGATTC" * 30 + "\n>closed\n" + "TAAT" * 30 + "\n>short\nAC\n"
        ">copy\n" + "GCTACCGGATTC" * 30 + "\n"
    )
    kept = {"chunk_length": 200, "min_score": -1.0, "remove_intermediate": False}
    request = toy_request(source, tmp_path / "out", **kept)
    run_prediction(request, lambda _: None)
    root = request.layout.root
    for table in RUN_TABLES:
        path = root / table.path.format(stem="in")
        assert path.exists() == (table is not FAILURES), path
        if table is FAILURES:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if table.has_header:
            assert lines.pop(0).split("\t") == list(table.row._fields)
        assert lines or table is REGIONS  # whose rows tests/unit/stages/test_region_files.py checks
        for line in lines:
            check_cells(table, line.split("\t"))
