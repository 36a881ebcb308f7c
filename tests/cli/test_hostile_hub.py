"""``virnucpro models fetch`` from a hub that lies: the published files or a clean error."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session

from tests.unit.models.conftest import VARIABLES
from tests.unit.models.hostile import (
    Answer,
    HostileServer,
    Request,
    continuation,
    first_byte,
    hostile_server,
    reply,
)
from virnucpro.models import catalogue
from virnucpro.models.catalogue import HubModel

COMMIT = "a" * 40
WEIGHTS = b"one" * 20_000
FILES = {"config.json": b'{"layers": 1}', "model.safetensors": WEIGHTS}
NESTED = b"[" * 200_000


def described(**changes: object) -> dict[str, object]:
    """What the hub says of the repository; ``changes`` replace keys of the weights."""
    siblings: list[dict[str, object]] = []
    for name, data in FILES.items():
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        siblings.append({"rfilename": name, "size": len(data), "blobId": git})
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    siblings[1]["lfs"] = {"sha256": digest, "size": len(WEIGHTS), "pointerSize": 1}
    siblings[1] |= changes
    return {"id": "someone/tiny", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}


def listed() -> list[dict[str, object]]:
    """The files of the repository, as the hub lists them."""
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    lfs = {"oid": digest, "sha256": digest, "size": len(WEIGHTS), "pointerSize": 1}
    entries: list[dict[str, object]] = [
        {"type": "file", "path": name, "size": len(data), "oid": "b" * 40}
        for name, data in FILES.items()
    ]
    entries[1]["lfs"] = lfs
    return entries


def as_json(document: object) -> Iterable[bytes]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return reply(body=body, Content_Type="application/json")


def hub(*, about: object = None, files: object = None, **contents: Answer) -> Answer:
    """A hub that answers as it should, except for what is given.

    ``about`` and ``files`` are documents; ``config`` and ``model`` answer for the contents of a
    file.
    """

    def answer(request: Request) -> Iterable[bytes]:
        path = request["path"].split("?")[0]
        if "/tree/" in path:
            return as_json(listed() if files is None else files)
        if path.startswith("/api/"):
            return as_json(described() if about is None else about)
        name = path.rpartition("/")[2]
        data = FILES[name]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X_Repo_Commit": COMMIT}
        if request["method"] == "HEAD":
            return reply(Content_Length=len(data), **headers)
        if own := contents.get(name.partition(".")[0]):
            return own({**request, **headers})
        if "range" in request:
            return continuation(data, request, **headers)
        return reply(body=data, **headers)

    return answer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No models yet, no proxies, and nobody waits between attempts."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "deep/er/cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    waits = itertools.count()

    def wait(_: float) -> None:
        assert next(waits) < 400, "the download has no end"

    monkeypatch.setattr(time, "sleep", wait)
    return tmp_path / "deep/er/cache"


@pytest.fixture
def site() -> Iterator[HostileServer]:
    with hostile_server() as site:
        yield site
    close_session()  # its open connections would meet another server that gets the same port


@pytest.fixture
def fetch(call: Callable, site: HostileServer, monkeypatch: pytest.MonkeyPatch) -> Callable:
    def _fetch(answer: Answer):
        site.answers = [answer]
        model = HubModel("someone/tiny", "a test", ("config.json",), endpoint=site.address)
        monkeypatch.setattr(catalogue, "KNOWN", (model,))
        return call("models", "fetch", "someone/tiny")

    return _fetch


def refused(done: object, cache: Path, text: str = "") -> None:
    """Check for exit 64 and one sentence; that nothing is recorded, and nothing outside the cache."""
    assert done.code == 64, done.err
    assert done.err.splitlines()[-1].startswith("virnucpro: ")
    assert text in done.err.splitlines()[-1]
    assert "internal error" not in done.err
    assert not (cache / "virnucpro/models/records.json").exists()
    outside = {path for path in cache.parents[1].rglob("*") if cache not in (path, *path.parents)}
    assert outside == {cache.parent}


def test_an_honest_hub(fetch: Callable, cache: Path) -> None:
    done = fetch(hub())
    assert done.code == 0, done.err
    folder = cache / "huggingface/hub/models--someone--tiny/snapshots" / COMMIT
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


@pytest.mark.parametrize(
    "about",
    [
        b"{",
        b"\xff",
        NESTED,
        [],
        5,
        {},
        {**described(), "siblings": 5},
        {**described(), "siblings": ["x"]},
        {**described(), "siblings": [{"rfilename": 5}]},
        described(lfs="x"),
        described(size="x"),
        described(rfilename="../../model.safetensors"),
        {**described(), "sha": 5},
        {**described(), "sha": None},
        {**described(), "sha": "../../../../../../evil"},
    ],
    ids=lambda about: str(about)[:20],
)
def test_a_description_that_is_not_one(fetch: Callable, cache: Path, about: object) -> None:
    refused(fetch(hub(about=about)), cache)


@pytest.mark.parametrize("files", [b"{", NESTED, [5], {"a": 1}], ids=lambda files: str(files)[:9])
def test_a_list_of_files_that_is_not_one(fetch: Callable, cache: Path, files: object) -> None:
    # Older versions of the library do not ask for the list.
    done = fetch(hub(files=files))
    if done.code:
        refused(done, cache)


def test_shards_stay_in_their_folder() -> None:
    names = ["config.json", "model.safetensors.index.json", "model-1-of-2.safetensors"]
    model = HubModel("someone/tiny", "a test")
    outside = "model-/../../../x-of-2.safetensors"
    assert catalogue.files_to_fetch(model, [*names, outside]) == (names[0], names[1], names[2])


@pytest.mark.parametrize(
    ("file", "answer"),
    [
        ("model", lambda _: reply(body=WEIGHTS[::-1])),
        ("config", lambda _: reply(body=b'{"layers": 2}')),
        ("model", lambda _: reply(body=WEIGHTS[:1000])),
        ("model", lambda _: reply(body=WEIGHTS[:1000], Content_Length=None)),
        ("model", lambda _: reply(body=WEIGHTS[:1000], Content_Length=len(WEIGHTS))),
        ("model", lambda _: reply("204 No Content", Content_Length=None)),
        ("model", lambda _: reply("206 Partial Content", WEIGHTS[:1000])),
        ("model", lambda _: reply("404 Not Found")),
        ("model", lambda _: reply(body=WEIGHTS, Content_Length="²")),
        ("model", lambda _: reply("302 Found", Location="https://[bad/")),
        ("model", lambda _: [b"\0\0\0"]),
        ("model", lambda _: []),
    ],
    ids=[
        "bytes",
        "small",
        "short",
        "early",
        "cut",
        "204",
        "206",
        "404",
        "²",
        "[bad",
        "\\0",
        "none",
    ],
)
def test_contents_that_are_not_the_published_ones(
    fetch: Callable, cache: Path, file: str, answer: Answer
) -> None:
    refused(fetch(hub(**{file: answer})), cache)


def test_a_part_of_another_version_is_found_out(fetch: Callable, cache: Path) -> None:
    def changed(request: Request) -> Iterable[bytes]:
        if "range" in request:
            return continuation(WEIGHTS[::-1], request)
        return reply(body=WEIGHTS[:20_000], Content_Length=len(WEIGHTS))

    refused(fetch(hub(model=changed)), cache)


def test_a_flood_is_stopped(fetch: Callable, site: HostileServer, cache: Path) -> None:
    def flood(request: Request) -> Iterable[bytes]:
        headers = {"Transfer_Encoding": "chunked", "Content_Length": None}
        yield from reply("206 Partial Content" if first_byte(request) else "200 OK", **headers)
        yield from itertools.repeat(b"10000\r\n" + b"x" * 0x10000 + b"\r\n", 3_000)  # 200 MB

    refused(fetch(hub(model=flood)), cache, "far more bytes than it promised")
    assert site.sent < 100_000_000
