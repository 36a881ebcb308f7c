"""Fetching plain files with huggingface_hub: broken connections, refusals, wrong contents."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from huggingface_hub import constants

from tests.unit.models.serving import checkpoint
from virnucpro.errors import ModelError
from virnucpro.models import fetch
from virnucpro.models.catalogue import Model
from virnucpro.models.fetch import fetch_model
from virnucpro.models.store import recorded, recorded_names, verify_model

DATA = checkpoint()


@pytest.fixture
def model(site, monkeypatch):
    monkeypatch.setattr(fetch, "WORTH_CONTINUING", 1_000)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    site.files["/tiny.pt"] = DATA
    return Model("tiny", "a test", f"{site.address}/tiny.pt", twin="someone/tiny")


@pytest.fixture
def part(cache):
    folder = cache / "torch/hub/checkpoints"
    folder.mkdir(parents=True)
    return folder / "tiny.pt.part"


def test_a_file_is_fetched_once_recorded_and_then_only_checked(cache, site, model, capfd):
    path, outcome = fetch_model(model)
    assert (path, outcome) == (cache / "torch/hub/checkpoints/tiny.pt", "fetched")
    assert path.read_bytes() == DATA
    record = recorded("tiny")
    assert record is not None
    assert record.files == {"tiny.pt": hashlib.sha256(DATA).hexdigest()}
    assert fetch_model(model)[1] == "verified"
    assert site.asked == ["/tiny.pt"]
    assert [file.name for file in path.parent.iterdir()] == ["tiny.pt"]
    assert capfd.readouterr() == ("", "")  # no progress bars without a terminal


@pytest.mark.parametrize(
    ("left", "ranges"),
    [
        (DATA[:50_000], ["bytes=50000-"]),  # of an interrupted command
        (DATA[:999], [None]),  # too little
        (DATA, [f"bytes={len(DATA)}-"]),  # interrupted before it was moved
        (checkpoint("others!")[:50_000], ["bytes=50000-", None]),  # of another version
        (DATA + b"more", [f"bytes={len(DATA) + 4}-", None]),
    ],
)
def test_what_an_earlier_command_left_is_continued_if_it_fits(site, model, part, left, ranges):
    part.write_bytes(left)
    assert fetch_model(model)[0].read_bytes() == DATA
    assert site.ranges == ranges


def test_what_came_stays_where_the_connection_does_not_last(site, model, part):
    site.cut = 99
    site.files["/tiny.pt"] = DATA[:10] + bytes(10_000_000)
    with pytest.raises(ModelError, match="check the network"):
        fetch_model(replace(model, bytes=10_000_011))
    assert part.stat().st_size > 30_000
    assert not part.with_suffix("").exists()


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (b"<html>please log in</html>", {}),
        (DATA[:-100], {}),
        (DATA.replace(b"weights", b"weighty", 1), {}),
        (DATA, {"bytes": 7}),
        (DATA, {"url": "http://127.0.0.1:9/tiny.pt"}),
        (DATA, {"url": "file:///etc/passwd"}),
    ],
)
def test_what_is_not_the_file_is_never_taken_for_it(site, model, part, data, change):
    site.files["/tiny.pt"] = data
    with pytest.raises(ModelError):
        fetch_model(replace(model, **change))
    assert recorded_names() == []
    assert not part.with_suffix("").exists()


def test_another_version_at_the_address_is_refused_until_it_is_asked_for(site, model):
    path = fetch_model(model)[0]
    path.unlink()
    site.files["/tiny.pt"] = checkpoint("version two")
    with pytest.raises(ModelError, match="--update tiny"):
        fetch_model(model)
    assert not path.exists()
    assert fetch_model(model, update=True)[1] == "fetched"
    assert verify_model(model) == "verified"
