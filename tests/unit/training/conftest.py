"""An embedded data set, made once."""

from __future__ import annotations

import pytest

from tests.training_data import embed_toy, make_dataset


@pytest.fixture(scope="session")
def embedded(tmp_path_factory):
    """A data set of toy features; not to be changed."""
    dataset = make_dataset(tmp_path_factory.mktemp("embedded"), shard=40)
    embed_toy(dataset)
    return dataset
