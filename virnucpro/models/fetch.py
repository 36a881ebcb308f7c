"""Fetch models with ``huggingface_hub``: repositories of the hub, and plain files from an address.

A first fetch records checksums and revision; a later one must bring the same bytes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from virnucpro.errors import ModelError
from virnucpro.models.catalogue import HubModel, Model, WebFile, files_to_fetch
from virnucpro.models.store import (
    ModelRecord,
    check_model_file,
    download_path,
    hub_folder,
    is_offline,
    manual_route,
    own_folder,
    read_model_records,
    record_model,
    resolve_model,
    verify_model,
)
from virnucpro.store.disk import Disk, explain_write_errors, open_without_links
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

# A smaller part of a file is not continued. The larger files are those of ESM-2, in which CRCs find
# out where a part belongs to another version.
WORTH_CONTINUING = 1 << 26
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch_model(
    model: Model, *, update: bool = False
) -> tuple[Path, Literal["fetched", "verified", "recorded"]]:
    """Bring a model to this machine; one that is here is checked, a damaged one is replaced.

    ``update`` takes the newest version and records it in place of the old one. Returns where it
    is, and what was done.

    Raises:
        ModelError: no network, not found, offline, or other bytes than recorded (exit 64).
        OutputError: the disk is full or unwritable (exit 6).
    """
    lock = own_folder() / "locks" / f"{model.name.replace('/', '--')}.lock"
    with locked(lock, wait=True):  # a second fetch waits, and finds the model there
        if not update and (located := resolve_model(model)):
            try:
                return located[1], verify_model(model)
            except ModelError:
                model = located[0]
                if is_offline():
                    raise
        if is_offline():
            raise ModelError(f"model {model.name} cannot be fetched; {manual_route(model)}")
        record = None if update else read_model_records().get(model.name)
        if isinstance(model, HubModel):
            path = _fetch_hub(model, record)
        else:
            path = _fetch_file(model, record)
        if record is None:
            record_model(model, path, address=model.address)
        return path, "fetched"


@contextmanager
def _download_errors(model: Model, path: Path) -> Iterator[None]:
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
        full = errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ELOOP
        if isinstance(e, PermissionError) or getattr(e, "errno", None) in full:
            with explain_write_errors(path):
                raise
        signs = str(e) or repr(e)
        reason = " ".join("".join(s if s.isprintable() else " " for s in signs).split())[:300]
        raise ModelError(
            f"cannot fetch {model.name} from {model.address}: {reason}; check the network (and "
            f"HTTPS_PROXY), then run the command again, which continues; or {manual_route(model)}"
        ) from e


# --- plain files -----------------------------------------------------------------------------


def _fetch_file(model: WebFile, record: ModelRecord | None) -> Path:
    """Return the file, which continues what an earlier command left in ``NAME.part``."""
    known = record.files.get(model.file) if record else None
    target = download_path(model)
    part = target.with_name(f"{target.name}.part")
    with explain_write_errors(part):
        part.parent.mkdir(parents=True, exist_ok=True)
    begun = _receive(model, part)
    try:
        check_model_file(part)
        if known is not None and hashed(part).sha256 != known.sha256:
            raise ModelError(
                f"{model.address}: checksum differs from the recorded one; take a newer version "
                f"with: virnucpro models fetch --update {model.name}"
            )
    except ModelError:
        part.unlink()
        if not begun:
            raise
        return _fetch_file(model, record)  # the part was of another version
    Disk().move(part, target)
    return target


def _receive(model: WebFile, part: Path) -> int:
    """Add what is missing to ``part``, and return how many bytes it had."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get

    with _download_errors(model, part), open(part, "ab", opener=open_without_links) as stream:
        if stream.tell() < WORTH_CONTINUING:
            stream.truncate(0)
        begun = os.fstat(stream.fileno()).st_size
        try:
            http_get(model.address, stream, resume_size=begun, expected_size=model.bytes)
        except HfHubHTTPError as error:
            if error.response.status_code != 416:
                raise
            # There are no more bytes: either all of them are here, or the part is of another file.
            if error.response.headers.get("Content-Range") != f"bytes */{begun}":
                stream.truncate(0)
                http_get(model.address, stream, expected_size=model.bytes)
        os.fsync(stream.fileno())
    return begun


# --- the hub ---------------------------------------------------------------------------------


def _fetch_hub(model: HubModel, record: ModelRecord | None) -> Path:
    """Return the folder of the snapshot."""
    from huggingface_hub import HfApi, snapshot_download

    revision = record.revision or None if record else None
    with _download_errors(model, hub_folder()):
        info = HfApi(endpoint=model.endpoint).model_info(
            model.name, revision=revision, files_metadata=True
        )
        offered = {sibling.rfilename: sibling for sibling in info.siblings or ()}
        names = files_to_fetch(model, offered)
        if names is None:
            raise ModelError(f"{model.address} lacks weights or {' or '.join(model.needs)}")
        # The library makes a folder of this name, wherever it leads.
        if not (info.sha and _COMMIT.fullmatch(info.sha)):
            raise ModelError(f"{model.address} names {info.sha!r}, which is not a commit")
        for force in (False, True):  # the library believes what is in its cache
            path = snapshot_download(
                model.name,
                revision=info.sha,
                cache_dir=hub_folder(),
                allow_patterns=list(names),
                endpoint=model.endpoint,
                force_download=force,
            )
            bad = [name for name in names if _differs(Path(path, name), offered[name], record)]
            if not bad:
                return Path(path)
    raise ModelError(
        f"{Path(path, bad[0])}: checksum differs from the published or the recorded one; take a "
        f"newer version with: virnucpro models fetch --update {model.name}"
    )


def _differs(file: Path, published: RepoSibling, record: ModelRecord | None) -> bool:
    """Return whether a fetched file is not the published one, or not the recorded one."""
    recorded = record.files.get(file.name) if record else None
    if not file.is_file() or (recorded and hashed(file).sha256 != recorded.sha256):
        return True
    if published.lfs is not None:  # only large files are published with a SHA-256
        return hashed(file).sha256 != published.lfs.sha256
    data = file.read_bytes()  # small ones with the name that git gives their content
    name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    return published.blob_id not in (None, name)
