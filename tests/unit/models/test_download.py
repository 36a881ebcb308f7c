"""Fetching plain files with huggingface_hub: broken connections, refusals, wrong contents."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from tests.unit.models.serving import checkpoint
from virnucpro.errors import ModelError
from virnucpro.models.catalogue import Model
from virnucpro.models.fetch import fetch_model
from virnucpro.models.store import recorded, recorded_names, verify_model
from virnucpro.store.disk import HOST_NAME

DATA = checkpoint()


@pytest.fixture
def model(site):
    site.files["/tiny.pt"] = DATA
    return Model("tiny", "a test", f"{site.address}/tiny.pt", twin="someone/tiny")


@pytest.fixture
def file(cache):
    return cache / "torch/hub/checkpoints/tiny.pt"


def test_a_file_is_fetched_once_recorded_and_then_only_checked(file, site, model, capfd):
    file.parent.mkdir(parents=True)
    (file.parent / f".tiny.pt.{HOST_NAME}.9999999.tmp").write_bytes(b"of a command that was killed")
    assert fetch_model(model) == (file, "fetched")
    assert file.read_bytes() == DATA
    assert recorded("tiny").files == {"tiny.pt": hashlib.sha256(DATA).hexdigest()}
    assert fetch_model(model)[1] == "verified"
    assert site.asked == ["/tiny.pt"]
    assert [path.name for path in file.parent.iterdir()] == ["tiny.pt"]
    assert capfd.readouterr() == ("", "")  # no progress bars without a terminal


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (b"<html>please log in</html>", {}),
        (DATA[:-100], {}),
        (DATA, {"bytes": 7}),
        (DATA, {"url": "http://127.0.0.1:9/tiny.pt"}),
        (DATA, {"url": "file:///etc/passwd"}),
    ],
)
def test_what_is_not_the_file_is_never_taken_for_it(site, model, file, data, change):
    site.files["/tiny.pt"] = data
    with pytest.raises(ModelError):
        fetch_model(replace(model, **change))
    assert recorded_names() == []
    assert not list(file.parent.iterdir())


def test_another_version_at_the_address_is_refused_until_it_is_asked_for(site, model):
    path = fetch_model(model)[0]
    path.unlink()
    site.files["/tiny.pt"] = checkpoint("version two")
    with pytest.raises(ModelError, match="--update tiny"):
        fetch_model(model)
    assert not path.exists()
    assert fetch_model(model, update=True)[1] == "fetched"
    assert verify_model(model) == "verified"
