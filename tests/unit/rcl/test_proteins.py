"""Tables of proteins, and their division into parts."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from Bio.Align import PairwiseAligner, substitution_matrices

from tests.unit.rcl.made_proteins import protein
from tests.unit.training.made_genomes import RecordedProgress
from virnucpro.errors import InputError
from virnucpro.rcl import splits
from virnucpro.rcl.features import AMINO_ACIDS
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins
from virnucpro.rcl.splits import (
    IDENTITY,
    cluster_split,
    identity,
    random_split,
    split_of_table,
    split_text,
)

HEADER = "id,rcl_start,rcl_end,Sequence,rcl_seq\n"
QUIET = RecordedProgress()


def test_rows_that_cannot_be_used_are_counted(tmp_path):
    table = tmp_path / "t.csv"
    rows = ("A,2,4,MKLV", "B,,,MKLV", "C,0,3,MKLV", "F,1.0,2.0,MK*", "K,1,2," + "M" * 30)
    table.write_text("\ufeff" + HEADER + "\n".join(rows) + "\n")
    made, warnings = read_proteins(table, table, 20)
    used = [(p.accession, p.sequence, p.start, p.end) for p in made if p.has_rcl]
    assert used == [("A", "MKLV", 2, 4), ("F", "MK", 1, 2)]
    assert made[0].labels().tolist() == [0, 1, 1, 1]
    assert "skipped 3 rows" in warnings[0]
    assert "1 without an RCL: rcl_start or rcl_end is not a whole number (line 3)" in warnings[0]
    assert [p.accession for p in made if not p.has_rcl] == ["A", "B", "C", "F"]


@pytest.mark.parametrize(
    "content",
    [b"", b"id,Sequence\nA,MK\n", HEADER.encode(), HEADER.encode() + b"A,1,9,MK\n", b"\xff\xfe\x00",
     HEADER.encode() + b'A,1,2,"' + b"M" * 200_000 + b'"\n'],
)  # fmt: skip
def test_files_that_are_not_tables(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    for file in (path, tmp_path):
        with pytest.raises(InputError, match=str(file)):
            read_proteins(file, None, 100)


def test_the_split_of_the_small_tables_is_that_of_the_original(rcl_reference):
    """The share of RCL residues in its validation part is in its history."""
    tables = (rcl_reference / f"train_{name}.csv" for name in ("serpins", "others"))
    made, _ = read_proteins(*tables, 1024)
    parts = random_split(len(made), 0.8, 42)
    labels = [p.labels() for p, part in zip(made, parts, strict=True) if part == "validation"]
    history = json.loads((rcl_reference / "onehot_unet.history.json").read_text())
    assert 1 - history["val_metrics"]["accuracy"][0] == pytest.approx(
        float(np.concatenate(labels).mean()), abs=1e-12
    )


def mutated(sequence: str, share: float, random: np.random.Generator) -> str:
    letters = np.array(list(sequence))
    places = random.random(len(letters)) < share
    letters[places] = random.choice(list(AMINO_ACIDS), int(places.sum()))
    return "".join(letters)


def test_of_the_best_alignments_one_with_the_most_identities_counts():
    """Compared with Biopython, which yields all best alignments; its first one often has fewer."""
    scores = {"open_gap_score": -6, "extend_gap_score": -6, "end_gap_score": 0}
    matrix = substitution_matrices.load("BLOSUM62")
    aligner = PairwiseAligner(mode="global", substitution_matrix=matrix, **scores)
    random, differ = np.random.default_rng(1), 0
    for _ in range(60):
        one = "".join(random.choice(list(AMINO_ACIDS), 60))
        two = mutated(one, 0.4, random)
        two = two[:20] + two[25:]
        found = [best.counts().identities for best in islice(aligner.align(one, two), 500)]
        assert identity(one, two) == max(found) / len(two)
        differ += found[0] < max(found)
    assert differ


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
    parts, clusters = cluster_split(made, 0.6, 42, QUIET)
    assert set(parts) == {"train", "validation", "test"}
    assert parts[-1] == parts[4]
    assert clusters[-1] == clusters[4]
    for one in range(len(made)):
        for two in range(one):
            if parts[one] != parts[two]:
                share = identity(made[one].sequence, made[two].sequence)
                assert share <= IDENTITY
    again, _ = cluster_split(made[::-1], 0.6, 42, QUIET)
    assert again[::-1] == parts
    assert cluster_split(made, 0.6, 43, QUIET)[0] != parts


def test_so_many_of_each_kind_are_held_out():
    """Four with an RCL, a pair of which one has it, and nine without; the pair counts as with it."""
    made = [protein(n, 60, "MKLV") for n in range(5)] + [protein(n, 60, "") for n in range(5, 15)]
    made[6] = AnnotatedProtein("like 4", made[4].sequence[:-1] + "W", 0, 0)
    parts, _ = cluster_split(made, 0.8, 42, QUIET)
    held_out = {n: part for n, part in enumerate(parts) if part != "train"}
    assert held_out == {0: "test", 2: "validation", 9: "test", 12: "validation"}


def test_proteins_are_joined_from_more_than_the_identity_on(monkeypatch):
    made = ["MKLVAAAAAA", "MKLVDDDDDD", "WYTSRQPNMV", "ACDEFGHIKLNPQRST", "ACDEFGHIKLNPQRSV"]
    assert identity(*made[:2]) == IDENTITY
    for block in (256, 2):
        monkeypatch.setattr(splits, "BLOCK", block)
        assert splits.cluster_proteins(made, QUIET) == [0, 1, 2, 3, 3]


def test_a_split_is_read_again(tmp_path):
    made = [protein(n, 60) for n in range(4)]
    made.append(made[0])
    parts = ["train", "validation", "test", "train", "test"]
    path = tmp_path / "split.tsv"
    path.write_bytes(split_text(made, parts, None))
    assert split_of_table(made, path) == parts
    other = protein(9, 60)
    assert split_of_table([other], path, missing_part="train") == ["train"]
    for content in (path.read_bytes(), b"id\tpart\nS9\tsomewhere\n", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=str(path)):
            split_of_table([other], path)
