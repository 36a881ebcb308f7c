"""The table of sources: what it says, and every mistake with its line."""

from __future__ import annotations

import pytest

from virnucpro.errors import InputError, UsageError
from virnucpro.training.data.table import SplitRule, read_genome_table

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
    assert first.split == SplitRule(test=0.2)
    assert second.split == SplitRule()
    assert first.matches("x phage lambda")
    assert not first.matches("x phage T4")
    assert second.matches("anything")
    assert first.genome_name("X_frag1", "X_frag1 phage") == "X"
    assert first.genome_name("X", "X phage") is None
    assert second.genome_name("X.2", "X phage") == "X.2"


def test_names_of_genomes_have_no_tabs(table):
    (row,) = table(HEADER + "a.fa\t1\tg\t\t\\|(.*)\\|\n")
    assert row.genome_name("x", "x |Human\tvirus  1 | y") == "Human virus 1"
    assert row.genome_name("x", "x | | y") is None


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
        ("auto", SplitRule()),
        ("train", SplitRule("train")),
        ("validation", SplitRule("validation")),
        ("test", SplitRule("test")),
        ("test=1", SplitRule(test=1.0)),
    ],
)
def test_splits(table, text, expected):
    assert table(HEADER + f"a.fa\t1\tg\t{text}\n")[0].split == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (HEADER, "no rows"),
        ("file label group\n", "line 1: there is no column 'file label group'"),
        ("file\tlabel\tgruop\n", "did you mean group"),
        ("file\tlabel\n", "column group is missing"),
        ("file\tlabel\tgroup\tfile\n", "file is there twice"),
        (HEADER + "a.fa\tmaybe\tg\n", "line 2: label 'maybe' is neither"),
        (HEADER + "a.fa\t1\n", "line 2: group is empty"),
        (HEADER + "\nb.fa\t1\tg\n", "line 3: file b.fa not found"),
        (HEADER + "folder\t1\tg\n", "is a folder"),
        (HEADER + "a.fa\t1\tg\ttest=2\n", "split 'test=2' is none of"),
        (HEADER + "a.fa\t1\tg\ttest=nan\n", "split 'test=nan' is none of"),
        (HEADER + "a.fa\t1\tg\tvalidation=0.1\n", "is none of"),
        (HEADER + "a.fa\t1\tg\t\t(\n", "genome '.' is not a regular expression"),
        (HEADER + "a.fa\t1\tg\t\t\\S+\n", "has no group: put the name in parentheses"),
        (HEADER + "a.fa\t1\tg\t\t\t[\n", "match '.' is not a regular expression"),
        (HEADER + "a.fa\t1\tg\t\t\t\tmore\n", "7 fields, but the header has 6"),
        (TAXA + "a.fa\t1\tg\t\\S+\n", "taxon .* has no group: put the name in parentheses"),
        (b"PK\x03\x04\xff\xfe", "not UTF-8 text"),
    ],
)
def test_mistakes(table, text, said):
    with pytest.raises(InputError, match=said):
        table(text)


def test_all_mistakes_are_named_at_once(table):
    with pytest.raises(InputError) as error:
        table(HEADER + "a.fa\tmaybe\tg\n" * 12)
    lines = str(error.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [
        f"line {n}" for n in range(2, 12)
    ]
    assert lines[-1].strip() == "and 2 more"


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_genome_table(tmp_path / "none.tsv", tmp_path)
