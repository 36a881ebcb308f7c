"""``virnucpro train prepare``: options, summary, exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.training.made_genomes import coding, write_fasta, write_table
from virnucpro.training.data.dataset import Dataset


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_fasta(tmp_path / "in/v.fa", [(f"V{n}", coding(n, 3000)) for n in range(8)])
    write_fasta(tmp_path / "in/b.fa.gz", [(f"B{n}", coding(100 + n, 6000)) for n in range(8)])
    rows = [
        {"file": "v.fa", "label": "virus", "group": "v", "split": "test=0.3"},
        {"file": "b.fa.gz", "label": "others", "group": "b", "match": "B[0-6]"},
    ]
    return write_table(tmp_path / "in/genomes.tsv", rows)


def test_a_data_set_and_its_summary(call, table, tmp_path):
    options = ["-e", "300,150,99", "--validation", "0.3", "--test", "0.2", "--seed", "2"]
    command = ("train", "prepare", table, "-o", tmp_path / "data", *options)
    done = call(*command)
    assert done.code == 0, done.err
    dataset = Dataset(tmp_path / "data")
    assert dataset.lengths() == (300, 150, 99)
    shown = [line.split()[:3] for line in done.out.splitlines()]
    for row in dataset.description["counts"]:
        if row["label"]:
            assert [str(row[name]) for name in ("part", "label", "genomes")] in shown
    assert done.out.endswith(f"\nNext: virnucpro train embed {dataset.root}\n")
    assert dataset.description["command"] == ["virnucpro", *sys.argv[1:]]
    assert call(*command, "--relatives", 1).code == 3
    assert call(*command, "--content", "records").code == 3
    assert call(*command, "--content", "records", "--force").code == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other/genomes.tsv").write_text("mine")
    assert call("train", "prepare", table, "-o", tmp_path / "other").code == 64
    assert (tmp_path / "other/genomes.tsv").read_text() == "mine"
    embedding = call("train", "embed", dataset.root, "--device", "cpu")
    training = call("train", "classifier", dataset.root, "--output", tmp_path / "my.safetensors")
    assert (embedding.code, training.code) == (64, 64)


def test_genomes_elsewhere(call, table, tmp_path):
    moved = tmp_path / "tables" / "t.tsv"
    moved.parent.mkdir()
    table.rename(moved)
    assert call("train", "prepare", moved, "-o", tmp_path / "data").code == 65
    assert not (tmp_path / "data").exists()
    command = ("train", "prepare", moved, "-o", tmp_path / "data", "--genomes", tmp_path / "in")
    assert call(*command).code == 0


@pytest.mark.parametrize("options", ["-e 300,many", "-e ,", "--test 0.6 --validation 0.6"])
def test_refusals(call, table, tmp_path, options):
    assert call("train", "prepare", table, "-o", tmp_path / "data", *options.split()).code == 64
    assert not (tmp_path / "data").exists()
