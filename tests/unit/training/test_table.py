"""The table of sources: what it says, and every mistake with its line."""

from __future__ import annotations

import pytest

from virnucpro.errors import InputError
from virnucpro.training.data.table import read_genome_table

HEADER = "file\tlabel\tgroup\tsplit\tgenome\tmatch\n"
TAXA = "file\tlabel\tgroup\ttaxon\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "a.fa").write_text(">a\nACGT\n")
    (tmp_path / "folder").mkdir()

    def _table(text: str | bytes):
        path = tmp_path / "genomes.tsv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_genome_table(path, tmp_path)

    return _table


def test_all_that_a_row_can_say(table, tmp_path):
    first, second = table(
        "# a comment\n\n"
        + HEADER
        + "a.fa\tViral\tphages\ttest=0.2\t^(\\S+)_frag\tlambda\r\n"
        + "a.fa\t0\tbacteria\n"
    )
    assert (first.line, second.line) == (4, 5)
    assert first.path == (tmp_path / "a.fa").resolve()
    assert (first.label, second.label) == ("virus", "others")
    assert (first.part, first.test, second.part, second.test) == (None, 0.2, None, None)
    assert (first.match.pattern, second.match) == ("lambda", None)
    assert first.names("X_frag1", "X_frag1 phage") == ("X", "X")
    assert first.names("X", "X phage") == ("", "")
    assert second.names("X.2", "X phage") == ("X.2", "X.2")


def test_a_taxon_is_named_by_its_pattern_or_is_the_genome(table):
    named, unnamed = table(TAXA + "a.fa\t1\tg\thost=(\\w*)\na.fa\t1\tg\n")
    assert named.names("G", "x host=Vibrio") == ("G", "Vibrio")
    assert named.names("G", "x host=") == named.names("G", "x") == ("G", "")
    assert unnamed.names("G", "x host=Vibrio") == ("G", "G")


@pytest.mark.parametrize(
    ("label", "split", "expected"),
    [
        ("virus", "auto", ("virus", None, None)),
        ("VIRAL", "train", ("virus", "train", None)),
        ("1", "validation", ("virus", "validation", None)),
        ("others", "test", ("others", "test", None)),
        ("NonViral", "test=1", ("others", None, 1.0)),
        ("0", "", ("others", None, None)),
    ],
)
def test_labels_and_splits(table, label, split, expected):
    (row,) = table(HEADER + f"a.fa\t{label}\tg\t{split}\n")
    assert (row.label, row.part, row.test) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        (HEADER, None),
        ("file label group\n", 1),
        ("file\tlabel\tgruop\n", 1),
        ("file\tlabel\n", 1),
        ("file\tlabel\tgroup\tfile\n", 1),
        (HEADER + "a.fa\tmaybe\tg\n", 2),
        (HEADER + "a.fa\t1\n", 2),
        (HEADER + "\nb.fa\t1\tg\n", 3),
        (HEADER + "folder\t1\tg\n", 2),
        (HEADER + "a.fa\t1\tg\ttest=2\n", 2),
        (HEADER + "a.fa\t1\tg\ttest=nan\n", 2),
        (HEADER + "a.fa\t1\tg\tvalidation=0.1\n", 2),
        (HEADER + "a.fa\t1\tg\t\t(\n", 2),
        (HEADER + "a.fa\t1\tg\t\t\\S+\n", 2),
        (HEADER + "a.fa\t1\tg\t\t\t[\n", 2),
        (HEADER + "a.fa\t1\tg\t\t\t\tmore\n", 2),
        (TAXA + "a.fa\t1\tg\t\\S+\n", 2),
        (b"PK\x03\x04\xff\xfe", None),
    ],
)
def test_mistakes(table, text, line):
    with pytest.raises(InputError, match=r"genomes\.tsv" + (f": line {line}: " if line else "")):
        table(text)
