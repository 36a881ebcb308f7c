"""``virnucpro models``: what it prints and how it ends."""

import json
import zipfile

import pytest

from tests.unit.models.conftest import cache  # noqa: F401 - an empty one for each test

ESM = "esm2_t6_8M_UR50D"


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / f"cache/torch/hub/checkpoints/{ESM}.pt"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "weights")
    return path


def test_the_list_for_machines(call, checkpoint):
    rows = {row["name"]: row for row in json.loads(call("models", "list", "--json").out)}
    found = {name: rows[ESM][name] for name in ("path", "bytes", "state", "recorded")}
    size = checkpoint.stat().st_size
    assert found == {"path": str(checkpoint), "bytes": size, "state": "here", "recorded": False}
    assert (rows["500_model.pth"]["state"], rows["500_model.pth"]["bytes"]) == ("missing", None)


def test_verify_records_checks_and_renews(call, checkpoint):
    assert "recorded now" in call("models", "verify", ESM).out
    assert call("models", "verify").out == f"{ESM}: intact: {checkpoint}\n"
    with zipfile.ZipFile(checkpoint, "a") as archive:
        archive.writestr("more", "other")
    assert call("models", "verify").code == 64
    assert "checksum recorded again" in call("models", "verify", "--renew", ESM).out
    assert "intact" in call("models", "verify").out


def test_without_models(call, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "virnucpro models fetch 500" in call("models", "verify").out
    for words in (("verify", "500_model.pth"), ("verify", "--renew"), ("path", ESM)):
        assert call("models", *words).code == 64
    done = call("models", "fetch", "500")  # which starts with the first model that it needs
    assert (done.code, "HF_HUB_OFFLINE is set" in done.err) == (64, True)
    assert "DNABERT-S cannot be fetched" in done.err
