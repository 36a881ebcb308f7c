"""Counts, duplicated ids and their new names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import InputError
from virnucpro.io import inputs
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.inputs import InputFiles, InputSummary, summarise_input, with_unique_ids
from virnucpro.io.records import Records


def write(folder, names):
    path = folder / "in.fa"
    path.write_bytes(fasta_bytes((f"{name} x", "ACGT") for name in names))
    return path


@pytest.mark.parametrize("letter", ["U", "u"])
def test_counts(tmp_path, letter):
    path = tmp_path / "in.fa"
    path.write_text(f">a\nACG{letter}\n>b\nAC\n>c\n\n>d\nACG\n")
    assert summarise_input(InputFiles(path)) == InputSummary(4, 9, 4, 2, True, (), None)


@pytest.mark.parametrize("data", [b"", b"\n \n"], ids=["1-empty", "2-blank"])
def test_no_sequences(tmp_path, data):
    path = tmp_path / "in.fa"
    path.write_bytes(data)
    with pytest.raises(InputError, match="no sequences"):
        summarise_input(InputFiles(path))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param("abc", "", id="18-none"),
        pytest.param("aaba", "a", id="18-three-times"),
        pytest.param("abcba", "ba", id="18-two"),
        pytest.param("zyxwvutzyxwvut", "zyxwv", id="18-first-five"),
    ],
)
def test_duplicates(tmp_path, names, expected):
    assert summarise_input(InputFiles(write(tmp_path, names))).duplicates == tuple(expected)


def test_ids_that_only_share_a_hash_are_no_duplicates(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "hash", lambda name: len(name), raising=False)
    path = write(tmp_path, ["a", "b", "cc", "b"])
    assert summarise_input(InputFiles(path)).duplicates == ("b",)
    renamed = with_unique_ids(Records(path), summarise_input(InputFiles(path)))
    assert [record.id for record in renamed] == ["a", "b", "cc", "b_2"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "b", "a"], ["a", "a_2", "b", "a_3"]),
        (["a", "a", "a_2", "a"], ["a", "a_3", "a_2", "a_4"]),
        (["a", "a", "a_2", "a_2"], ["a", "a_3", "a_2", "a_2_2"]),
    ],
)
def test_ids_that_come_again_are_numbered(tmp_path, names, expected):
    path = write(tmp_path, names)
    renamed = list(with_unique_ids(Records(path), summarise_input(InputFiles(path))))
    assert [record.id for record in renamed] == expected
    assert [record.header for record in renamed] == [f"{name} x" for name in expected]


@given(st.lists(st.text("a_2", min_size=1, max_size=6), min_size=1, max_size=20))
def test_renamed_ids_are_unique_and_new(tmp_path_factory, names):
    path = write(tmp_path_factory.getbasetemp(), names)
    records = with_unique_ids(Records(path), summarise_input(InputFiles(path)))
    renamed = [record.id for record in records]
    assert len(set(renamed)) == len(names)
    kept = set()
    for old, new in zip(names, renamed, strict=True):
        assert new == old if old not in kept else new not in names
        kept.add(old)
