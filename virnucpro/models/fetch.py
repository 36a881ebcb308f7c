"""Fetch models: plain files over https, resumably; hub models with ``huggingface_hub``.

A first fetch records checksums and revision; a later one must bring the same bytes.
"""

from __future__ import annotations

import errno
import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from virnucpro.errors import DownloadError, ModelError
from virnucpro.models.catalogue import HubModel, Model, WebFile, files_to_fetch
from virnucpro.models.download import DownloadProgress, download, server_text
from virnucpro.models.records import (
    ModelRecord,
    model_records_file,
    own_folder,
    read_model_records,
)
from virnucpro.models.store import (
    check_model_file,
    download_path,
    hub_folder,
    is_offline,
    manual_route,
    record_model,
    record_path,
    resolve_model,
    verify_model,
)
from virnucpro.store.disk import explain_download_errors, sha256_of
from virnucpro.store.lock import locked

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

# What the library raises where an answer is not that of a hub: it does not check them.
_NOT_A_HUB = (ValueError, TypeError, KeyError, AttributeError)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SLACK = 1 << 24  # bytes beyond twice the promised size: versions of the library count differently


@dataclass(frozen=True)
class FetchedModel:
    """Where a model is, and whether it was ``fetched``, ``verified`` or ``recorded``."""

    path: Path
    how: Literal["fetched", "verified", "recorded"]


def fetch_model(model: Model, progress: DownloadProgress, *, update: bool = False) -> FetchedModel:
    """Bring a model to this machine; one that is here is checked, a damaged one is replaced.

    ``update`` takes the newest version and records it in place of the old one.

    Raises:
        ModelError: no network, not found, offline, or other bytes than recorded (exit 64).
        OutputError: the disk is full or unwritable (exit 6).
    """
    lock = own_folder() / "locks" / f"{model.name.replace('/', '--')}.lock"
    with explain_download_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
    state = [lock.parent, model_records_file()]
    with locked(lock, wait=True, state=state):  # a second fetch waits, and finds the model there
        if not update and (located := resolve_model(model)):
            try:
                return FetchedModel(located[1], verify_model(model))
            except ModelError:
                model = located[0]
                if is_offline():
                    raise
        if is_offline():
            raise ModelError(f"model {model.name} cannot be fetched; {manual_route(model)}")
        record = None if update else read_model_records().get(model.name)
        if isinstance(model, HubModel):
            path, revision = _fetch_hub(model, record)
        else:
            path, revision = _fetch_file(model, record, progress)
        if record is None:
            record_model(model, path, address=model.address, revision=revision)
        else:
            record_path(model, path, record)
        return FetchedModel(path, "fetched")


def _fetch_file(
    model: WebFile, record: ModelRecord | None, progress: DownloadProgress
) -> tuple[Path, str]:
    """Return the path of the file, and the ETag of its version or an empty text."""
    known = record.files.get(model.file) if record else None
    target = download_path(model)
    sha256 = known.sha256 if known else model.sha256

    def check(part: Path) -> None:
        check_model_file(part)
        if sha256 is not None and sha256_of(part) != sha256:
            raise ModelError(
                f"{model.address}: checksum differs from the recorded one, so it is not used; if "
                f"its authors published a new version that you want: "
                f"virnucpro models fetch --update {model.name}"
            )

    try:
        return target, download(model.address, target, check, progress, size=model.bytes)
    except DownloadError as error:
        raise ModelError(f"{error}; or {manual_route(model)}") from error


# --- the hub ---------------------------------------------------------------------------------


def _fetch_hub(model: HubModel, record: ModelRecord | None) -> tuple[Path, str]:
    """Return the folder of the snapshot, and its commit."""
    from huggingface_hub import HfApi, snapshot_download

    with _hub_errors(model):
        info = HfApi(endpoint=model.endpoint).model_info(
            model.name, revision=record.revision or None if record else None, files_metadata=True
        )
        offered = {sibling.rfilename: sibling for sibling in info.siblings or ()}
        names = files_to_fetch(model, offered)
        if names is None:
            raise ModelError(f"{model.address} lacks weights or {' or '.join(model.needs)}")
        # The library makes a folder of this name, wherever it leads.
        if not (info.sha and _COMMIT.fullmatch(info.sha)):
            raise ModelError(f"{model.address} names {info.sha!r}, which is not a commit")
        promised = sum(offered[name].size or 0 for name in names)
        for force in (False, True):
            path = Path(
                snapshot_download(
                    model.name,
                    revision=info.sha,
                    cache_dir=hub_folder(),
                    allow_patterns=list(names),
                    endpoint=model.endpoint,
                    # The library believes what is in its cache; a damaged file needs force.
                    force_download=force,
                    tqdm_class=_bars(model, 2 * promised + _SLACK),
                )
            )
            bad = [name for name in names if _differs(path / name, offered[name], record)]
            if not bad:
                return path, info.sha
        raise ModelError(
            f"{path / bad[0]}: checksum differs from the published or the recorded one, even "
            f"after fetching it again; nothing is recorded; see {model.address}"
        )


def _bars(model: HubModel, most: int) -> Any:
    """Return the library's class of progress bars, with two changes.

    The library draws them into log files too; without a terminal, there are none. It also writes
    whatever a server sends, for ever; more than ``most`` bytes end the transfer.
    """
    bar: Any = import_module("huggingface_hub.utils.tqdm").tqdm  # not typed

    class Bars(bar):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            self.received = 0.0
            if not sys.stderr.isatty():
                options["disable"] = True
            super().__init__(*args, **options)

        def update(self, n: float | None = 1) -> Any:
            self.received += n or 0
            if self.received > most:
                raise ModelError(f"{model.address} sends far more bytes than it promised")
            return super().update(n)

    return Bars


def _differs(file: Path, published: RepoSibling, record: ModelRecord | None) -> bool:
    """Return whether a fetched file is not the published one, or not the recorded one."""
    if not file.is_file() or published.size not in (None, file.stat().st_size):
        return True
    recorded = record.files.get(file.name) if record else None
    expected = {recorded.sha256} if recorded else set()
    if published.lfs is not None:  # only large files are published with a SHA-256
        expected.add(published.lfs.sha256)
    elif published.blob_id is not None:  # small ones with the name that git gives their content
        data = file.read_bytes()
        head = f"blob {len(data)}\0".encode()
        if hashlib.sha1(head + data, usedforsecurity=False).hexdigest() != published.blob_id:
            return True
    return bool(expected) and expected != {sha256_of(file)}


@contextmanager
def _hub_errors(model: HubModel) -> Iterator[None]:
    """Turn what the library raises into errors with advice."""
    from huggingface_hub import errors

    # The library's HTTP client differs between its versions (requests, httpx); this is the base
    # class of that client's errors. Its Rust part (hf_xet) raises RuntimeError.
    client: Any = errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise ModelError(
            f"{model.address} no longer has the recorded revision; take the newest one with: "
            f"virnucpro models fetch --update {model.name}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"there is no public model at {model.address}: check its name") from error
    except (OSError, client, RuntimeError, *_NOT_A_HUB) as error:
        code = getattr(error, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
            with explain_download_errors(hub_folder()):
                raise
        reason = server_text(error)
        raise ModelError(
            f"cannot fetch {model.name} from {model.address}: {reason}; check the network (and "
            f"HTTPS_PROXY), then run it again: what has come stays; or {manual_route(model)}"
        ) from error
