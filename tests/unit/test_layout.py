"""Names of runs and of their files."""

import pytest

from virnucpro.layout import Layout, picture_name, stem_of


@pytest.mark.parametrize(
    ("source", "stem"),
    [
        ("in/my.sample.v2.fa.gz", "my.sample.v2"),
        ("reads.fastq.xz", "reads"),
        ("reads.FQ", "reads"),
        ("reads.fna.bz2", "reads"),
        ("reads.fas", "reads"),
        ("reads.FSA.gz", "reads"),
        ("reads.ffn", "reads"),
        ("reads", "reads"),
        ("reads.txt", "reads.txt"),
        (".fa", ".fa"),
        ("x.gz", "x"),
        ("a b.fa", "a b"),
        ("-", "stdin"),
    ],
)
def test_stem(source, stem):
    assert stem_of(source) == stem


def test_a_run_owns_only_its_own_files(tmp_path):
    for name in ("a_chunked500.fa", "a_contigs.tsv", "ab_contigs.tsv", "a[b]_chunked300.fa"):
        (tmp_path / name).touch()
    owned = sorted(path.name for path in Layout(tmp_path, "a", 500).owned())
    assert owned == ["a_chunked500.fa", "a_contigs.tsv"]
    assert Layout(tmp_path, "a[b]", 500).owned() == []


def test_different_ids_have_pictures_with_different_names():
    ids = "a", ".a", "%2Ea", "..", ".", "/", "x" * 400, "x" * 400 + "y", "ü" * 90
    names = {picture_name(id, "png") for id in ids}
    assert len(names) == len(ids)
    assert all(len(name) < 200 and "/" not in name and name[0] != "." for name in names)
