"""``virnucpro models``: what it prints and how it ends."""

from __future__ import annotations

import json
import zipfile

import pytest

from tests.unit.models.conftest import VARIABLES

ESM = "esm2_t6_8M_UR50D"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No models, no network."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


@pytest.fixture
def checkpoint(cache):
    path = cache / f"torch/hub/checkpoints/{ESM}.pt"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "weights")
    return path


def test_the_list_for_machines(call, checkpoint):
    rows = {row["name"]: row for row in json.loads(call("models", "list", "--json").out)}
    assert rows[ESM]["path"] == str(checkpoint)
    assert rows[ESM]["bytes"] == checkpoint.stat().st_size
    assert (rows[ESM]["state"], rows[ESM]["recorded"]) == ("here", False)
    assert (rows["500_model.pth"]["state"], rows["500_model.pth"]["bytes"]) == ("missing", None)


def test_verify_records_checks_and_renews(call, checkpoint):
    assert "recorded now" in call("models", "verify", ESM).out
    assert call("models", "verify").out == f"{ESM}: intact: {checkpoint}\n"
    with zipfile.ZipFile(checkpoint, "a") as archive:
        archive.writestr("more", "other")
    assert call("models", "verify").code == 64
    assert "checksum recorded again" in call("models", "verify", "--renew", ESM).out
    assert "intact" in call("models", "verify").out


def test_without_models(call):
    assert "virnucpro models fetch 500" in call("models", "verify").out
    for words in (("verify", "500_model.pth"), ("verify", "--renew"), ("path", ESM)):
        assert call("models", *words).code == 64
    done = call("models", "fetch", "500")  # which starts with the first model that it needs
    assert (done.code, "HF_HUB_OFFLINE is set" in done.err) == (64, True)
    assert "DNABERT-S cannot be fetched" in done.err
