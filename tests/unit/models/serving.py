"""A web server on this machine."""

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

    ``files`` are answers by path, as bytes or as documents; ``commit`` is what every answer names
    as that of the repository; ``asked`` collects the paths of all GET requests.
    """

    files: dict[str, object] = field(default_factory=dict)
    commit: str = ""
    asked: list[str] = field(default_factory=list)
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
            found = site.files.get(path, b"no")
            data = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(200 if path in site.files else 404)
            self.send_header("ETag", f'"{hash(data)}"')
            self.send_header("X-Repo-Commit", site.commit)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                site.asked.append(path)
                self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()
