"""Where models are looked for, and what is remembered of them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.unit.models.serving import checkpoint
from virnucpro.errors import ModelError
from virnucpro.models.catalogue import model_named
from virnucpro.models.store import (
    check_digest,
    find_model,
    record_model,
    recorded,
    recorded_names,
    resolve_model,
    verify_model,
)

ESM = "esm2_t6_8M_UR50D"
DNABERT = "zhihan1996/DNABERT-S"
OLD, NEW = "a" * 40, "b" * 40
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "pytorch_model.bin": checkpoint()}


def put(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data or checkpoint())
    return path


@pytest.fixture
def hub(cache):
    return cache / "huggingface/hub"


def snapshot_in(
    hub: Path, name: str = DNABERT, files: dict[str, bytes] = FILES, commit: str = OLD
) -> Path:
    """A snapshot in the layout of the Hugging Face cache, links to blobs, which becomes main."""
    folder = hub / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for file, data in files.items():
        blob = put(folder / "blobs" / hashlib.sha256(data).hexdigest(), data)
        (snapshot / file).symlink_to(Path("../../blobs") / blob.name)
    put(folder / "refs" / "main", commit.encode())
    return snapshot


# --- finding


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        ("XDG_CACHE_HOME", "torch/hub/checkpoints"),
        ("TORCH_HOME", "hub/checkpoints"),
        ("XDG_CACHE_HOME", "virnucpro/models"),
        ("HF_HOME", "hub"),
        ("HF_HUB_CACHE", ""),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ],
)
def test_a_model_is_found_where_users_have_it(tmp_path, monkeypatch, variable, folder):
    monkeypatch.setenv(variable, str(tmp_path / "here"))
    place = tmp_path / "here" / folder
    if "HF" in variable or "hugging" in folder:
        assert snapshot_in(place) == find_model(DNABERT)
    else:
        assert put(place / f"{ESM}.pt") == find_model(ESM)


def test_a_recorded_revision_then_main_then_the_first_by_name_is_taken(cache, hub):
    old = snapshot_in(hub)
    record_model(model_named(DNABERT), old)
    new = snapshot_in(hub, files=FILES | {"pytorch_model.bin": checkpoint("new")}, commit=NEW)
    assert find_model(DNABERT) == old
    (cache / f"virnucpro/models/checksums/{DNABERT}.sha256").unlink()
    assert find_model(DNABERT) == new
    (new.parents[1] / "refs/main").unlink()
    os.utime(new, (4e9, 4e9))  # times do not decide
    assert find_model(DNABERT) == old


def test_an_incomplete_snapshot_does_not_count(hub):
    (snapshot_in(hub) / "tokenizer.json").resolve().unlink()  # the link stays, to nothing
    with pytest.raises(ModelError, match="not on this machine"):
        find_model(DNABERT)


@pytest.mark.parametrize(("shards", "found"), [((1, 2), True), ((1,), False)])
def test_every_shard_of_the_index_must_be_there(hub, shards, found):
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = json.dumps({"weight_map": dict(zip("ab", names, strict=True))}).encode()
    files = {"config.json": b"{}", "model.safetensors.index.json": index}
    files |= {names[n - 1]: b"x" for n in shards}
    snapshot_in(hub, f"facebook/{ESM}", files)
    assert (resolve_model(model_named(f"facebook/{ESM}")) is not None) == found


def test_a_released_name_falls_back_to_its_twin_on_the_hub(cache, hub):
    files = {"config.json": b"{}", "model.safetensors": b"x"}
    assert snapshot_in(hub, f"facebook/{ESM}", files) == find_model(ESM)
    assert put(cache / f"torch/hub/checkpoints/{ESM}.pt") == find_model(ESM)


def test_a_hub_model_may_be_put_into_the_own_folder(cache):
    folder = cache / "virnucpro/models" / DNABERT
    for name, data in FILES.items():
        put(folder / name, data)
    assert find_model(DNABERT) == folder


# --- records


def test_files_of_a_snapshot_are_known_by_their_links(cache, hub):
    snapshot = snapshot_in(hub)
    verify_model(model_named(DNABERT))
    assert recorded(DNABERT).revision == OLD
    check_digest(snapshot / "config.json", hashlib.sha256(b"{}").hexdigest())
    for unknown in (snapshot / "other.json", put(cache / "elsewhere/config.json")):
        check_digest(unknown, "0" * 64)
    with pytest.raises(ModelError, match="checksum differs"):
        check_digest(snapshot / "config.json", "0" * 64)


def test_a_tokenizer_file_added_later_is_no_damage_but_other_weights_are(hub):
    snapshot = snapshot_in(hub)
    verify_model(model_named(DNABERT))
    put(snapshot / "tokenizer_config.json", b"{}")
    assert verify_model(model_named(DNABERT)) == "verified"
    put(snapshot / "model.safetensors", b"x")
    with pytest.raises(ModelError, match=r"model\.safetensors: checksum differs"):
        verify_model(model_named(DNABERT))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>log in</html>", "web page"),
        (checkpoint()[:-100], "cut short"),
        (b"", "is empty"),
    ],
)
def test_what_is_plainly_no_model_is_never_recorded(cache, data, match):
    put(cache / "virnucpro/models/500_model.pth").write_bytes(data)
    with pytest.raises(ModelError, match=match):
        verify_model(model_named("500_model.pth"))
    assert recorded_names() == []


@pytest.mark.parametrize("text", [b"", b"# - 2026-01-01\nabc\n", b"\xff"])
def test_damaged_checksums_are_an_error_that_says_what_to_do(cache, text):
    path = cache / "virnucpro/models/checksums/500_model.pth.sha256"
    put(path).write_bytes(text)
    put(cache / "virnucpro/models/500_model.pth")
    with pytest.raises(ModelError, match="is damaged"):
        verify_model(model_named("500_model.pth"))
