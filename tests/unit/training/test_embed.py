"""Frames that cannot be embedded: recorded, left out, and tried again."""

from __future__ import annotations

from tests.contract.poisoned import PoisonedExecutor
from tests.training_data import make_dataset
from virnucpro.contracts import Device
from virnucpro.executors.executor import LocalPool
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.store.features import load_features
from virnucpro.training.data.dataset import read_embedding_record
from virnucpro.training.embed import EmbedRequest, embed


def test_failed_frames_are_left_out_and_tried_again(tmp_path):
    dataset = make_dataset(tmp_path, genomes=(2, 1, 1), codons=600, shard=15)
    layout = dataset.layout("train")
    poison = [row.frame for row in dataset.frames("train")][3]
    analysis = AnalysisSettings(model_type="toy").resolved()
    request = EmbedRequest(dataset.root, analysis, MachineSettings(device="cpu"))
    executor = PoisonedExecutor(LocalPool(Device("cpu")), [poison])
    first, *others = embed(request, lambda event: None, executor=executor)
    assert first.failed == 1
    assert not any(part.failed for part in others)
    assert poison in (dataset.root / "failed_files.txt").read_text()
    assert poison not in load_features(layout.merged(1), "merged").ids
    assert read_embedding_record(layout)["counts"]["failed"] == 1

    results = embed(request, lambda event: None)
    assert not any(part.failed for part in results)
    assert load_features(layout.merged(1), "merged").ids[3] == poison
    assert read_embedding_record(layout)["counts"]["failed"] == 0
    assert not (dataset.root / "failed_files.txt").exists()
