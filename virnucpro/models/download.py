"""Download a plain file with ``huggingface_hub``, which continues where a connection broke off."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from virnucpro.errors import DownloadError, VirNucProError
from virnucpro.store.disk import Disk, explain_download_errors, open_without_links

# A smaller part is not continued. In the larger files, which are those of ESM-2 and of RefSeq, CRCs
# or an MD5 find out where a part belongs to another version.
WORTH_CONTINUING = 1 << 26


class DownloadRefusedError(DownloadError):
    """The server answers that it does not give this file."""


def download(
    address: str, target: Path, check: Callable[[Path], None], *, size: int | None = None
) -> None:
    """Fetch ``address`` to ``target``, and continue what an earlier command left of it.

    ``size`` is the expected size in bytes, where it is known. ``check`` is called with the complete
    file before it is moved to ``target``. If it raises an error, the file is removed; one that was
    continued is fetched once more from its first byte.

    Raises:
        DownloadError: no network, or another size; a :class:`DownloadRefusedError`, if the server
            refuses.
        OutputError: the disk is full or unwritable, or ``NAME.part`` is a symbolic link.
        VirNucProError: what ``check`` raises.
    """
    if not address.startswith(("https://", "http://127.0.0.1", "http://localhost")):
        raise DownloadError(f"{address} is not https: not fetched from there")
    part = target.with_name(f"{target.name}.part")
    with explain_download_errors(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        if part.is_file() and not part.is_symlink() and part.stat().st_size < WORTH_CONTINUING:
            part.unlink()
    begun = _receive(address, part, size)
    try:
        check(part)
    except VirNucProError:
        part.unlink()
        if not begun:
            raise
        _receive(address, part, size)
        check(part)
    with explain_download_errors(target):
        Disk().move(part, target)


def _receive(address: str, part: Path, size: int | None) -> int:
    """Add what is missing to ``part``, and return how many bytes it had."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get

    with explain_download_errors(part):
        stream = open(part, "ab", opener=open_without_links)  # noqa: SIM115
    with stream, download_errors(address, part):
        begun = stream.tell()
        try:
            http_get(address, stream, resume_size=begun, expected_size=size)
        except HfHubHTTPError as error:
            status = error.response.status_code
            total = error.response.headers.get("Content-Range", "").rpartition("/")[2]
            if status == 416 and total != str(begun):  # the part is of another, longer version
                stream.truncate(0)
                http_get(address, stream, expected_size=size)
            elif status != 416:
                raise DownloadRefusedError(
                    f"cannot fetch {address}: the server answers {status}"
                ) from error
        os.fsync(stream.fileno())
    return begun


@contextmanager
def download_errors(what: str, path: Path) -> Iterator[None]:
    """Turn what ``huggingface_hub`` raises into errors with advice; ``path`` is what it writes.

    Without a terminal, its progress bars stay out of log files.
    """
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()

    # The HTTP client differs between versions of the library (requests, httpx); this is the base
    # class of that client's errors. Its Rust part (hf_xet) raises RuntimeError, and an answer that
    # is not that of a hub is not checked, and raises the others.
    client: Any = HfHubHTTPError.__bases__[0]
    try:
        yield
    except (OSError, client, RuntimeError, ValueError, TypeError, LookupError, AttributeError) as e:
        code = getattr(e, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
            with explain_download_errors(path):
                raise
        signs = str(e) or repr(e)
        reason = " ".join("".join(s if s.isprintable() else " " for s in signs).split())[:300]
        raise DownloadError(
            f"cannot fetch {what}: {reason}; check the network (and HTTPS_PROXY), then run the "
            f"command again, which continues"
        ) from e
