"""Fetch models: plain files over https, resumably; hub models with ``huggingface_hub``.

A first fetch records checksums and revision; a later one must bring the same bytes.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from virnucpro.errors import DownloadError, ModelError
from virnucpro.models.catalogue import HubModel, Model, WebFile, files_to_fetch
from virnucpro.models.download import DownloadProgress, download
from virnucpro.models.records import ModelRecord, own_folder, read_model_records, save_model_record
from virnucpro.models.store import (
    check_model_file,
    download_path,
    hub_folder,
    is_offline,
    manual_route,
    record_model,
    resolve_model,
    verify_model,
)
from virnucpro.store.disk import explain_download_errors, sha256_of
from virnucpro.store.lock import locked

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling


@dataclass(frozen=True)
class FetchedModel:
    """Where a model is, and whether it was ``fetched``, ``verified`` or ``recorded``."""

    path: Path
    how: Literal["fetched", "verified", "recorded"]


def fetch_model(
    model: Model,
    progress: DownloadProgress,
    *,
    update: bool = False,
) -> FetchedModel:
    """Bring a model to this machine; one that is here is checked, a damaged one is replaced.

    ``update`` takes the newest version and records it in place of the old one.

    Raises:
        ModelError: no network, not found, offline, or other bytes than recorded (exit 64).
        OutputError: the disk is full or unwritable (exit 6).
    """
    lock = own_folder() / "locks" / f"{model.name.replace('/', '--')}.lock"
    with explain_download_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock, wait=True):  # a second fetch waits, and then finds the model there
        if not update and (located := resolve_model(model)):
            try:
                return FetchedModel(located[1], verify_model(model))
            except ModelError:
                model = located[0]
                if is_offline():
                    raise
        if is_offline():
            raise ModelError(f"model {model.name} cannot be fetched; {manual_route(model)}")
        if isinstance(model, HubModel):
            return _fetch_hub(model, update)
        return _fetch_file(model, progress, update)


def _fetch_file(model: WebFile, progress: DownloadProgress, update: bool) -> FetchedModel:
    record = None if update else read_model_records().get(model.name)
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
        version = download(model.address, target, check, progress, size=model.bytes)
    except DownloadError as error:
        raise ModelError(f"{error}; or {manual_route(model)}") from error
    if record is None:
        record_model(model, target, address=model.address, revision=version)
    elif record.path != str(target.absolute()):
        save_model_record(model.name, replace(record, path=str(target.absolute())))
    return FetchedModel(target, "fetched")


# --- the hub ---------------------------------------------------------------------------------


def _fetch_hub(model: HubModel, update: bool) -> FetchedModel:
    from huggingface_hub import HfApi, snapshot_download

    record = None if update else read_model_records().get(model.name)
    bars = None if sys.stderr.isatty() else _no_bars()
    with _hub_errors(model):
        info = HfApi(endpoint=model.endpoint).model_info(
            model.name, revision=record.revision or None if record else None, files_metadata=True
        )
        offered = {sibling.rfilename: sibling for sibling in info.siblings or ()}
        names = files_to_fetch(model, offered)
        if names is None or info.sha is None:
            raise ModelError(f"{model.address} lacks weights or {' or '.join(model.needs)}")
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
                    tqdm_class=bars,
                )
            )
            bad = [name for name in names if _differs(path / name, offered[name], record)]
            if not bad:
                break
        else:
            raise ModelError(
                f"{path / bad[0]}: checksum differs from the published or the recorded one, even "
                f"after fetching it again; nothing is recorded; see {model.address}"
            )
    if record is None:
        record_model(model, path, address=model.address, revision=info.sha)
    elif record.path != str(path.absolute()):
        save_model_record(model.name, replace(record, path=str(path.absolute())))
    return FetchedModel(path, "fetched")


def _no_bars() -> Any:
    """The library draws its progress bars into log files too; without a terminal, none."""
    bar: Any = import_module("huggingface_hub.utils.tqdm").tqdm  # not typed

    class NoBars(bar):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

    return NoBars


def _differs(file: Path, published: RepoSibling, record: ModelRecord | None) -> bool:
    """Whether a fetched file is not the published one, or not the recorded one."""
    if not file.is_file() or published.size not in (None, file.stat().st_size):
        return True
    recorded = record.files.get(file.name) if record else None
    expected = {recorded.sha256} if recorded else set()
    if published.lfs is not None:  # large files alone are published with a SHA-256
        expected.add(published.lfs.sha256)
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
    except (OSError, client, RuntimeError, errors.HFValidationError) as error:
        code = getattr(error, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
            with explain_download_errors(hub_folder()):
                raise
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise ModelError(
            f"cannot fetch {model.name} from {model.address}: {reason}; check the network (and "
            f"HTTPS_PROXY), then run it again: what has come stays; or {manual_route(model)}"
        ) from error
