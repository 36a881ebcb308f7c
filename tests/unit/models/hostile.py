"""A web server on this machine that sends exactly the bytes that a test makes up."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Request = dict[str, str]
"""The headers of a request by their lower-case names, and its ``method`` and ``path``."""
Answer = Callable[[Request], Iterable[bytes]]
"""A function that returns all that is sent, status line and headers included."""


def reply(status: str = "200 OK", body: bytes = b"", **headers: object) -> Iterable[bytes]:
    """Return an answer in pieces. Underscores in names stand for hyphens; None leaves one out.

    Content-Length is that of the body unless it is given.
    """
    headers = {"Content_Length": len(body), **headers}
    lines = [f"HTTP/1.1 {status}"] + [
        f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value is not None
    ]
    yield "\r\n".join([*lines, "", ""]).encode("latin-1")
    yield body


def first_byte(request: Request) -> int:
    """Return the position at which the requested part begins; 0 if the whole file is requested."""
    return int(request.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


def continuation(data: bytes, request: Request, **headers: object) -> Iterable[bytes]:
    """Return the requested part of ``data``, whatever If-Range says."""
    start = first_byte(request)
    span = f"bytes {start}-{len(data) - 1}/{len(data)}"
    return reply("206 Partial Content", data[start:], **{"Content_Range": span, **headers})


@dataclass
class HostileServer:
    """What the server answers, and what it was asked.

    Attributes:
        answers: one for each request in turn; the last one is repeated.
        requests: all requests so far.
        sent: the bytes sent so far. A client that stopped reading limits them.
        address: where it listens.
    """

    answers: list[Answer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    sent: int = 0
    address: str = ""


@contextmanager
def hostile_server() -> Iterator[HostileServer]:
    """Run the server on a free port of 127.0.0.1."""
    site = HostileServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline().decode().split()
            request = dict(zip(("method", "path"), line, strict=False))
            while header := self.rfile.readline().strip():
                name, _, value = header.decode("latin-1").partition(": ")
                request[name.lower()] = value
            site.requests.append(request)
            answer = site.answers[min(len(site.requests), len(site.answers)) - 1]
            with suppress(OSError):  # the client has closed the connection
                for piece in answer(request):
                    self.wfile.write(piece)
                    site.sent += len(piece)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
