"""Data sets of whole records."""

from __future__ import annotations

import pytest

from tests.unit.training.made_genomes import FILES, ROWS, genome_rows, write_fasta
from virnucpro.errors import InputError
from virnucpro.training.data.dataset import PARTS

ODD = [("B1 again", "acgturyknACGT"), ("empty", ""), ("ünï", "ac\nGT")]
TAXA = {"bacteria": r"^B\d*(\d) ", "phages": r"^P\d*(\d)_"}
TABLE = [
    *(row | {"taxon": TAXA.get(row["group"], ""), "match": row.get("match", ".")} for row in ROWS),
    {"file": "odd.fa", "label": "others", "group": "odd", "split": "train"},
]
TABLE[2]["match"] = "^B"


@pytest.fixture
def dataset(prepare, tmp_path):
    write_fasta(tmp_path / "in/odd.fa", ODD)
    return prepare(rows=TABLE, content="records")[1]


def test_every_record_of_a_part_is_read_back_and_counted(dataset):
    assert (dataset.content, dataset.lengths()) == ("records", (300, 150))
    table, found, taxa = genome_rows(dataset), {}, {}
    for part in PARTS:
        records = list(dataset.records(part))
        members = [row for row in table if row["part"] == part]
        assert [record.record for record in records] == [row["record"] for row in members] != []
        bases = sum(int(row["bases"]) for row in members)
        assert dataset.description["parts"][part] == {"records": len(members), "bases": bases}
        found |= {record.record: record for record in records}
        for record in records:
            assert taxa.setdefault(record.taxon, part) == part
    sequences = {header.split()[0]: text for name in FILES for header, text in FILES[name]}
    known = found.keys() & sequences.keys() - {"B1"}
    assert len(known) > 20
    assert {name: found[name].sequence for name in known} == {n: sequences[n] for n in known}
    assert found["B1.3"].sequence == "ACGTTNNNNACGT"
    assert found["empty"].sequence == ""
    assert found["ünï"][:5] == ("ünï", "ünï", "ünï", "odd", "others")
    assert found["P10_frag2"][1:5] == ("P10", "0", "phages", "virus")
    assert not list(dataset.root.glob("*_frames.tsv"))


def test_files_of_the_other_content_are_removed(dataset, prepare):
    prepare(rows=TABLE, force=True)
    assert not list(dataset.root.glob("*_records.fa"))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("train_records.fa", b">B1.3\n", b">B1.4\n"),
        ("train_records.fa", b"GTTNN", b"GTNN"),
        ("train_records.fa", b"GTTNN", b"GTTnN"),
        ("train_records.fa", b"GTTNN", b"G\nTNN"),
        ("train_records.fa", b"\nACGT\n", b"\nACGT"),
        ("train_records.fa", b"\nACGT\n", b"\nACGT\n>more\nA\n"),
        ("genomes.tsv", b"\t13\t", b"\t" + b"9" * 23 + b"\t"),
        ("genomes.tsv", b"\t13\t", b"\t"),
        ("genomes.tsv", b"odd.fa\tothers", b"odd.fa\tother"),
        ("genomes.tsv", b"taxon", b"family"),
        ("genomes.tsv", "ünï".encode(), b"\xff"),
    ],
)
def test_damage_is_named(dataset, name, old, new):
    path = dataset.root / name
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(InputError, match=f"{dataset.root}/(train_records.fa|{name})"):
        list(dataset.records("train"))
