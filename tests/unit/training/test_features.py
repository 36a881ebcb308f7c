"""Rows of features: matched by id, in windows, each once an epoch."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from virnucpro.errors import InputError
from virnucpro.store.features import Features, encode_features, load_features
from virnucpro.training import features as module
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.features import PartFeatures, epoch_windows, find_features


@pytest.fixture
def copied(embedded, tmp_path):
    shutil.copytree(embedded.root, tmp_path / "copy")
    return Dataset(tmp_path / "copy")


def whole(dataset, part):
    files = [dataset.layout(part).features("merged", n + 1) for n in range(dataset.shards(part))]
    return torch.cat([load_features(path, "merged").data for path in files])


def test_rows_and_labels(embedded):
    found = find_features(embedded, "train")
    rows = list(embedded.frames("train"))
    assert len(found) == len(rows) == sum(found.rows)
    assert found.labels.tolist() == [int(row.label == "virus") for row in rows]
    data, order = whole(embedded, "train"), np.random.default_rng(1).permutation(len(found))
    assert torch.equal(found.take(order), data[torch.from_numpy(order)])
    assert torch.equal(torch.cat(list(found.blocks(3, len(found)))), data[3:])


def test_failed_frames_are_passed_over(copied):
    path = copied.layout("train").features("merged", 1)
    features = load_features(path, "merged")
    less = Features(
        features.ids[1:5] + features.ids[7:], features.data[[*range(1, 5), *range(7, 40)]]
    )
    path.write_bytes(encode_features(less, "merged"))
    found = find_features(copied, "train")
    labels = {row.frame: int(row.label == "virus") for row in copied.frames("train")}
    assert found.labels[: len(less.ids)].tolist() == [labels[name] for name in less.ids]


def test_what_does_not_belong_is_refused(copied):
    layout = copied.layout("train")
    paths = [layout.features("merged", number) for number in (1, 2)]
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    with pytest.raises(InputError, match=r"not those of train: embed the data again"):
        find_features(copied, "train")
    paths[0].write_bytes(first[: len(first) // 2])
    with pytest.raises(InputError, match=r"cannot be read.*virnucpro train embed"):
        find_features(copied, "train")
    paths[0].unlink()
    with pytest.raises(InputError, match="embed the data again"):
        find_features(copied, "train")


def made_up(rows, width=2):
    return PartFeatures((), tuple(rows), width, np.zeros(sum(rows), np.int64))


@pytest.mark.parametrize("rows", [[64], [10, 30, 7], [5, 1], [33]])
def test_an_epoch_has_every_row_once(rows):
    features = made_up(rows)
    windows = epoch_windows(features, 8, seed=1, epoch=0)
    batches = [batch for window in windows for batch in window]
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(features)))
    assert all(2 <= len(batch) <= 9 for batch in batches)
    again = epoch_windows(features, 8, seed=1, epoch=0)
    assert [b.tolist() for w in again for b in w] == [b.tolist() for b in batches]
    for seed, epoch in ((2, 0), (1, 1)):
        other = epoch_windows(features, 8, seed, epoch)
        assert [b.tolist() for w in other for b in w] != [b.tolist() for b in batches]


def test_large_parts_go_through_in_windows():
    rows = [100] * 12
    features = made_up(rows, width=module.WINDOW_BYTES // 4 // 350)  # three shards a window
    windows = epoch_windows(features, 32, seed=1, epoch=0)
    assert len(windows) == 4
    for window in windows:
        shards = {row // 100 for batch in window for row in batch.tolist()}
        assert len(shards) == 3
    single = epoch_windows(made_up([100] * 3, width=module.WINDOW_BYTES), 32, 1, 0)
    assert [len(np.concatenate(window)) for window in single] == [100] * 3
