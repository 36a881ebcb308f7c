"""Downloads from servers that break off, lie and send nonsense: the exact file or a clean error."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

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
from virnucpro.models import download as download_module
from virnucpro.models import fetch as fetch_module
from virnucpro.models.catalogue import WebFile

OLD, NEW = (bytes(random.Random(seed).choices(range(65, 91), k=100_000)) for seed in (1, 2))
MANY_WAITS = 400  # far more than any finite download of this file needs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the file: no models yet, no proxies, and nobody waits between attempts."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    waits = itertools.count()

    def wait(_: float) -> None:
        assert next(waits) < MANY_WAITS, "the download has no end"

    monkeypatch.setattr(time, "sleep", wait)
    return tmp_path / "virnucpro/models"


@pytest.fixture
def site() -> Iterator[HostileServer]:
    with hostile_server() as site:
        yield site


@pytest.fixture
def fetch(call: Callable, site: HostileServer, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """``virnucpro models fetch tiny``, a file of the server."""
    model = WebFile("tiny", "a test", f"{site.address}/tiny.pth", "tiny.pth")
    monkeypatch.setattr(catalogue, "KNOWN", (model,))
    return lambda: call("models", "fetch", "tiny")


def cut(data: bytes, length: int = 40_000, **headers: object) -> Answer:
    """The first bytes of a file, then the end of the connection."""
    return lambda _: reply(body=data[:length], Content_Length=len(data), **headers)


def refused(done: object, cache: Path, text: str) -> None:
    """Check that the command ended with one sentence and exit 64, and that nothing is left."""
    assert done.code == 64, done.err
    assert text in done.err
    message = done.err.splitlines()
    assert [line for line in message if line.startswith("virnucpro: ")] == message[-1:]
    assert sorted(path.name for path in cache.glob("tiny*")) == []


def given_up(done: object, cache: Path) -> None:
    """Check that the command gave up with exit 64, and that no file appeared."""
    assert done.code == 64, done.err
    assert "check the network" in done.err.splitlines()[-1]
    assert not (cache / "tiny.pth").exists()


# --- two versions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {}, id="no validator"),
        pytest.param({"ETag": 'W/"1"'}, {"ETag": 'W/"1"'}, id="weak"),
        pytest.param({"ETag": "1"}, {"ETag": "1"}, id="not an ETag"),
        pytest.param(
            {"Last_Modified": "Sat, 21 Nov 2026 08:00:00 GMT"},
            {"Last_Modified": "Sat, 21 Nov 2026 08:00:00 GMT"},
            id="date",
        ),
        pytest.param({"ETag": '"1"'}, {"ETag": '"2"'}, id="If-Range ignored"),
        pytest.param({"ETag": '"1"'}, {}, id="second without validator"),
        pytest.param(
            {"ETag": '"1"'},
            {"ETag": '"1"', "Content_Range": "bytes 40000-99999/100001"},
            id="another total",
        ),
        pytest.param(
            {"ETag": '"1"'},
            {"ETag": '"1"', "Content_Range": "bytes 39999-99999/100000"},
            id="another part",
        ),
        pytest.param(
            {"ETag": '"1"'}, {"ETag": '"1"', "Content_Range": "bytes ²-3/4"}, id="malformed range"
        ),
        pytest.param({"ETag": '"1"'}, {"ETag": '"1"', "Content_Range": None}, id="no range"),
    ],
)
def test_two_versions_are_never_joined(
    fetch: Callable, site: HostileServer, cache: Path, first: dict, second: dict
) -> None:
    def changed(request: Request) -> Iterable[bytes]:
        if "range" in request:
            return continuation(NEW, request, **second)
        return reply(body=NEW, ETag='"2"')

    site.answers = [cut(OLD, **first), changed]
    done = fetch()
    assert done.code == 0, done.err
    assert (cache / "tiny.pth").read_bytes() == NEW


def test_a_part_is_continued_in_slices(fetch: Callable, site: HostileServer, cache: Path) -> None:
    def slices(request: Request) -> Iterable[bytes]:
        start = first_byte(request)
        span = f"bytes {start}-{start + 19_999}/100000"
        body = OLD[start : start + 20_000]
        return reply("206 Partial Content", body, ETag='"1"', Content_Range=span)

    site.answers = [cut(OLD, ETag='"1"'), slices]
    assert fetch().code == 0
    assert (cache / "tiny.pth").read_bytes() == OLD
    assert [first_byte(request) for request in site.requests] == [0, 40_000, 60_000, 80_000]


def test_a_file_that_changes_all_the_time_is_given_up(
    fetch: Callable, site: HostileServer, cache: Path
) -> None:
    numbers = itertools.count()

    def alternate(request: Request) -> Iterable[bytes]:
        number = next(numbers)
        data = OLD[: 90_000 + 1_000 * (number % 2)]
        return reply(
            body=data[: 30_000 + 10_000 * (number % 3)], Content_Length=len(data), ETag='"1"'
        )

    site.answers = [alternate]
    given_up(fetch(), cache)
    assert len(site.requests) == 5


def test_versions_that_alternate_between_continuations_are_given_up(
    fetch: Callable, site: HostileServer, cache: Path
) -> None:
    # Every version makes progress of its own before it is replaced by the next one.
    numbers = itertools.count()

    def alternate(request: Request) -> Iterable[bytes]:
        number = next(numbers)
        if "range" not in request:
            return cut(OLD, 1_000, ETag=f'"{number}"')(request)
        if number % 3 == 1:
            start = first_byte(request)
            return reply(
                "206 Partial Content",
                OLD[start : start + 1_000],
                Content_Length=len(OLD) - start,
                Content_Range=f"bytes {start}-{len(OLD) - 1}/{len(OLD)}",
                ETag=request["if-range"],
            )
        return continuation(OLD, request, ETag='"other"')

    site.answers = [alternate]
    given_up(fetch(), cache)
    assert len(site.requests) < 30


# --- pace --------------------------------------------------------------------------------------


@pytest.fixture
def slow_fetch(fetch: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """``fetch`` with so many seconds of a simulated clock between two reads."""

    def slow(seconds: float):
        clock = itertools.count(0, seconds)
        paced = functools.partial(download_module.download, clock=lambda: float(next(clock)))
        monkeypatch.setattr(fetch_module, "download", paced)
        return fetch()

    return slow


def trickle(data: bytes, request: Request, pieces: int) -> Iterable[bytes]:
    """Send an answer byte by byte, of the file only so many bytes; then nothing, for a while."""
    head, body = continuation(data, request, ETag='"1"')
    if "range" not in request:
        head, body = reply(body=data, ETag='"1"')
    yield head
    for n in range(pieces):
        threading.Event().wait(0.002)
        yield body[n : n + 1]
    threading.Event().wait(60)  # the client has left long before


def test_a_server_that_trickles_is_given_up(
    slow_fetch: Callable, site: HostileServer, cache: Path
) -> None:
    """It never runs into the timeout, which a single byte begins anew."""
    site.answers = [lambda request: trickle(OLD, request, 60_000)]
    done = slow_fetch(30)
    given_up(done, cache)
    assert f"cannot fetch {site.address}/tiny.pth: " in done.err
    assert "bytes per second came over" in done.err
    assert "at least 1,000 are needed: the server or the network is too slow" in done.err
    assert re.search(r"then run it again: [1-9][\d,]* bytes are kept", done.err)
    assert len(site.requests) == 5
    starts = [first_byte(request) for request in site.requests]
    assert starts == sorted(set(starts))  # each continues what is there


def test_headers_that_trickle_are_given_up(
    slow_fetch: Callable, site: HostileServer, cache: Path
) -> None:
    def endless(_: Request) -> Iterable[bytes]:
        yield b"HTTP/1.1 200 OK\r\nX-Filler: "
        for _ in range(60_000):
            threading.Event().wait(0.002)
            yield b"x"

    site.answers = [endless]
    done = slow_fetch(30)
    given_up(done, cache)
    assert "bytes per second came over" in done.err
    assert len(site.requests) == 5


def test_after_a_trickle_the_rest_is_fetched(
    slow_fetch: Callable, site: HostileServer, cache: Path
) -> None:
    site.answers = [
        lambda request: trickle(OLD, request, 60_000),
        lambda request: continuation(OLD, request, ETag='"1"'),
    ]
    done = slow_fetch(30)
    assert done.code == 0, done.err
    assert (cache / "tiny.pth").read_bytes() == OLD
    assert "range" in site.requests[1]


def test_a_slow_network_is_fast_enough(
    slow_fetch: Callable, site: HostileServer, cache: Path
) -> None:
    def slowly(_: Request) -> Iterable[bytes]:
        yield from reply(body=b"", Content_Length=len(OLD), ETag='"1"')
        for start in range(0, len(OLD), 2_000):
            threading.Event().wait(0.002)
            yield OLD[start : start + 2_000]

    site.answers = [slowly]
    done = slow_fetch(0.9)  # 2 kB in each: two looks at the clock
    assert done.code == 0, done.err
    assert len(site.requests) == 1


# --- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _: reply(body=OLD[:40_000], Content_Length=None), "does not say how many bytes"),
        (
            lambda _: reply(
                "206 Partial Content", OLD[:40_000], Content_Range="bytes 0-39999/40000"
            ),
            "answers 206",
        ),
        (lambda _: reply("204 No Content", Content_Length=None), "answers 204"),
        (lambda _: reply("203 Transformed", OLD), "answers 203"),
        (lambda _: [b"HTTP/1.1 204\r\n\r\n"], "answers 204"),
    ],
    ids=["no length", "206 not asked for", "204", "203", "no reason"],
)
def test_what_may_be_half_a_file_is_refused(
    fetch: Callable, site: HostileServer, cache: Path, answer: Answer, text: str
) -> None:
    site.answers = [answer]
    refused(fetch(), cache, text)
    assert len(site.requests) == 1


def test_the_total_of_a_continuation_must_not_shrink(
    fetch: Callable, site: HostileServer, cache: Path
) -> None:
    def shrunk(request: Request) -> Iterable[bytes]:
        if "range" not in request:
            return cut(OLD, ETag='"1"')(request)
        return continuation(OLD[:60_000], request, ETag='"1"')

    site.answers = [shrunk]
    given_up(fetch(), cache)


@pytest.mark.parametrize("framing", ["chunked", "until the end"])
def test_no_more_is_read_than_was_promised(
    fetch: Callable, site: HostileServer, cache: Path, framing: str
) -> None:
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"  # one chunk of 64 KiB

    def flood(_: Request) -> Iterable[bytes]:
        headers = {"Transfer_Encoding": "chunked"} if framing == "chunked" else {}
        yield from reply(Content_Length=10_000, **headers)
        yield from itertools.repeat(piece, 3_000)  # 200 MB

    site.answers = [flood]
    done = fetch()
    if framing == "chunked":
        refused(done, cache, "more than the 10,000 bytes")
    else:
        assert done.code == 0
        assert (cache / "tiny.pth").stat().st_size == 10_000
    assert site.sent < 50_000_000  # what the buffers of the system hold


def test_the_body_of_a_redirect_is_not_read(
    fetch: Callable, site: HostileServer, cache: Path
) -> None:
    def flood(_: Request) -> Iterable[bytes]:
        yield from reply("302 Found", Content_Length=None, Location="/other.pth")
        yield from itertools.repeat(b"x" * 65_536, 3_000)

    site.answers = [flood, lambda _: reply(body=OLD)]
    assert fetch().code == 0
    assert (cache / "tiny.pth").read_bytes() == OLD
    assert site.sent < 50_000_000


# --- headers and links -------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["²", "-1", "1e3", "1_0", "+5", "", " ", "9" * 5000, "10, 20"])
def test_a_malformed_length_is_a_sentence(
    fetch: Callable, site: HostileServer, cache: Path, length: str
) -> None:
    site.answers = [lambda _: reply(body=OLD, Content_Length=length)]
    refused(fetch(), cache, "Content-Length" if length.strip() else "how many bytes")


def test_two_lengths_are_a_sentence(fetch: Callable, site: HostileServer, cache: Path) -> None:
    site.answers = [lambda _: reply(body=OLD, Content_Length="10\r\nContent-Length: 20")]
    refused(fetch(), cache, "malformed Content-Length ('10, 20')")


@pytest.mark.parametrize(
    "location",
    [
        "https://[bad/",
        "https://",
        "https:///x",
        "https://127.0.0.1:99999/x",
        "https://127.0.0.1:0/x",
        "https://127.0.0.1:x/y",
        "https://" + "a" * 300 + ".example/x",
        "http://\xb2/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "",
    ],
)
def test_a_malformed_redirect_is_a_sentence(
    fetch: Callable, site: HostileServer, cache: Path, location: str
) -> None:
    site.answers = [lambda _: reply("302 Found", Location=location)]
    refused(fetch(), cache, "tiny.pth" if not location else "")


def test_a_redirect_to_itself_is_a_sentence(
    fetch: Callable, site: HostileServer, cache: Path
) -> None:
    site.answers = [lambda _: reply("302 Found", Location="/tiny.pth")]
    refused(fetch(), cache, "redirect")


@pytest.mark.parametrize(
    "noise", [b"", b"\r\n\r\n", b"\0" * 1000, b"HTTP/1.1 abc\r\n\r\n", b"HTTP/9.9 200\r\n" * 300]
)
def test_what_is_not_http_is_a_sentence(
    fetch: Callable, site: HostileServer, cache: Path, noise: bytes
) -> None:
    site.answers = [lambda _: [noise]]
    refused(fetch(), cache, "check the network")


def test_nothing_is_written_through_a_link(
    fetch: Callable, site: HostileServer, cache: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    cache.mkdir(parents=True)
    link = cache / "tiny.pth.part"
    link.symlink_to(mine)
    site.answers = [lambda _: reply(body=OLD)]
    done = fetch()
    assert done.code == 6
    assert f"{link} is a symbolic link" in done.err
    assert "remove the link" in done.err
    assert mine.read_text() == "mine"
    assert site.requests == []
    link.unlink()
    (cache / "tiny.pth.part.version").symlink_to(mine)
    assert fetch().code == 0
    assert mine.read_text() == "mine"


# --- genomes -----------------------------------------------------------------------------------


@pytest.fixture
def download(call: Callable, site: HostileServer, tmp_path: Path) -> Callable:
    """``virnucpro train download`` of one file, which is the last thing asked for."""
    listing = f"{hashlib.md5(NEW).hexdigest()}\tviral.1.genomic.gbff.gz\n".encode()

    def _download(*answers: Answer) -> object:
        site.requests.clear()
        site.answers = [lambda _: reply(body=b"231"), lambda _: reply(body=listing), *answers]
        options = ("--release-groups", "viral", "--mirror", site.address, "-o", tmp_path / "refseq")
        return call("train", "download", *options)

    return _download


def test_genomes_of_two_versions_are_never_joined(download: Callable, tmp_path: Path) -> None:
    def changed(request: Request) -> Iterable[bytes]:
        return continuation(NEW, request) if "range" in request else reply(body=NEW)

    done = download(cut(OLD), changed)
    assert done.code == 0, done.err
    assert (tmp_path / "refseq/viral/viral.1.genomic.gbff.gz").read_bytes() == NEW


@pytest.mark.parametrize(
    "headers", [{"Content_Length": "²"}, {"status": "302 Found", "Location": "https://[bad/"}]
)
def test_a_malformed_header_is_exit_64_for_genomes_too(
    download: Callable, tmp_path: Path, headers: dict
) -> None:
    done = download(lambda _: reply(body=NEW, **headers))
    assert done.code == 64
    assert "viral.1.genomic.gbff.gz" in done.err
    assert "Traceback" not in done.err
    assert list((tmp_path / "refseq").rglob("*.gz*")) == []


@pytest.mark.parametrize("number", ["²", "9" * 5000, "", "-1", "231/../x"])
def test_a_release_without_a_number(
    call: Callable, site: HostileServer, tmp_path: Path, number: str
) -> None:
    site.answers = [lambda _: reply(body=number.encode())]
    done = call("train", "download", "--mirror", site.address, "-o", tmp_path / "refseq")
    assert done.code == 64
    assert "is not a number" in done.err


@pytest.mark.parametrize(
    "mirror", ["https://[bad", "https://", "ftp://x", "nowhere", "https://x:y"]
)
def test_a_mirror_that_is_not_an_address(call: Callable, tmp_path: Path, mirror: str) -> None:
    done = call("train", "download", "--mirror", mirror, "-o", tmp_path / "refseq")
    assert done.code == 64
    assert "not fetched from there" in done.err


def test_no_genome_is_written_through_a_link(download: Callable, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (tmp_path / "refseq/viral").mkdir(parents=True)
    (tmp_path / "refseq/viral/viral.1.genomic.gbff.gz.part").symlink_to(mine)
    done = download(lambda _: reply(body=NEW))
    assert done.code == 6
    assert "is a symbolic link" in done.err
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["records.json", "locks"])
def test_the_records_of_models_are_not_kept_behind_a_link(
    fetch: Callable, site: HostileServer, cache: Path, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if name == "locks":
        elsewhere.mkdir()
    else:
        elsewhere.write_text("mine")
    cache.mkdir(parents=True)
    (cache / name).symlink_to(elsewhere)
    done = fetch()
    assert done.code == 3, done.err
    assert f"{cache / name} is a symbolic link" in done.err
    assert site.requests == []
    assert list(elsewhere.iterdir()) == [] if name == "locks" else elsewhere.read_text() == "mine"


# --- all of it in random order -----------------------------------------------------------------


class Chaos:
    """Answers that are right or wrong in every way above, drawn by chance.

    Two versions of one size and one of another size alternate. Only one lie is left out: the
    strong ETag of one version, with its size, on bytes of another.
    """

    def __init__(self, seed: int) -> None:
        """Draw the habits of this server."""
        self.random = random.Random(seed)
        self.versions = [OLD, NEW, NEW[:70_000]]
        self.current = self.random.choice(self.versions)
        self.stable = self.random.random() < 0.5  # otherwise the file changes between requests
        self.honest = self.random.choice([0.2, 0.5, 0.8])

    def __call__(self, request: Request) -> Iterable[bytes]:
        """Return the next answer."""
        if not self.stable and self.random.random() < 0.3:
            self.current = self.random.choice(self.versions)
        data = self.current
        tag = f'"{self.versions.index(data)}"'
        whole = reply(body=data, ETag=tag)
        if self.random.random() < self.honest:
            if request.get("if-range") == tag:
                return continuation(data, request, ETag=tag)
            return whole
        length = self.random.randrange(len(data))
        start = first_byte(request)
        other_total = len(data) + self.random.choice([-1, 1, -20_000])
        ways: list[Callable[[], Iterable[bytes]]] = [
            lambda: reply(body=data[:length], Content_Length=len(data), ETag=tag),
            lambda: reply(body=data[:length], Content_Length=len(data)),
            lambda: reply(body=data[:length], Content_Length=None, ETag=tag),
            lambda: reply(body=data[:length], Content_Length=len(data), ETag=f"W/{tag}"),
            lambda: reply(body=data, ETag=tag, Content_Length=self.random.choice(["²", "-3", "x"])),
            lambda: reply("204 No Content", ETag=tag),
            lambda: reply("206 Partial Content", data[:length], ETag=tag),
            lambda: reply(self.random.choice(["404 Not Found", "503 Busy", "416 Bad Range"])),
            lambda: reply("302 Found", Location=self.random.choice(["https://[bad/", "/moved", ""])),
            lambda: [b"HTTP/1.1 \xff\xff\r\n\r\n"],
            lambda: [],
            lambda: flood(data, tag),
            lambda: cut_continuation(data, start, length, tag),
            lambda: continuation(data, request),
            lambda: continuation(data, request, ETag=f"W/{tag}"),
            lambda: continuation(data, request, ETag=tag),
            lambda: continuation(
                data, request, ETag=tag, Content_Range=f"bytes {start}-{other_total - 1}/{other_total}"
            ),
            lambda: continuation(data, request, ETag=tag, Content_Range="bytes 0-²/9"),
        ]  # fmt: skip
        return self.random.choice(ways)()


def flood(data: bytes, tag: str) -> Iterable[bytes]:
    """Return more than is promised, in chunks."""
    yield from reply(Content_Length=len(data), Transfer_Encoding="chunked", ETag=tag)
    for piece in (data, data[:1_000], b""):
        yield b"%x\r\n%s\r\n" % (len(piece), piece)


def cut_continuation(data: bytes, start: int, length: int, tag: str) -> Iterable[bytes]:
    """Return a right answer to a request for a part, but not all of it."""
    yield from reply(
        "206 Partial Content",
        data[start : start + length],
        Content_Length=len(data) - start,
        Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}",
        ETag=tag,
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_exact_file_or_a_clean_error(
    fetch: Callable,
    site: HostileServer,
    cache: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chaos = Chaos(seed)
    site.answers = [chaos]
    for _ in range(6):  # the same command again, with what the one before left
        stop_at = chaos.random.randrange(20)
        waits = itertools.count()

        def wait(_: float, stop_at: int = stop_at, waits: Iterator[int] = waits) -> None:
            number = next(waits)
            if number == stop_at:
                raise KeyboardInterrupt  # as Ctrl-C
            assert number < MANY_WAITS, "the download has no end"

        monkeypatch.setattr(time, "sleep", wait)
        done = fetch()
        assert "Traceback" not in done.err
        assert (cache / "tiny.pth").exists() == (done.code == 0)
        if done.code == 0:
            assert (cache / "tiny.pth").read_bytes() in chaos.versions
            assert sorted(path.name for path in cache.glob("tiny*")) == ["tiny.pth"]
            return
        assert done.code in (64, 130), done.err
        message = done.err.splitlines()[-1]
        assert message.startswith("virnucpro: "), done.err
