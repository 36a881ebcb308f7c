"""Fetching plain files: broken connections, refusals, wrong contents, proxies."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace

import pytest

from tests.unit.models.serving import checkpoint
from virnucpro.errors import ModelError, OutputError
from virnucpro.models import fetch
from virnucpro.models.catalogue import WebFile
from virnucpro.models.fetch import fetch_model
from virnucpro.models.records import read_model_records
from virnucpro.models.store import verify_model

DATA = checkpoint()


@pytest.fixture
def model(site):
    site.files["/tiny.pt"] = DATA
    return WebFile("tiny", "a test", f"{site.address}/tiny.pt", "tiny.pt", in_torch_hub=True)


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """The pauses in seconds, which are not waited for."""
    seconds = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def bring(model, **options):
    """``fetch_model`` that shows nothing."""
    return fetch_model(model, lambda *_: None, **options)


def leftovers(cache):
    return [p.name for p in cache.rglob("*.part*")]


def test_a_file_is_fetched_once_recorded_and_then_only_checked(cache, site, model):
    seen = []
    fetched = fetch_model(model, lambda *at: seen.append(at))
    assert fetched.how == "fetched"
    assert fetched.path == cache / "torch/hub/checkpoints/tiny.pt"
    assert fetched.path.read_bytes() == DATA
    assert seen[0] == (0, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))
    record = read_model_records()["tiny"]
    digest = hashlib.sha256(DATA).hexdigest()
    assert record.files["tiny.pt"].sha256 == digest
    assert (record.address, record.revision) == (model.address, f'"{digest}"')
    assert fetch_model(model, lambda *_: None).how == "verified"
    assert len(site.asked) == 1
    assert leftovers(cache) == []


def test_a_broken_connection_is_resumed_where_it_broke(site, model, waits):
    site.cut = 2
    assert bring(model).path.read_bytes() == DATA
    ranges = [wanted for _, _, wanted in site.asked]
    assert ranges == [None, "bytes=30000-", "bytes=60000-"]
    assert waits == [1.0, 1.0]  # each attempt brought something


def test_a_killed_fetch_is_resumed_by_the_next_one(cache, site, model, monkeypatch):
    site.cut, site.cut_after = 1, 30_000
    site.status["/tiny.pt"] = []

    def die(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", die)

    with pytest.raises(KeyboardInterrupt):
        bring(model)
    assert sorted(leftovers(cache)) == ["tiny.pt.part", "tiny.pt.part.version"]
    assert bring(model).path.read_bytes() == DATA
    assert site.asked[-1][2] == "bytes=30000-"


def test_a_complete_part_needs_no_more_bytes(site, model, monkeypatch):
    def die(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "check_model_file", die)
        with pytest.raises(KeyboardInterrupt):
            bring(model)
    assert bring(model).path.read_bytes() == DATA
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    "version", [None, b"", b"{", b"[" * 100_000, b"[]", b'{"address": 1}', b'"\xff"', b"1e999"]
)
def test_a_part_of_an_unknown_version_is_fetched_again(cache, site, model, version):
    part = cache / "torch/hub/checkpoints/tiny.pt.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * 1000)
    if version is not None:
        part.with_name("tiny.pt.part.version").write_bytes(version)
    assert bring(model).path.read_bytes() == DATA
    assert [wanted for _, _, wanted in site.asked] == [None]
    assert leftovers(cache) == []


def test_two_versions_are_never_glued_together(cache, site, model, monkeypatch):
    site.cut = 1
    other = checkpoint("others!")

    def change(_):
        site.files["/tiny.pt"] = other

    monkeypatch.setattr(time, "sleep", change)

    assert bring(model).path.read_bytes() == other


def test_a_part_longer_than_the_file_is_thrown_away(cache, site, model):
    part = cache / "torch/hub/checkpoints/tiny.pt.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA + b"more")
    assert bring(model).path.read_bytes() == DATA


def test_a_server_without_ranges_starts_over(site, model):
    site.cut, site.ranges = 1, False
    assert bring(model).path.read_bytes() == DATA


def test_it_gives_up_after_five_attempts_without_a_byte(cache, site, model, waits):
    site.cut, site.cut_after = 99, 0
    with pytest.raises(ModelError, match="check the network"):
        bring(model)
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert len(site.asked) == 5
    assert leftovers(cache) == []


def test_a_truncated_file_stays_a_part(cache, site, model, monkeypatch):
    site.cut, site.cut_after = 1, 50_000
    site.status["/tiny.pt"] = []

    def refuse(_):
        site.cut, site.cut_after = 99, 0

    monkeypatch.setattr(time, "sleep", refuse)

    with pytest.raises(ModelError, match="50,000 bytes are kept"):
        bring(model)
    assert not (cache / "torch/hub/checkpoints/tiny.pt").exists()


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_a_refusal_is_final_and_names_the_manual_route(cache, site, model, waits, code):
    site.status["/tiny.pt"] = [code]
    with pytest.raises(ModelError, match=str(code)) as error:
        bring(model)
    assert str(cache / "virnucpro/models/tiny.pt") in str(error.value)
    assert waits == []


def test_passing_trouble_of_the_server_is_waited_for(site, model, waits):
    site.status["/tiny.pt"] = [503, 429]
    assert bring(model).path.read_bytes() == DATA
    assert waits == [1.0, 2.0]


def test_nobody_listens(site, model, waits):
    dead = replace(model, address="http://127.0.0.1:9/tiny.pt")
    with pytest.raises(ModelError, match="refused"):
        bring(dead)
    assert len(waits) == 4


def test_a_web_page_in_place_of_the_file_is_refused(cache, site, model):
    site.files["/tiny.pt"] = b"<html>please log in</html>"
    with pytest.raises(ModelError, match="web page"):
        bring(model)
    assert leftovers(cache) == []
    assert read_model_records() == {}


def test_a_known_size_is_insisted_on(site, model):
    with pytest.raises(ModelError, match=r"instead of 7"):
        bring(replace(model, bytes=7))


def test_a_known_checksum_is_insisted_on(cache, site, model):
    assert bring(replace(model, sha256=hashlib.sha256(DATA).hexdigest())).how == "fetched"
    other = replace(model, name="other", file="other.pt", sha256="0" * 64)
    with pytest.raises(ModelError, match="checksum differs"):
        bring(other)
    assert leftovers(cache) == []


def test_a_damaged_file_is_replaced_by_the_recorded_one(site, model):
    path = bring(model).path
    path.write_bytes(checkpoint("damaged"))
    with pytest.raises(ModelError, match="checksum differs"):
        verify_model(model)
    assert bring(model).how == "fetched"
    assert path.read_bytes() == DATA
    assert verify_model(model) == "verified"


def test_another_version_at_the_address_is_refused_until_it_is_asked_for(site, model):
    path = bring(model).path
    path.unlink()
    site.files["/tiny.pt"] = checkpoint("version two")
    with pytest.raises(ModelError, match="--update tiny"):
        bring(model)
    assert not path.exists()
    assert bring(model, update=True).how == "fetched"
    assert verify_model(model) == "verified"


def test_offline_nothing_is_asked(site, model, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        bring(model)
    assert site.asked == []


def test_offline_a_file_that_is_here_is_checked(site, model, monkeypatch):
    bring(model)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert bring(model).how == "verified"


@pytest.mark.parametrize(
    "address", ["http://example.org/a.pt", "ftp://127.0.0.1/a.pt", "file:///etc/passwd"]
)
def test_only_https_is_fetched(site, model, address):
    with pytest.raises(ModelError, match="not https"):
        bring(replace(model, address=address))


def test_a_redirect_must_not_leave_https(site, model):
    site.redirect["/tiny.pt"] = "http://example.org/tiny.pt"
    with pytest.raises(ModelError, match="not https"):
        bring(model)
    site.redirect["/tiny.pt"] = f"{site.address}/moved.pt"
    site.files["/moved.pt"] = DATA
    assert bring(model).path.read_bytes() == DATA


def test_proxies_are_respected(site, model, monkeypatch):
    monkeypatch.setenv("http_proxy", site.address)
    elsewhere = replace(model, address="http://127.0.0.1:9/tiny.pt")
    assert bring(elsewhere).path.read_bytes() == DATA
    assert site.asked[0][1] == "http://127.0.0.1:9/tiny.pt"


def test_an_unwritable_folder_is_exit_6(cache, model):
    cache.mkdir()
    (cache / "torch").write_text("a file where a folder should be")
    with pytest.raises(OutputError, match="cannot write"):
        bring(model)
