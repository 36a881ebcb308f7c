"""Where models are, and whether they are unchanged since they were first seen.

They are looked up where users already have them: torch hub's folder, the Hugging Face cache, and
``~/.cache/virnucpro/models``. Folders follow the standard variables (``TORCH_HOME``, ``HF_HOME``,
``HF_HUB_CACHE``, ``XDG_CACHE_HOME``), read without importing the libraries of those.
"""

from __future__ import annotations

import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from virnucpro.errors import ModelError
from virnucpro.models.catalogue import Model, files_to_fetch, model_named
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed

PUT_BY_HAND = "-"  # stands for the commit of what is not from the hub


class Recorded(NamedTuple):
    """A model as it was first seen: its commit on the hub, and SHA-256 (hex) by file."""

    revision: str
    files: dict[str, str]

    def changed(self, files: Mapping[str, Path]) -> str:
        """Return the name of one that is missing or has another checksum; empty where all fit."""
        for name in sorted(files.keys() | self.files.keys()):
            file = files.get(name)
            if not (file and file.is_file() and hashed(file).sha256 == self.files.get(name)):
                return name
        return ""


def own_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/virnucpro/models`` or ``~/.cache/virnucpro/models``."""
    return _cache() / "virnucpro" / "models"


def hub_folder() -> Path:
    """Return the folder of the Hugging Face cache."""
    home = Path(os.environ.get("HF_HOME") or _cache() / "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(named or home / "hub").expanduser()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def checksum_folder() -> Path:
    """Return the folder of all checksums: a file ``NAME.sha256`` for each model."""
    return own_folder() / "checksums"


def recorded_names() -> list[str]:
    """Return the names of all models that have checksums, sorted."""
    files = checksum_folder().rglob("*.sha256")
    return sorted(str(f.relative_to(checksum_folder())).removesuffix(".sha256") for f in files)


def recorded(name: str) -> Recorded | None:
    """Return the checksums of a model, if there are any. ModelError: their file is damaged."""
    path = checksum_folder() / f"{name}.sha256"
    try:
        head, *rows = (line.split() for line in path.read_text().splitlines())
        return Recorded(head[1], {file: digest for digest, file in rows})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, IndexError) as error:
        raise ModelError(f"{path} is damaged: {error}; remove it, and verify again") from error


def is_offline() -> bool:
    """Return whether the standard switches forbid the network."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in ("1", "ON", "YES", "TRUE")  # as huggingface_hub reads its switches


def download_path(model: Model) -> Path:
    """Return where a fetch puts the model (on the hub: the folder of its snapshots)."""
    if not model.url:
        return hub_folder() / f"models--{model.name.replace('/', '--')}" / "snapshots"
    if not model.twin:
        return own_folder() / model.file
    # The folder in which torch hub, and so fair-esm, keeps checkpoints.
    home = Path(os.environ.get("TORCH_HOME") or _cache() / "torch").expanduser()
    return home / "hub" / "checkpoints" / model.file


def resolve_model(model: Model) -> tuple[Model, Path] | None:
    """Return the model and its complete file or folder, or else those of its twin on the hub."""
    places = [download_path(model)] if model.url else _snapshots(model)
    for path in (*places, own_folder() / (model.file or model.name)):
        if model_files(model, path):
            return model, path
    return resolve_model(model_named(model.twin)) if model.twin else None


def _snapshots(model: Model) -> list[Path]:
    """Snapshots in the cache: the recorded revision, then ``main``, then the others by name.

    Times of change do not decide, because they differ between copies of a cache.
    """
    folder, record = download_path(model), recorded(model.name)
    main = folder.parent / "refs" / "main"
    named = main.read_text(errors="replace").strip() if main.is_file() else ""
    first = (record.revision if record else "", named)
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(paths, key=lambda path: (*(path.name != name for name in first), path.name))


def find_model(name: str) -> Path:
    """Return the file or folder of the model of that name. Raises as :func:`require_model`."""
    return require_model(model_named(name))[1]


def require_model(model: Model) -> tuple[Model, Path]:
    """Return the model and its path, or those of its twin on the hub.

    Raises:
        ModelError: neither is on this machine; says where they were looked for, and what to do.
    """
    if located := resolve_model(model):
        return located
    text = (
        f"model {model.name} is not on this machine (looked for {download_path(model)}); "
        f"fetch it with: virnucpro models fetch {model.name}"
    )
    raise ModelError(f"{text}; {manual_route(model)}" if is_offline() else text)


def manual_route(model: Model) -> str:
    """Return instructions for a machine without internet."""
    reason = "HF_HUB_OFFLINE is set: " if is_offline() else ""
    place = own_folder() / (model.file or model.name)
    return f"{reason}fetch {model.address} elsewhere, and put it at {place} here"


def model_files(model: Model, path: Path) -> dict[str, Path]:
    """Return the needed files by name; none where the model is not complete there."""
    if model.url:
        return {path.name: path} if path.is_file() else {}
    # A link into the cache whose target is gone is not a file: a download was interrupted.
    present = [file.name for file in path.iterdir() if file.is_file()] if path.is_dir() else []
    files = {name: path / name for name in files_to_fetch(model, present)}
    indexes = [file for name, file in files.items() if name.endswith(".index.json")]
    return files if all(set(shards_of(index)) <= files.keys() for index in indexes) else {}


def shards_of(index: Path) -> list[str]:
    """Return the names of the files that an index of weights lists, sorted."""
    try:
        return sorted({*map(str, parse_json(index.read_bytes())["weight_map"].values())})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is damaged: {error!r}; fetch the model again") from error


def record_model(model: Model, path: Path, *, address: str = "") -> None:
    """Hash the files of a model and record them, in place of an older record.

    Raises:
        ModelError: a file is plainly something else (see :func:`check_file`).
        OutputError: the record cannot be written.
    """
    files = model_files(model, path)
    for file in files.values():
        check_file(file)
    # The cache names a snapshot after its commit.
    revision = path.name if path.parent == download_path(model) else PUT_BY_HAND
    rows = [f"# {revision} {time.strftime('%Y-%m-%d', time.gmtime())} {address}".rstrip()]
    rows += [f"{hashed(file).sha256}  {name}" for name, file in files.items()]
    text = "\n".join(rows) + "\n"
    Disk().save(checksum_folder() / f"{model.name}.sha256", text.encode())


def verify_model(model: Model) -> Literal["verified", "recorded"]:
    """Compare a model on disk with its record; one that was put there by hand gets a record.

    Raises:
        ModelError: it is missing, or differs from its record.
    """
    model, path = require_model(model)
    record = recorded(model.name)
    if record is None:
        record_model(model, path)
        return "recorded"
    if changed := record.changed(model_files(model, path)):
        raise _differs(model.name, path if model.url else path / changed)
    return "verified"


def check_digest(file: Path, sha256: str) -> None:
    """Compare a digest that was computed anyway with the record, if there is one.

    Raises:
        ModelError: the checksum differs.
    """
    # Absolute, not resolved: a file of the hub's cache is a link to a blob of another name.
    absolute = file.absolute()
    if Path(__file__).parents[1] in absolute.parents:
        return  # it comes with this package
    for name in recorded_names():
        record = recorded(name)
        if record and record.files.get(absolute.name, sha256) != sha256:
            _, path = resolve_model(model_named(name)) or (None, None)
            if path and absolute in (path.absolute(), path.absolute() / absolute.name):
                raise _differs(name, file)


def _differs(name: str, file: Path) -> ModelError:
    return ModelError(
        f"{file}: checksum differs from the recorded one: replace it with: "
        f"virnucpro models fetch {name} (or keep it: virnucpro models verify --renew {name})"
    )


def check_file(path: Path) -> None:
    """Raise ModelError where ``path`` is missing, unreadable, or plainly not a file of a model.

    That is an empty file, a git-LFS pointer, a web page, or a zip archive (as ``.pt`` files are)
    that is cut short.
    """
    # https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
    pointer = b"version https://git-lfs.github.com/spec/"
    try:
        with path.open("rb") as file:
            start = file.read(len(pointer))
    except OSError as error:
        text = f"{path} is missing or cannot be read ({error.strerror}): fetch the model again"
        raise ModelError(text) from error
    if start in (b"", pointer):
        raise ModelError(f"{path} is empty or a git-LFS pointer: fetch it, or run 'git lfs pull'")
    is_page = start[:2].lower() in (b"<!", b"<h")
    if is_page or (start.startswith(b"PK") and not zipfile.is_zipfile(path)):
        raise ModelError(f"{path} is cut short, damaged, or a web page: remove and fetch it again")
