"""Tables of proteins, and their division into parts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.rcl.made_proteins import protein
from virnucpro.errors import InputError
from virnucpro.rcl.encodings import AMINO_ACIDS
from virnucpro.rcl.proteins import AnnotatedProtein, read_protein_table
from virnucpro.rcl.similarity import IDENTITY, identity
from virnucpro.rcl.splits import (
    cluster_split,
    original_split,
    read_split,
    split_of_table,
    split_text,
)

HEADER = "id,rcl_start,rcl_end,Sequence\n"


def test_rows_that_cannot_be_used_are_counted(tmp_path):
    table = tmp_path / "t.csv"
    rows = ("A,2,4,MKLV", "B,,,MKLV", "C,0,3,MKLV", "D,2,9,MKLV", "E,3,2,MKLV", "F,1.0,2.0,MK*",
            "G,1.5,2,MKLV", ",1,2,MKLV", "I,1,2,", "J,1,2,MK1V", "K,1,2," + "M" * 30, "L,1")  # fmt: skip
    table.write_text("\ufeff" + HEADER + "\n".join(rows) + "\n")
    read = read_protein_table(table, with_rcl=True, max_length=20)
    assert [(p.accession, p.sequence, p.start, p.end) for p in read.proteins] == [
        ("A", "MKLV", 2, 4),
        ("F", "MK", 1, 2),
    ]
    assert read.proteins[0].labels().tolist() == [0, 1, 1, 1]
    assert len(read.skipped) == 10
    assert "10 rows are skipped" in read.warning()
    assert "3 whose RCL lies outside the sequence, or ends before it starts (line 4, 5, 6)" in (
        read.warning()
    )
    others = read_protein_table(table, with_rcl=False, max_length=20)
    assert "B" in [p.accession for p in others.proteins]
    assert not others.proteins[0].has_rcl


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no column id and no column Sequence"),
        (b"id,Sequence\nA,MK\n", "has no column rcl_start"),
        (HEADER.encode(), "has no rows"),
        (HEADER.encode() + b"A,1,9,MK\n", "1 rows are skipped"),
        (b"\xff\xfe\x00", "not a text file"),
        (HEADER.encode() + b'A,1,2,"' + b"M" * 200_000 + b'"\n', "after line 1: not a row"),
    ],
)
def test_files_that_are_not_tables(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_protein_table(path, with_rcl=True, max_length=100)
    with pytest.raises(InputError, match="cannot be read"):
        read_protein_table(tmp_path, with_rcl=True, max_length=100)


def test_the_random_split_is_that_of_scikit_learn():
    from sklearn.model_selection import train_test_split

    for count, share, seed in ((120, 0.8, 42), (3431, 0.8, 42), (17, 0.75, 1), (10, 0.9, 0)):
        train, rest = train_test_split(range(count), test_size=1 - share, random_state=seed)
        parts = original_split(count, share, seed)
        assert sorted(rest) == [n for n in range(count) if parts[n] == "validation"]
        assert sorted(train) == [n for n in range(count) if parts[n] == "train"]


def test_the_split_of_the_small_tables_is_that_of_the_original(reference: Path):
    """The share of RCL residues in its validation part is in its history."""
    folder = reference.parent / "rcl" / "reference"
    if not folder.is_dir():
        pytest.skip("the reference outputs of the RCL predictor are not here")
    tables = [
        read_protein_table(
            folder / f"train_{name}.csv", with_rcl=name == "serpins", max_length=1024
        )
        for name in ("serpins", "others")
    ]
    made = [protein for table in tables for protein in table.proteins]
    parts = original_split(len(made), 0.8, 42)
    labels = [p.labels() for p, part in zip(made, parts, strict=True) if part == "validation"]
    history = json.loads((folder / "onehot_unet.history.json").read_text())
    assert 1 - history["val_metrics"]["accuracy"][0] == pytest.approx(
        float(np.concatenate(labels).mean()), abs=1e-12
    )


def mutated(sequence: str, share: float, random: np.random.Generator) -> str:
    letters = np.array(list(sequence))
    places = random.random(len(letters)) < share
    letters[places] = random.choice(list(AMINO_ACIDS), int(places.sum()))
    return "".join(letters)


def test_similar_proteins_are_in_one_part():
    random = np.random.default_rng(1)
    made: list[AnnotatedProtein] = []
    for family in range(12):
        founder = protein(family, 150, "MKLV" if family % 2 else "").sequence
        for member in range(4):
            sequence = founder if member == 0 else mutated(founder, 0.15 * member, random)
            region = (10, 20) if family % 2 else (0, 0)
            made.append(AnnotatedProtein(f"P{family}.{member}", sequence, *region))
    made.append(AnnotatedProtein("again", made[4].sequence, 10, 20))
    parts, clusters = cluster_split(made, 0.6, 42)
    assert set(parts) == {"train", "validation", "test"}
    assert parts[-1] == parts[4]
    assert clusters[-1] == clusters[4]
    for one in range(len(made)):
        for two in range(one):
            if parts[one] != parts[two]:
                share = identity(made[one].sequence.encode(), made[two].sequence.encode())
                assert share <= IDENTITY
    again, _ = cluster_split(made[::-1], 0.6, 42)
    assert again[::-1] == parts
    assert cluster_split(made, 0.6, 43)[0] != parts


def test_a_split_is_read_again(tmp_path):
    made = [protein(n, 60) for n in range(4)]
    made.append(made[0])
    parts = ["train", "validation", "test", "train", "test"]
    path = tmp_path / "split.tsv"
    path.write_bytes(split_text(made, parts, None))
    assert split_of_table(made, path) == parts
    assert len(read_split(path)) == 5
    with pytest.raises(InputError, match="gives no part to S9"):
        split_of_table([protein(9, 60)], path)
    path.write_text("id\tpart\nA\tsomewhere\n")
    with pytest.raises(InputError, match="not a table of parts"):
        read_split(path)
