"""The table of sources: what it says, and every mistake with its line."""

from __future__ import annotations

import pytest

from virnucpro.errors import InputError, UsageError
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
    assert (first.part, first.test) == (None, 0.2)
    assert (second.part, second.test) == (None, None)
    assert first.matches("x phage lambda")
    assert not first.matches("x phage T4")
    assert second.matches("anything")
    assert first.genome_name("X_frag1", "X_frag1 phage") == "X"
    assert first.genome_name("X", "X phage") is None
    assert second.genome_name("X.2", "X phage") == "X.2"


def test_a_taxon_is_named_by_its_pattern_or_is_the_genome(table):
    named, unnamed = table(TAXA + "a.fa\t1\tg\thost=(\\w*)\na.fa\t1\tg\n")
    assert named.taxon_name("G", "x host=Vibrio") == "Vibrio"
    assert named.taxon_name("G", "x host=") is None
    assert named.taxon_name("G", "x") is None
    assert unnamed.taxon_name("G", "x host=Vibrio") == "G"
    # A table without taxa decides the same as before the column existed.
    assert len(named.identity()) == len(unnamed.identity()) + 1


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("virus", "virus"),
        ("VIRAL", "virus"),
        ("1", "virus"),
        ("others", "others"),
        ("NonViral", "others"),
        ("0", "others"),
    ],
)
def test_labels(table, label, expected):
    assert table(f"label\tgroup\tfile\n{label}\tg\ta.fa\n")[0].label == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", (None, None)),
        ("train", ("train", None)),
        ("validation", ("validation", None)),
        ("test", ("test", None)),
        ("test=1", (None, 1.0)),
    ],
)
def test_splits(table, text, expected):
    (row,) = table(HEADER + f"a.fa\t1\tg\t{text}\n")
    assert (row.part, row.test) == expected


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


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_genome_table(tmp_path / "none.tsv", tmp_path)
