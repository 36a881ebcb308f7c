"""An embedded data set, made once."""

from __future__ import annotations

import pytest

from tests.training_data import make_dataset
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.training.embed import EmbedRequest, embed


@pytest.fixture(scope="session")
def embedded(tmp_path_factory):
    """A data set of toy features; not to be changed."""
    dataset = make_dataset(tmp_path_factory.mktemp("embedded"), shard=40)
    analysis = AnalysisSettings(model_type="toy").resolved()
    embed(EmbedRequest(dataset.root, analysis, MachineSettings(device="cpu")), lambda event: None)
    return dataset
