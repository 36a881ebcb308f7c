"""Fetching from a hub: a server on this machine that speaks as much of its language as needed."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from tests.unit.models.serving import checkpoint
from virnucpro.errors import ModelError
from virnucpro.models.catalogue import HubModel
from virnucpro.models.fetch import fetch_model
from virnucpro.models.records import read_model_records
from virnucpro.models.store import verify_model

NAME = "someone/tiny"
OLD, NEW = "a" * 40, "b" * 40


def publish(site, commit: str, weights: bytes) -> None:
    """Serve a repository of one commit, which becomes ``main``."""
    files = {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "modeling.py": b"raise SystemExit",
        "model.safetensors": weights,
        "pytorch_model.bin": checkpoint(),
    }
    entries, siblings = [], []
    for name, data in files.items():
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 1}
        large = name in ("model.safetensors", "pytorch_model.bin")
        more = {"lfs": lfs} if large else {}
        siblings.append({"rfilename": name, "size": len(data), "blobId": git, **more})
        more = {"lfs": {**lfs, "oid": lfs["sha256"]}} if large else {}
        entries.append({"type": "file", "path": name, "size": len(data), "oid": git, **more})
        site.files[f"/{NAME}/resolve/{commit}/{name}"] = data
    info = {"id": NAME, "sha": commit, "siblings": siblings, "private": False, "tags": []}
    site.commit = commit
    site.json[f"/api/models/{NAME}"] = info
    site.json[f"/api/models/{NAME}/revision/main"] = info
    site.json[f"/api/models/{NAME}/revision/{commit}"] = info
    site.json[f"/api/models/{NAME}/tree/{commit}"] = entries


@pytest.fixture
def model(site, monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    publish(site, OLD, b"one" * 1000)
    return HubModel(NAME, "a test", ("config.json", "tokenizer.json"), endpoint=site.address)


def bring(model, **options):
    return fetch_model(model, lambda *_: None, **options)


def test_data_files_are_fetched_and_the_commit_is_recorded(cache, site, model, capfd):
    fetched = bring(model)
    assert capfd.readouterr() == ("", "")  # no progress bars without a terminal
    assert fetched.how == "fetched"
    assert fetched.path == cache / "huggingface/hub/models--someone--tiny/snapshots" / OLD
    names = {path.name for path in fetched.path.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}
    record = read_model_records()[NAME]
    assert (record.revision, record.address) == (OLD, f"{site.address}/{NAME}")
    assert record.files["model.safetensors"].bytes == 3000
    asked = len(site.asked)
    assert bring(model).how == "verified"
    assert len(site.asked) == asked


def test_a_newer_main_is_taken_only_where_it_is_asked_for(site, model):
    path = bring(model).path
    publish(site, NEW, b"two" * 1000)
    assert bring(model).path == path
    newer = bring(model, update=True)
    assert newer.path.name == NEW
    assert read_model_records()[NAME].revision == NEW
    assert verify_model(model) == "verified"


def test_a_lost_cache_is_fetched_again_at_the_recorded_commit(site, model):
    path = bring(model).path
    publish(site, NEW, b"two" * 1000)
    shutil.rmtree(path.parents[1])
    site.commit = OLD
    assert bring(model).path.name == OLD


def test_a_damaged_file_is_replaced(model):
    path = bring(model).path
    (path / "model.safetensors").resolve().write_bytes(b"bad" * 1000)
    with pytest.raises(ModelError, match="checksum differs"):
        verify_model(model)
    assert bring(model).how == "fetched"
    assert verify_model(model) == "verified"


def test_other_bytes_than_published_are_refused(site, model):
    site.files[f"/{NAME}/resolve/{OLD}/model.safetensors"] = b"bad" * 1000
    with pytest.raises(ModelError, match="checksum differs"):
        bring(model)
    assert read_model_records() == {}


def test_a_repository_without_weights_is_refused(site, model):
    info = site.json[f"/api/models/{NAME}"]
    info["siblings"] = [s for s in info["siblings"] if s["rfilename"].endswith(".json")]
    with pytest.raises(ModelError, match="lacks weights"):
        bring(model)


def test_an_unknown_repository_is_refused(site):
    with pytest.raises(ModelError):
        bring(HubModel("someone/else", "a test", endpoint=site.address))


def test_nobody_listens():
    with pytest.raises(ModelError, match="check the network"):
        bring(HubModel(NAME, "a test", endpoint="http://127.0.0.1:9"))


def test_offline_nothing_is_asked(site, model, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="put them into the folder"):
        bring(model)
    assert site.asked == []
