"""Fetch models from the hub or from an address.

A first fetch records checksums and revision; a later one must bring the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from virnucpro.errors import DownloadError, ModelError
from virnucpro.models.catalogue import HubModel, Model, WebFile, files_to_fetch
from virnucpro.models.download import download, download_errors
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
    with explain_download_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
    state = [lock.parent, model_records_file()]
    with locked(lock, wait=True, state=state):  # a second fetch waits, and finds the model there
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
        try:
            if isinstance(model, HubModel):
                path = _fetch_hub(model, record)
            else:
                path = _fetch_file(model, record)
        except DownloadError as error:
            raise ModelError(f"{error}; or {manual_route(model)}") from error
        if record is None:
            record_model(model, path, address=model.address)
        else:
            record_path(model, path, record)
        return path, "fetched"


def _fetch_file(model: WebFile, record: ModelRecord | None) -> Path:
    known = record.files.get(model.file) if record else None
    target = download_path(model)

    def check(part: Path) -> None:
        check_model_file(part)
        if known is not None and sha256_of(part) != known.sha256:
            raise ModelError(
                f"{model.address}: checksum differs from the recorded one, so it is not used; if "
                f"its authors published a new version that you want: "
                f"virnucpro models fetch --update {model.name}"
            )

    download(model.address, target, check, size=model.bytes)
    return target


def _fetch_hub(model: HubModel, record: ModelRecord | None) -> Path:
    """Return the folder of the snapshot."""
    from huggingface_hub import HfApi, errors, snapshot_download

    revision = record.revision or None if record else None
    with download_errors(f"{model.name} from {model.address}", hub_folder()):
        try:
            info = HfApi(endpoint=model.endpoint).model_info(
                model.name, revision=revision, files_metadata=True
            )
        except errors.RevisionNotFoundError as error:
            raise ModelError(
                f"{model.address} no longer has the recorded revision; take the newest one with: "
                f"virnucpro models fetch --update {model.name}"
            ) from error
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
        f"{Path(path, bad[0])}: checksum differs from the published or the recorded one, even "
        f"after fetching it again; nothing is recorded; see {model.address}"
    )


def _differs(file: Path, published: RepoSibling, record: ModelRecord | None) -> bool:
    """Return whether a fetched file is not the published one, or not the recorded one."""
    recorded = record.files.get(file.name) if record else None
    if not file.is_file() or (recorded and sha256_of(file) != recorded.sha256):
        return True
    if published.lfs is not None:  # only large files are published with a SHA-256
        return sha256_of(file) != published.lfs.sha256
    data = file.read_bytes()  # small ones with the name that git gives their content
    name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    return published.blob_id not in (None, name)
