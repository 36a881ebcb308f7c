"""Download a file over https: continue where it broke off, check it, and move it into place.

``partial.py`` keeps the bytes received so far. Proxies and certificates follow the standard
variables, as ``urllib`` reads them.
"""

# Why this is not left to a library: huggingface_hub continues without comparing versions (it sends
# no If-Range and does not read Content-Range), writes whatever arrives, and is used for the hub
# only, where a checksum is published for each file. requests, httpx and urllib3 send requests as
# urllib does and leave all of this to their callers; pooch does not continue a file at all.

from __future__ import annotations

import http.client
import io
import ipaddress
import re
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from virnucpro.errors import DownloadError, OutputError, VirNucProError
from virnucpro.formatting import byte_size
from virnucpro.models.partial import STRONG_ETAG, PartialFile

if TYPE_CHECKING:
    from urllib.request import OpenerDirector, Request

DownloadProgress = Callable[[int, int], None]
"""A function that takes the bytes received so far and the size of the file in bytes."""

ATTEMPTS = 5  # without progress; waits 1, 2, 4, 8 s between them
TIMEOUT = 60  # seconds without a byte
# A server that sends a byte now and then never runs into the timeout: over so many seconds, so many
# bytes per second must come on average. A modem of 1995 had more.
PACE_SECONDS = 120.0
SLOWEST_PACE = 1000
BLOCK = 1 << 20
_TEMPORARY_ERRORS = {408, 425, 429, 500, 502, 503, 504}  # RFC 9110: temporary errors of the server
_LENGTH = re.compile(r"[0-9]{1,18}")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")


class _AttemptError(Exception):
    """The connection broke, or the server has a temporary error: another attempt may succeed."""


class _TooSlowError(_AttemptError):
    """The bytes came too slowly: another attempt may be faster, but this one was no progress."""


class DownloadRefusedError(DownloadError):
    """The server answers that it does not give this file."""


def download(
    address: str,
    target: Path,
    check: Callable[[Path], None],
    progress: DownloadProgress,
    *,
    size: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Fetch ``address`` to ``target``; return the strong ETag of the version, or an empty text.

    ``size`` is the expected size in bytes, where it is known. ``check`` is called with the complete
    file before it is moved to ``target``. If it raises an error, the file is removed, so that the
    next attempt starts over. ``clock`` returns seconds.

    Raises:
        DownloadError: no network, too slow a server, another size, an answer that makes no sense,
            or the server refuses (then it is a :class:`DownloadRefusedError`).
        OutputError: the disk is full or unwritable, or ``NAME.part`` is a symbolic link.
        VirNucProError: what ``check`` raises.
    """
    opener = _opener(address, clock)
    with PartialFile(target.with_name(f"{target.name}.part"), address, size) as part:
        failures = 0
        while not part.is_complete:
            starts, received = part.starts, part.received
            try:
                _receive(opener, part, progress)
            except _AttemptError as error:
                # Progress is what adds to an earlier attempt. A new start is none, or a server
                # whose file changes all the time would be asked for ever; nor is a trickle.
                grew = part.starts == starts and part.received > received
                grew = grew and not isinstance(error, _TooSlowError)
                failures = max(part.starts, 1) if grew else failures + 1
                if failures >= ATTEMPTS:
                    what = f"{part.received:,} bytes are" if part.can_continue else "nothing is"
                    raise DownloadError(
                        f"cannot fetch {address}: {error}; check the network (and HTTPS_PROXY), "
                        f"then run it again: {what} kept"
                    ) from error
                time.sleep(2.0 ** (failures - 1))
        try:
            check(part.path)
        except VirNucProError:
            part.discard()
            raise
        part.move_to(target)
        return part.etag


# --- one attempt -----------------------------------------------------------------------------


def _receive(opener: OpenerDirector, part: PartialFile, progress: DownloadProgress) -> None:
    """Send one request, and add what the server sends to the part."""
    from urllib.request import Request

    request = Request(part.address)
    if part.can_continue:
        request.add_header("Range", f"bytes={part.received}-")
        request.add_header("If-Range", part.etag)
    with _send(opener, request, part) as answer:
        if answer.status == 206 and part.can_continue:
            end = _end_of_continuation(answer, part)
        elif answer.status == 200:
            part.begin(*_version_of(answer, part))
            end = part.total
        else:
            reason = server_text(f"{answer.status} {answer.reason}")
            raise DownloadError(
                f"{part.address}: the server answers {reason}, which is not the file; try again "
                f"later"
            )
        free = shutil.disk_usage(part.path.parent).free
        if end - part.received > free:
            raise OutputError(
                f"cannot write {part.path}: {byte_size(end - part.received)} are still to come and "
                f"{byte_size(free)} are free; free some space, then run the command again"
            )
        progress(part.received, part.total)
        while block := _read(answer, min(BLOCK, end - part.received + 1)):
            if len(block) > end - part.received:
                part.discard()
                raise DownloadError(
                    f"{part.address}: the server sends more than the {end:,} bytes it promised; "
                    f"try again later"
                )
            part.append(block)
            progress(part.received, part.total)
    if not part.is_complete:
        raise _AttemptError(f"the connection ended after {part.received:,} of {part.total:,} bytes")


def _send(opener: OpenerDirector, request: Request, part: PartialFile) -> Any:
    """Return the open answer."""
    from urllib.error import HTTPError, URLError

    address = part.address
    try:
        return opener.open(request, timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        reason = server_text(f"{error.code} {error.reason}")
        if error.code == 416:  # there is no such part: the file is another one now
            part.discard()
        if error.code == 416 or error.code in _TEMPORARY_ERRORS:
            raise _AttemptError(f"the server answers {reason}") from None
        hint = "; the proxy wants a log-in: set HTTPS_PROXY" if error.code == 407 else ""
        raise DownloadRefusedError(
            f"cannot fetch {address}: the server answers {reason}{hint}"
        ) from None
    except URLError as error:
        cause = error.reason
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise DownloadError(
                f"cannot fetch {address}: {cause.verify_message}; if your network uses its "
                "own certificates, name their file in SSL_CERT_FILE"
            ) from error
        if "Tunnel connection failed" in str(cause):
            raise DownloadError(
                f"cannot fetch {address}: the proxy refuses ({cause}); check HTTPS_PROXY"
            ) from error
        raise _AttemptError(server_text(cause)) from error
    except (ValueError, http.client.InvalidURL) as error:
        raise DownloadError(
            f"cannot fetch {address}: the server redirects to an address that is not valid "
            f"({server_text(error)}); try again later"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise _AttemptError(server_text(error)) from error


class _PacedStream(io.RawIOBase):
    """The bytes that a server sends, its headers included; an error if they come too slowly."""

    def __init__(self, stream: io.RawIOBase, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._since, self._received = clock(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._stream.readinto(buffer)
        self._received += count or 0
        seconds = self._clock() - self._since
        if count and seconds >= PACE_SECONDS:
            pace = self._received / seconds
            if pace < SLOWEST_PACE:
                raise _TooSlowError(
                    f"{pace:,.1f} bytes per second came over {seconds:,.0f} s, and at least "
                    f"{SLOWEST_PACE:,} are needed: the server or the network is too slow"
                )
            self._since, self._received = self._clock(), 0
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def _read(answer: Any, most: int) -> bytes:
    try:
        block: bytes = answer.read1(most)
    except (OSError, http.client.HTTPException) as error:
        raise _AttemptError(server_text(error)) from error
    return block


def server_text(text: object) -> str:
    """Return what a server says as the part of a sentence: short, without control characters."""
    printable = "".join(sign if sign.isprintable() else " " for sign in str(text) or repr(text))
    return " ".join(printable.split())[:300]


def _version_of(answer: Any, part: PartialFile) -> tuple[str, int]:
    """Return the strong ETag (else an empty text) and the size of the file that the server sends.

    Raises:
        DownloadError: the size is unknown, malformed, or not the expected one.
    """
    lengths = ", ".join(dict.fromkeys(answer.headers.get_all("Content-Length", [])))
    if lengths and not _LENGTH.fullmatch(lengths):
        raise DownloadError(
            f"{part.address}: the server sends a malformed Content-Length ({lengths[:80]!r}); "
            f"try again later"
        )
    total = int(lengths) if lengths else part.size
    if total is None:
        raise DownloadError(
            f"{part.address}: the server does not say how many bytes the file has, so that half "
            f"of it could not be told from the whole; fetch it from somewhere else"
        )
    if part.size not in (None, total):
        raise DownloadError(
            f"{part.address} has {total:,} bytes instead of {part.size:,}: something between "
            f"here and there (a log-in page?) answers in its place"
        )
    etag = answer.headers.get("ETag", "")
    return (etag if STRONG_ETAG.fullmatch(etag) else ""), total


def _end_of_continuation(answer: Any, part: PartialFile) -> int:
    """Return where the bytes that the server sends end in the file.

    A server that ignores ``If-Range`` sends a part of another version. Then, and where it sends
    another part than asked for, everything is thrown away.
    """
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    start, last, total = map(int, match.groups()) if match else (0, 0, 0)
    etag = answer.headers.get("ETag", "")
    if (etag, start, total) != (part.etag, part.received, part.total) or not start <= last < total:
        part.discard()
        raise _AttemptError("the server sends a part of another version of the file")
    return last + 1


# --- addresses -------------------------------------------------------------------------------


def _opener(address: str, clock: Callable[[], float]) -> OpenerDirector:
    from urllib.request import (
        AbstractHTTPHandler,
        HTTPHandler,
        HTTPRedirectHandler,
        HTTPSHandler,
        build_opener,
    )

    plain = _check_https(address).scheme == "http"

    class Redirects(HTTPRedirectHandler):
        """Follow redirects, but never from https to another protocol."""

        def redirect_request(
            self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> Request | None:
            fp.close()  # the base class would read a body of any length
            _check_https(newurl, loopback=plain)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    class PacedAnswer(http.client.HTTPResponse):
        """An answer that is read through :class:`_PacedStream`."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.fp = io.BufferedReader(_PacedStream(self.fp.detach(), clock))

    class Paced(AbstractHTTPHandler):
        def do_open(self, http_class: Any, req: Request, **options: Any) -> Any:
            def connection(*arguments: Any, **more: Any) -> Any:
                made = http_class(*arguments, **more)
                made.response_class = PacedAnswer
                return made

            return super().do_open(connection, req, **options)

    class PacedHTTP(Paced, HTTPHandler):
        """http, for servers on this machine."""

    class PacedHTTPS(Paced, HTTPSHandler):
        """https."""

    return build_opener(Redirects, PacedHTTP, PacedHTTPS)


def _check_https(address: str, *, loopback: bool = True) -> SplitResult:
    """Split an address that is https, or http on this machine (a mirror, a test).

    Raises:
        DownloadError: it is neither, or not an address at all.
    """
    try:
        parts = urlsplit(address)
        valid = parts.port != 0 and (parts.hostname or parts.scheme != "https")
    except ValueError:
        valid = False
    if not valid:
        raise DownloadError(f"{address} is not a valid address: not fetched from there")
    if parts.scheme == "https" or (loopback and parts.scheme == "http" and _is_loopback(parts)):
        return parts
    raise DownloadError(f"{parts.scheme}://{parts.hostname} is not https: not fetched from there")


def _is_loopback(parts: SplitResult) -> bool:
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"
