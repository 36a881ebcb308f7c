"""Fetching plain files, and from a hub: a server here speaks as much of its language as needed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.unit.models.serving import checkpoint
from virnucpro.errors import ModelError
from virnucpro.models.catalogue import Model
from virnucpro.models.fetch import fetch_model
from virnucpro.models.store import checksum_folder, recorded, recorded_names, verify_model
from virnucpro.store.disk import HOST_NAME

DATA = checkpoint()


@pytest.fixture
def plain(site):
    site.files["/tiny.pt"] = DATA
    return Model("tiny", "a test", f"{site.address}/tiny.pt", twin="someone/tiny")


@pytest.fixture
def file(cache):
    return cache / "torch/hub/checkpoints/tiny.pt"


def test_a_file_is_fetched_once_recorded_and_then_only_checked(file, site, plain, capfd):
    file.parent.mkdir(parents=True)
    (file.parent / f".tiny.pt.{HOST_NAME}.9999999.tmp").write_bytes(b"of a command that was killed")
    assert fetch_model(plain) == (file, "fetched")
    assert file.read_bytes() == DATA
    assert recorded("tiny").files == {"tiny.pt": hashlib.sha256(DATA).hexdigest()}
    assert fetch_model(plain)[1] == "verified"
    assert site.asked == ["/tiny.pt"]
    assert [path.name for path in file.parent.glob("[!.]*")] == ["tiny.pt"]
    assert capfd.readouterr() == ("", "")  # no progress bars without a terminal


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (b"<html>please log in</html>", {}),
        (DATA[:-100], {}),
        (DATA, {"url": "http://127.0.0.1:9/tiny.pt"}),
        (DATA, {"url": "file:///etc/passwd"}),
    ],
)
def test_what_is_not_the_file_is_never_taken_for_it(site, plain, file, data, change):
    site.files["/tiny.pt"] = data
    with pytest.raises(ModelError):
        fetch_model(replace(plain, **change))
    assert recorded_names() == []
    assert not list(file.parent.glob("[!.]*"))


def test_another_version_at_the_address_is_refused_until_it_is_asked_for(site, plain):
    path = fetch_model(plain)[0]
    path.unlink()
    site.files["/tiny.pt"] = checkpoint("version two")
    with pytest.raises(ModelError, match="--update tiny"):
        fetch_model(plain)
    assert not path.exists()
    assert fetch_model(plain, update=True)[1] == "fetched"
    assert verify_model(plain) == "verified"


NAME = "someone/tiny"
OLD, NEW = "a" * 40, "b" * 40
LARGE = ("model.safetensors", "pytorch_model.bin")


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
        more = {"lfs": lfs} if name in LARGE else {}
        siblings.append({"rfilename": name, "size": len(data), "blobId": git, **more})
        more = {"lfs": {**lfs, "oid": lfs["sha256"]}} if name in LARGE else {}
        entries.append({"type": "file", "path": name, "size": len(data), "oid": git, **more})
        site.files[f"/{NAME}/resolve/{commit}/{name}"] = data
    info = {"id": NAME, "sha": commit, "siblings": siblings, "private": False, "tags": []}
    site.commit = commit
    for end in ("", "/revision/main", f"/revision/{commit}"):
        site.files[f"/api/models/{NAME}{end}"] = info
    site.files[f"/api/models/{NAME}/tree/{commit}"] = entries


@pytest.fixture
def model(site, monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_ENDPOINT", f"{site.address}/")
    publish(site, OLD, b"one" * 1000)
    return Model(NAME, "a test", needs=("config.json", "tokenizer.json"))


def test_data_files_are_fetched_and_the_commit_is_recorded(cache, site, model, capfd):
    path, outcome = fetch_model(model)
    assert capfd.readouterr() == ("", "")  # no progress bars without a terminal
    assert outcome == "fetched"
    assert path == cache / "huggingface/hub/models--someone--tiny/snapshots" / OLD
    names = {path.name for path in path.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}
    file = checksum_folder() / f"{NAME}.sha256"
    subprocess.run(["sha256sum", "--check", "--quiet", file], cwd=path, check=True)
    first = file.read_text().splitlines()[0].split()
    assert (first[1], first[3]) == (OLD, f"{site.address}/{NAME}")
    asked = len(site.asked)
    assert fetch_model(model)[1] == "verified"
    assert len(site.asked) == asked


def test_the_recorded_commit_stays_until_another_one_is_asked_for(site, model):
    path = fetch_model(model)[0]
    publish(site, NEW, b"two" * 1000)
    assert fetch_model(model)[0] == path
    shutil.rmtree(path.parents[1])  # a lost cache
    site.commit = OLD
    assert fetch_model(model)[0].name == OLD
    site.commit = NEW
    assert fetch_model(model, update=True)[0].name == NEW
    assert recorded(NAME).revision == NEW
    assert verify_model(model) == "verified"
    shutil.rmtree(path.parents[1])
    publish(site, NEW, b"six" * 1000)  # other weights in the recorded commit
    with pytest.raises(ModelError, match="checksum differs"):
        fetch_model(model)


def test_a_damaged_file_is_replaced(model):
    path = fetch_model(model)[0]
    (path / "model.safetensors").resolve().write_bytes(b"bad" * 1000)
    with pytest.raises(ModelError, match="checksum differs"):
        verify_model(model)
    assert fetch_model(model)[1] == "fetched"
    assert verify_model(model) == "verified"


@pytest.mark.parametrize(
    ("file", "data"),
    [("model.safetensors", b"bad" * 1000), ("model.safetensors", b"one"), ("config.json", b"[]")],
)
def test_other_bytes_than_published_are_refused(site, model, file, data):
    site.files[f"/{NAME}/resolve/{OLD}/{file}"] = data
    with pytest.raises(ModelError):
        fetch_model(model)
    assert recorded_names() == []


def test_the_name_of_a_commit_is_never_another_folder(site, model):
    publish(site, "../" * 9 + "tmp", b"one" * 1000)
    with pytest.raises(ModelError, match="is not a commit"):
        fetch_model(model)


def test_no_network_no_repository_and_offline(site, model, monkeypatch):
    with pytest.raises(ModelError, match=f"cannot fetch someone/else from {site.address}/"):
        fetch_model(Model("someone/else", "a test"))
    asked = len(site.asked)
    with monkeypatch.context() as patch:
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        with pytest.raises(ModelError, match=r"from http://127.0.0.1:9/.*check the network"):
            fetch_model(model)
    monkeypatch.setenv("HF_HUB_OFFLINE", "on")
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        fetch_model(model)
    assert len(site.asked) == asked
