"""Frames that cannot be embedded: recorded, left out, and tried again."""

from __future__ import annotations

import json

from tests.contract.poisoned import PoisonedExecutor
from tests.training_data import embed_toy, make_dataset
from virnucpro.contracts import Device
from virnucpro.executors.executor import LocalPool
from virnucpro.store.features import load_features


def test_failed_frames_are_left_out_and_tried_again(tmp_path):
    dataset = make_dataset(tmp_path, genomes=(2, 1, 1), codons=600, shard=15)
    layout = dataset.layout("train")
    poison = [row.frame for row in dataset.frames("train")][3]
    executor = PoisonedExecutor(LocalPool([Device("cpu")]), [poison])
    assert embed_toy(dataset, executor) == 1
    assert poison in (dataset.root / "failed_files.txt").read_text()
    assert poison not in load_features(layout.features("merged", 1), "merged").ids
    assert json.loads(layout.run_json.read_text())["counts"]["failed"] == 1

    assert embed_toy(dataset) == 0
    assert load_features(layout.features("merged", 1), "merged").ids[3] == poison
    assert json.loads(layout.run_json.read_text())["counts"]["failed"] == 0
    assert not (dataset.root / "failed_files.txt").exists()
