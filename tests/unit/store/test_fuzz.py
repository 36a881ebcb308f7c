"""Damage of every kind: whatever a file holds, the answer is content or the right error."""

from __future__ import annotations

import json
import pickle
import tempfile
import zipfile
from pathlib import Path

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from virnucpro.configuration import Configuration, load_configuration
from virnucpro.errors import ConfigError, ResumeRefusedError
from virnucpro.layout import RunLayout
from virnucpro.store.documents import SCHEMAS, sealed
from virnucpro.store.features import DamagedFeaturesError, Features, encode_features, load_features
from virnucpro.store.ledger import Receipt, UnusableReceiptError, read_receipt
from virnucpro.store.lock import read_owner
from virnucpro.store.work import RunState, read_state

GOOD = encode_features(Features(["a", "b"], torch.ones(2, 3)), "merged")
RECEIPT = {
    "schema": SCHEMAS["receipt"],
    "producer": "virnucpro",
    "stage": "protein_embeddings",
    "fingerprint": "0" * 64,
    "origin": "computed",
    "seconds": 1.0,
    "outputs": [{"file": "a.pt", "bytes": 1, "sha256": "0" * 64, "rows": 1}],
    "figures": {"notices": [], "failures": [], "host_wait_seconds": 0.0},
}
EDITS = st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


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


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(RECEIPT)), JSON)
def test_receipts_with_any_value_anywhere(name: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for document in ({**RECEIPT, name: value}, value):
            sealable = document if isinstance(document, dict) else {"value": document}
            (root / "r.done").write_bytes(sealed(sealable))
            try:
                assert isinstance(read_receipt(root / "r.done", root), Receipt)
            except UnusableReceiptError:
                pass
            except ResumeRefusedError:
                assert name == "schema" or isinstance(document, dict)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_state_and_lock_with_any_content(value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = RunLayout(Path(folder), "s", 500)
        layout.state.mkdir(parents=True)
        for document in (value, {"schema": value, "source": "x", "analysis": value}):
            sealable = document if isinstance(document, dict) else {"value": document}
            layout.run_state.write_bytes(sealed(sealable))
            try:
                assert isinstance(read_state(layout), RunState | None)
            except ResumeRefusedError:
                assert isinstance(document, dict)
        layout.lock.write_text(json.dumps(value))
        read_owner(layout.lock)


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60)
    | JSON.map(json.dumps)
    | st.binary(max_size=40).map(lambda b: b.decode("latin-1"))
)
def test_configuration_files_with_any_content(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.yaml"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            outcome: object = load_configuration(path)
        except ConfigError as error:
            outcome = str(error)
        assert isinstance(outcome, Configuration) or str(path) in str(outcome)
