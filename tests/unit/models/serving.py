"""A web server on this machine that can break off, refuse and redirect."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


def checkpoint(text: str = "weights", size: int = 100_000) -> bytes:
    """A file in the shape of a ``.pt``: a zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", text * (size // len(text)))
    return stream.getvalue()


class Site:
    """What the server serves, and what it was asked.

    ``files`` by path; ``cut`` breaks that many answers off after ``cut_after`` bytes; ``status``
    answers a path with that code; ``redirect`` sends a path elsewhere; ``ranges`` False ignores
    Range; ``asked`` collects (method, path, Range header).
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.json: dict[str, object] = {}
        self.status: dict[str, list[int]] = {}
        self.redirect: dict[str, str] = {}
        self.cut = 0
        self.cut_after = 30_000
        self.ranges = True
        self.commit = ""
        self.asked: list[tuple[str, str, str | None]] = []
        self.address = ""


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            site.asked.append((self.command, self.path, self.headers.get("Range")))
            if site.status.get(path):
                self._say(site.status[path].pop(0), b"no", body=body)
            elif path in site.redirect:
                self._say(302, b"", body=body, Location=site.redirect[path])
            elif path in site.json:
                text = json.dumps(site.json[path]).encode()
                self._say(200, text, body=body, **{"Content-Type": "application/json"})
            elif path in site.files:
                self._file(site.files[path], body=body)
            else:
                self._say(404, b"no", body=body)

        def _file(self, data: bytes, *, body: bool) -> None:
            tag = f'"{hashlib.sha256(data).hexdigest()}"'
            more = {"ETag": tag}
            if site.commit:
                more["X-Repo-Commit"] = site.commit
            wanted = self.headers.get("Range")
            same = self.headers.get("If-Range") in (None, tag)
            if not (wanted and site.ranges and same):
                return self._say(200, data, body=body, **more)
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            if start >= len(data):
                return self._say(416, b"", body=body, **{"Content-Range": f"bytes */{len(data)}"})
            more["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            return self._say(206, data[start:], body=body, **more)

        def _say(self, code: int, data: bytes, *, body: bool, **headers: str) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if not body:
                return
            if site.cut and code in (200, 206):
                site.cut -= 1
                self.wfile.write(data[: site.cut_after])
                self.close_connection = True
                return
            self.wfile.write(data)

    return Handler


@contextmanager
def serving() -> Iterator[Site]:
    """A server on a free port of 127.0.0.1."""
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    server.daemon_threads = True
    site.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()
