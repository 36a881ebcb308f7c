"""Data sets of whole records, and taxa that are held out as a whole."""

from __future__ import annotations

import csv
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.unit.training.made_genomes import RecordedProgress, coding, write_fasta, write_table
from virnucpro.errors import InputError
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.training.data.prepare import prepare_dataset

VIRUSES = [(f"P{n} phage host=Genus{n % 4}", coding(n, 600)) for n in range(12)]
BACTERIA = [(f"B{n} Genus{n % 5} coli", coding(100 + n, 900)) for n in range(10)]
ODD = [("P1 again", "acgturyknACGT"), ("empty", ""), ("ünï", "ac\nGT")]
ROWS = [
    {"file": "v.fa.gz", "label": "virus", "group": "phages", "taxon": r"host=(\w+)"},
    {"file": "b.fa", "label": "others", "group": "bacteria", "taxon": r"^\S+ (\w+)"},
    {"file": "odd.fa", "label": "others", "group": "odd", "split": "train"},
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> partial:
    folder = tmp_path_factory.mktemp("genomes")
    for name, records in (("v.fa.gz", VIRUSES), ("b.fa", BACTERIA), ("odd.fa", ODD)):
        write_fasta(folder / name, records)
    table = write_table(folder / "t.tsv", ROWS)
    shares = {"test": 0.3, "validation": 0.3, "seed": 2}
    options = {"genomes": folder, "lengths": (500, 150), "content": "records", **shares}
    return partial(prepare_dataset, table, **options)


@pytest.fixture(scope="module")
def made(settings: partial) -> Path:
    dataset = Dataset(settings.keywords["genomes"] / "data")
    settings(dataset, RecordedProgress())
    return dataset.root


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Dataset:
    return Dataset(shutil.copytree(made, tmp_path / "data"))


def rows(dataset: Dataset) -> list[dict[str, str]]:
    with dataset.genomes_table.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def test_every_record_of_a_part_is_read_back_and_counted(dataset: Dataset) -> None:
    assert (dataset.content, dataset.lengths()) == ("records", (500, 150))
    table, sequences, taxa = rows(dataset), {}, {}
    for part in PARTS:
        records = list(dataset.records(part))
        members = [row for row in table if row["part"] == part]
        assert [record.record for record in records] == [row["record"] for row in members] != []
        size = dataset.description["parts"][part]
        assert size["records"] == len(members)
        assert size["bases"] == sum(int(row["bases"]) for row in members)
        for record in records:
            sequences[record.record] = record
            taxa.setdefault(record.taxon, set()).add(part)
    for header, sequence in (*VIRUSES, *BACTERIA):
        record = sequences[header.split()[0]]
        assert record.sequence == sequence
        assert record.label == ("virus" if header.startswith("P") else "others")
    assert sequences["P1.2"].sequence == "ACGTTNNNNACGT"
    assert sequences["empty"].sequence == ""
    assert sequences["ünï"][:5] == ("ünï", "ünï", "ünï", "odd", "others")
    assert sequences["P5"][1:4] == ("P5", "Genus1", "phages")
    assert {row["note"] for row in table if row["part"] in PARTS} == {""}
    assert not list(dataset.root.glob("*_frames.tsv"))
    # A taxon is in one part, with its genomes of both labels.
    assert {len(parts) for parts in taxa.values()} == {1}
    labels = {r.label for r in sequences.values() if r.taxon == "Genus2"}
    assert labels == {"virus", "others"}
    assert len({part for taxon, (part,) in taxa.items() if taxon.startswith("Genus")}) > 1
    for count in dataset.description["counts"]:
        members = [r for r in table if (r["part"], r["label"]) == (count["part"], count["label"])]
        assert count["records"] == count["genomes"] == len(members)
        assert count["bases"] == sum(int(row["bases"]) for row in members)


def test_files_of_the_other_content_are_removed_unless_they_are_of_a_user(
    dataset: Dataset, settings: partial
) -> None:
    frames = partial(settings, content="frames", lengths=(150,))
    frames(dataset, RecordedProgress(), force=True)
    assert not list(dataset.root.glob("*_records.fa"))
    fresh = Dataset(dataset.root)
    fresh.records_file("train").write_text("mine")
    assert "is finished" in frames(fresh, RecordedProgress())[1]
    settings(fresh, RecordedProgress(), force=True)
    assert (fresh.root / "train_records.fa.yours").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("train_records.fa", b">P1.2\n", b">P1.3\n"),
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
def test_damage_is_named(dataset: Dataset, name: str, old: bytes, new: bytes) -> None:
    path = dataset.root / name
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(InputError, match=f"{dataset.root}/(train_records.fa|{name})"):
        list(dataset.records("train"))
