"""Damage of every kind: whatever a file holds, the answer is content or the right error."""

from __future__ import annotations

import pickle
import tempfile
import zipfile
from pathlib import Path

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from virnucpro.store.features import DamagedFeaturesError, Features, encode_features, load_features

GOOD = encode_features(Features(["a", "b"], torch.ones(2, 3)), "merged")
EDITS = st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8)


def _load(data: bytes) -> Features | None:
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        Path(file.name).write_bytes(data)
        try:
            return load_features(Path(file.name), "merged")
        except DamagedFeaturesError:
            return None


@settings(max_examples=400, deadline=None)
@example([(len(GOOD) - 18, 1)], 0)  # the end record then speaks of several disks
@given(EDITS, st.integers(0, len(GOOD)))
def test_edited_and_cut_feature_files(edits: list[tuple[int, int]], keep: int) -> None:
    data = bytearray(GOOD)
    for at, value in edits:
        data[at] = value
    for cut in (data, data[:keep]):
        features = _load(bytes(cut))
        assert features is None or (features.data.shape[0] == len(features.ids))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.integers(2, 5))
def test_feature_files_with_an_arbitrary_pickle(body: bytes, protocol: int) -> None:
    """The pickle inside the zip is replaced: by noise, and by noise behind a valid start."""
    for pickled in (body, pickle.dumps({"ids": ["a"]}, protocol)[:-1] + body):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.pt"
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("archive/data.pkl", pickled)
                archive.writestr("archive/version", "3\n")
                archive.writestr("archive/byteorder", "little")
            assert _load(path.read_bytes()) is None
