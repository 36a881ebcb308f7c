"""Fetch models with ``huggingface_hub``: repositories of the hub, and plain files from an address.

A first fetch records checksums and revision; a later one must bring the same bytes.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import virnucpro.models.store as store
from virnucpro.errors import ModelError
from virnucpro.formatting import printable
from virnucpro.models.catalogue import Model, files_to_fetch, hub_endpoint
from virnucpro.store.disk import Disk, explain_write_errors
from virnucpro.store.lock import locked

# What ``huggingface_hub`` raises beside the errors of its HTTP client: its Rust part the first one,
# and the others for an answer that is not that of a hub, which it does not check.
_NO_HUB = (RuntimeError, ValueError, TypeError, LookupError, AttributeError)
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ELOOP, errno.EACCES)


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
    if not update and (located := store.resolve_model(model)):
        try:
            return located[1], store.verify_model(model)
        except ModelError:
            model = located[0]
            if store.is_offline():
                raise
    if store.is_offline():
        raise ModelError(f"model {model.name} cannot be fetched; {store.manual_route(model)}")
    record = None if update else store.recorded(model.name)
    path = _fetch_file(model, record) if model.url else _fetch_hub(model, record)
    if record is None:
        store.record_model(model, path, address=model.address)
    return path, "fetched"


@contextmanager
def _download_errors(model: Model) -> Iterator[None]:
    """Turn what ``huggingface_hub`` raises into errors with advice.

    Without a terminal, its progress bars stay out of log files.
    """
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    client: Any = HfHubHTTPError.__bases__[0]  # the errors of the HTTP client of this version
    try:
        yield
    except (OSError, client, *_NO_HUB) as error:
        if getattr(error, "errno", None) in _UNWRITABLE:
            with explain_write_errors(store.download_path(model)):
                raise
        reason = printable(" ".join((str(error) or repr(error)).split()))[:300]
        raise ModelError(
            f"cannot fetch {model.name} from {model.address}: {reason}; check the network (and "
            f"HTTPS_PROXY), then run the command again; or {store.manual_route(model)}"
        ) from error


def _changed(model: Model, where: object) -> ModelError:
    return ModelError(
        f"{where}: checksum differs from the published or the recorded one; take a newer version "
        f"with: virnucpro models fetch --update {model.name}"
    )


def _fetch_file(model: Model, record: store.Recorded | None) -> Path:
    """Return the file, which has its name when it is complete."""
    from huggingface_hub.file_download import http_get

    target, disk = store.download_path(model), Disk()
    lock = target.with_name(f".{target.name}.lock")
    with locked(lock, f"the model {model.name}", wait=True):
        disk.sweep(target.parent, {target.name})
        with disk.create(target) as out:
            with _download_errors(model):
                http_get(model.url, cast("BinaryIO", out))
            out.flush()
            store.check_file(Path(out.stream.name))
            if record and record.files.get(model.file) != out.sha.hexdigest():
                raise _changed(model, model.address)
            target.unlink(missing_ok=True)  # damaged, or of another version
    return target


def _fetch_hub(model: Model, record: store.Recorded | None) -> Path:
    """Return the folder of the snapshot of the recorded commit, or else the newest one."""
    from huggingface_hub import HfApi, snapshot_download

    folder, hub = store.hub_folder(), HfApi(endpoint=hub_endpoint())
    revision = record.revision if record and record.revision != store.PUT_BY_HAND else None
    with _download_errors(model):
        info = hub.model_info(model.name, revision=revision)
        names = files_to_fetch(model, (sibling.rfilename for sibling in info.siblings or ()))
        if not names:
            raise ModelError(f"{model.address} lacks weights or {' or '.join(model.needs)}")
        if not re.fullmatch(r"[0-9a-f]{40}", str(info.sha)):  # a folder of the cache is named so
            raise ModelError(f"{model.address} names {info.sha!r}, which is not a commit")
        for force in (False, True):  # the library believes what is in its cache
            path = snapshot_download(
                model.name,
                revision=info.sha,
                cache_dir=folder,
                allow_patterns=names,
                endpoint=hub.endpoint,
                force_download=force,
            )
            compared = hub.verify_repo_checksums(model.name, revision=info.sha, cache_dir=folder)
            wrong = {each["path"] for each in compared.mismatches} | {*compared.missing_paths}
            files = {name: Path(path, name) for name in names}
            if wrong.isdisjoint(names) and not (record and record.changed(files)):
                return Path(path)
    raise _changed(model, path)
