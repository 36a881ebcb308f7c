"""A web server on this machine that can break off, refuse and redirect."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


def checkpoint(text: str = "weights", size: int = 100_000) -> bytes:
    """A file in the shape of a ``.pt``: a zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", text * (size // len(text)))
    return stream.getvalue()


@dataclass
class Site:
    """What the server serves, and what it was asked.

    ``files`` are answers by path, as bytes or as documents; ``cut`` breaks that many of them off
    after 30,000 bytes; ``status`` answers every request for a file with that code; ``asked``
    collects the paths of all GET requests, and ``ranges`` their headers of that name.
    """

    files: dict[str, object] = field(default_factory=dict)
    cut: int = 0
    status: int = 0
    commit: str = ""
    asked: list[str] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving() -> Iterator[Site]:
    """A server on a free port of 127.0.0.1."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            found = site.files.get(path)
            code = site.status or (200 if found is not None else 404)
            found = found if code == 200 else b"no"
            data = found if isinstance(found, bytes) else json.dumps(found).encode()
            wanted = self.headers.get("Range")
            if self.command == "GET":
                site.asked.append(path)
                site.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
            if code == 200 and wanted:
                code = 206 if start < len(data) else 416
            self.send_response(code)
            self.send_header("ETag", f'"{hash(data)}"')
            self.send_header("X-Repo-Commit", site.commit)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(data[start:])))
            span = "*" if code == 416 else f"{start}-{len(data) - 1}"
            self.send_header("Content-Range", f"bytes {span}/{len(data)}")
            self.end_headers()
            if self.command == "GET":
                site.cut -= 1
                self.wfile.write(data[start : start + 30_000] if site.cut >= 0 else data[start:])

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()
