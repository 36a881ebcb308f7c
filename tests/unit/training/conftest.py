"""An embedded data set, made once; and data sets of small genomes."""

from __future__ import annotations

import pytest

from tests.training_data import embed_toy, make_dataset
from tests.unit.training.made_genomes import (
    FILES,
    ROWS,
    RecordedProgress,
    write_fasta,
    write_table,
)
from virnucpro.stages import splitting
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.data.prepare import prepare_dataset


@pytest.fixture(scope="session")
def embedded(tmp_path_factory):
    """A data set of toy features; not to be changed."""
    dataset = make_dataset(tmp_path_factory.mktemp("embedded"), shard=40)
    embed_toy(dataset)
    return dataset


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Make a data set in a folder of the test; the table and settings may be others."""
    for name, records in FILES.items():
        write_fasta(tmp_path / "in" / name, records)
    monkeypatch.setattr(splitting, "LEAST_FRAMES", 40)  # in a shard
    places = {"genomes": tmp_path / "in", "lengths": (300, 150)}
    usual = {**places, "validation": 0.2, "test": 0.1, "seed": 3}

    def _prepare(name="data", rows=ROWS, progress=None, **changed):
        table, dataset = write_table(tmp_path / f"{name}.tsv", rows), Dataset(tmp_path / name)
        options = {**usual, "command": (name,), **changed}
        show = progress or RecordedProgress()
        return prepare_dataset(table, dataset, show, **options), dataset

    return _prepare
