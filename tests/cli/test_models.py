"""``virnucpro models``: what it prints and how it ends."""

from __future__ import annotations

import json
import zipfile

import pytest
from click.testing import CliRunner

from virnucpro.cli.models import models
from virnucpro.errors import ModelError, UsageError

ESM = "esm2_t6_8M_UR50D"
VARIABLES = [
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_OFFLINE",
    "TORCH_HOME",
]


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


@pytest.fixture
def invoke():
    """The output of a command; what it raises comes through, as in ``virnucpro.cli.run``."""

    def _invoke(*arguments):
        result = CliRunner().invoke(models, arguments, standalone_mode=False)
        if result.exception:
            raise result.exception
        return result.stdout

    return _invoke


def test_the_list_for_machines(invoke, checkpoint):
    rows = {row["name"]: row for row in json.loads(invoke("list", "--json"))}
    assert rows[ESM]["path"] == str(checkpoint)
    assert rows[ESM]["bytes"] == checkpoint.stat().st_size
    assert (rows[ESM]["state"], rows[ESM]["recorded"]) == ("here", False)
    assert (rows["500_model.pth"]["state"], rows["500_model.pth"]["bytes"]) == ("missing", None)


def test_verify_records_checks_and_renews(invoke, checkpoint):
    assert "recorded now" in invoke("verify", ESM)
    assert f"{ESM}: intact: {checkpoint}\n" == invoke("verify")
    with zipfile.ZipFile(checkpoint, "a") as archive:
        archive.writestr("more", "other")
    with pytest.raises(ModelError, match="checksum differs"):
        invoke("verify")
    assert "checksum recorded again" in invoke("verify", "--renew", ESM)
    assert "intact" in invoke("verify")


def test_verify_without_models(invoke):
    assert "virnucpro models fetch 500" in invoke("verify")
    with pytest.raises(ModelError, match="not on this machine"):
        invoke("verify", "500_model.pth")
    with pytest.raises(UsageError, match="needs names"):
        invoke("verify", "--renew")


def test_fetch_for_a_model_type_starts_with_its_first_model(invoke):
    with pytest.raises(ModelError, match="DNABERT-S cannot be fetched; HF_HUB_OFFLINE is set"):
        invoke("fetch", "500")
