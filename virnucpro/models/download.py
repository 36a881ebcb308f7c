"""Download a file over https: resume where it broke off, check it, and move it into place.

The bytes received so far are in ``NAME.part``. ``NAME.part.version`` holds the server's name for
that version (ETag or Last-Modified), so that parts of two versions are never joined. Proxies and
certificates follow the standard variables, as ``urllib`` reads them.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from virnucpro.errors import DownloadError, OutputError, VirNucProError
from virnucpro.formatting import byte_size
from virnucpro.store.disk import Disk, explain_download_errors

if TYPE_CHECKING:
    from urllib.request import OpenerDirector, Request

DownloadProgress = Callable[[int, int | None], None]
"""A function that takes the bytes received so far and, if the server says so, the size in bytes."""

ATTEMPTS = 5  # in a row without a new byte; waits 1, 2, 4, 8 s between them
TIMEOUT = 60  # seconds without a byte
BLOCK = 1 << 20
_TEMPORARY_ERRORS = {408, 425, 429, 500, 502, 503, 504}  # RFC 9110: temporary errors of the server


class _ConnectionError(Exception):
    """The connection broke, or the server has a temporary error: another attempt may succeed."""


class DownloadRefusedError(DownloadError):
    """The server answers that it does not give this file."""


def download(
    address: str,
    target: Path,
    check: Callable[[Path], None],
    progress: DownloadProgress,
    pause: Callable[[float], None],
    *,
    size: int | None = None,
) -> str:
    """Fetch ``address`` to ``target``; return the server's name for the version, or an empty text.

    ``size`` is the expected size in bytes, where it is known. ``check`` is called with the complete
    file before it is moved to ``target``. If it raises an error, the file is removed, so that the
    next attempt starts over.

    Raises:
        DownloadError: no network, another size, or the server refuses (then it is a
            :class:`DownloadRefusedError`).
        OutputError: the disk is full or unwritable.
        VirNucProError: what ``check`` raises.
    """
    part = target.with_name(target.name + ".part")
    version = part.with_name(part.name + ".version")
    opener = _opener(address)
    with explain_download_errors(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
    failures = 0
    while True:
        before = part.stat().st_size
        try:
            _transfer(opener, address, size, part, version, progress)
            break
        except _ConnectionError as error:
            failures = failures + 1 if part.stat().st_size <= before else 1
            if failures == ATTEMPTS:
                raise _gave_up_error(address, part, version, error) from error
            pause(2.0 ** (failures - 1))
        except DownloadRefusedError:
            if not part.stat().st_size:
                _remove_part(part, version)
            raise
    version_name = version.read_text() if version.exists() else ""
    try:
        received = part.stat().st_size
        if size is not None and received != size:
            raise DownloadError(f"{address}: {received:,} bytes came instead of {size:,}")
        check(part)
    except VirNucProError:
        _remove_part(part, version)
        raise
    with explain_download_errors(target):
        part.replace(target)
        version.unlink(missing_ok=True)
        Disk().sync_folder(target.parent)
    return version_name


def _remove_part(part: Path, version: Path) -> None:
    part.unlink()
    version.unlink(missing_ok=True)


def _transfer(
    opener: OpenerDirector,
    address: str,
    size: int | None,
    part: Path,
    version: Path,
    progress: DownloadProgress,
) -> None:
    """Send one request, and receive the answer to the end of the file."""
    from urllib.request import Request

    have = part.stat().st_size
    request = Request(address)
    if have:
        request.add_header("Range", f"bytes={have}-")
        if version.exists():
            request.add_header("If-Range", version.read_text())
    answer = _send(opener, request, address, part)
    if answer is None:
        return
    with answer:
        start = have if answer.status == 206 else 0
        total = _total_size(answer, start, address, size)
        with explain_download_errors(part):
            version.write_text(_version_of(answer.headers))
            if not version.read_text():
                version.unlink()
        _check_free_space(part, total, start)
        _receive(answer, part, start, total, progress)


def _send(opener: OpenerDirector, request: Request, address: str, part: Path) -> Any:
    """Return the open answer; None where the server has nothing left to send."""
    from urllib.error import HTTPError, URLError

    try:
        return opener.open(request, timeout=TIMEOUT)
    except HTTPError as error:
        with error:
            if error.code == 416:  # nothing from there on: complete, or another, shorter file
                if error.headers.get("Content-Range") == f"bytes */{part.stat().st_size}":
                    return None
                part.write_bytes(b"")
                raise _ConnectionError("the file at the address has changed") from None
            if error.code in _TEMPORARY_ERRORS:
                raise _ConnectionError(f"the server answers {error.code} {error.reason}") from None
            raise _refused_error(address, error.code, str(error.reason)) from None
    except URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise DownloadError(
                f"cannot fetch {address}: {reason.verify_message}; if your network uses its "
                "own certificates, name their file in SSL_CERT_FILE"
            ) from error
        if "Tunnel connection failed" in str(reason):
            raise DownloadError(
                f"cannot fetch {address}: the proxy refuses ({reason}); check HTTPS_PROXY"
            ) from error
        raise _ConnectionError(str(reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise _ConnectionError(str(error) or repr(error)) from error


def _total_size(answer: Any, start: int, address: str, size: int | None) -> int | None:
    """Return the size of the whole file, checked against the expected size."""
    length = answer.headers.get("Content-Length")
    total = start + int(length) if length is not None and length.isdigit() else None
    if answer.status == 206:
        begins = f"bytes {start}-"
        if not str(answer.headers.get("Content-Range", "")).startswith(begins):
            raise DownloadError(f"{address}: the server sends another part than asked for")
    if total is not None and size is not None and total != size:
        raise DownloadError(
            f"{address} has {total:,} bytes instead of {size:,}: something between "
            f"here and there (a log-in page?) answers in its place"
        )
    return total


def _version_of(headers: Any) -> str:
    """Return what ``If-Range`` accepts: a strong ETag, else the date; see RFC 9110, 13.1.5."""
    tag = headers.get("ETag") or ""
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified") or ""


def _check_free_space(part: Path, total: int | None, start: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise OutputError(
            f"cannot write {part}: {byte_size(total - start)} are still to come and "
            f"{byte_size(free)} are free; free some space, then run the command again"
        )


def _receive(
    answer: Any, part: Path, start: int, total: int | None, progress: DownloadProgress
) -> None:
    with explain_download_errors(part), part.open("r+b") as stream:
        stream.truncate(start)
        stream.seek(start)
        have = start
        progress(have, total)
        while block := _read(answer):
            stream.write(block)
            have += len(block)
            progress(have, total)
        stream.flush()
        os.fsync(stream.fileno())
    if total is not None and have < total:
        raise _ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _read(answer: Any) -> bytes:
    try:
        block: bytes = answer.read1(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _ConnectionError(str(error) or repr(error)) from error
    return block


# --- errors and redirects --------------------------------------------------------------------


def _refused_error(address: str, code: int, reason: str) -> DownloadRefusedError:
    hint = "; the proxy wants a log-in: set HTTPS_PROXY accordingly" if code == 407 else ""
    return DownloadRefusedError(f"cannot fetch {address}: the server answers {code} {reason}{hint}")


def _gave_up_error(
    address: str, part: Path, version: Path, error: _ConnectionError
) -> DownloadError:
    kept = part.stat().st_size
    if not kept:
        _remove_part(part, version)
    what = f"{kept:,} bytes are kept" if kept else "nothing has come yet"
    return DownloadError(
        f"cannot fetch {address}: {error}; check the network (and HTTPS_PROXY), then run "
        f"it again: {what}"
    )


def _opener(address: str) -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, build_opener

    _check_https(address)
    plain = urlsplit(address).scheme == "http"

    class Redirects(HTTPRedirectHandler):
        """Follow redirects, but never from https to another protocol."""

        def redirect_request(
            self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> Request | None:
            _check_https(newurl, loopback=plain)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    return build_opener(Redirects)


def _check_https(address: str, *, loopback: bool = True) -> None:
    """Raise an error unless the address is https, or http on this machine (a mirror, a test)."""
    parts = urlsplit(address)
    if parts.scheme == "https" or (loopback and parts.scheme == "http" and _is_loopback(parts)):
        return
    raise DownloadError(f"{parts.scheme}://{parts.hostname} is not https: not fetched from there")


def _is_loopback(parts: Any) -> bool:
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return bool(parts.hostname == "localhost")
