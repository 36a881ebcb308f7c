"""Where models are, and whether they are unchanged since they were first seen.

They are looked up where existing users already have them: torch hub's folder, the Hugging Face
cache, and ``~/.cache/virnucpro/models``. Folders follow the standard variables (``TORCH_HOME``,
``HF_HOME``, ``HF_HUB_CACHE``, ``XDG_CACHE_HOME``), read without importing the libraries of those.
"""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path
from typing import Literal

import msgspec

from virnucpro.errors import ModelError
from virnucpro.models.catalogue import HubModel, Model, files_to_fetch, model_named
from virnucpro.store.disk import Disk, explain_write_errors
from virnucpro.store.documents import parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked

SCHEMA = 1
# The first line of a git-LFS pointer; https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
_LFS = b"version https://git-lfs.github.com/spec/"


class FileRecord(msgspec.Struct, frozen=True):
    """Size and SHA-256 (hex) of a file."""

    bytes: int
    sha256: str


class ModelRecord(msgspec.Struct, frozen=True):
    """A model as it was first seen.

    Attributes:
        path: the file or folder at that time, absolute.
        address: where it was fetched from; empty if it was put there by hand.
        revision: commit on the hub; empty of a single file.
        date: day of the recording, UTC.
        files: by name inside the folder (a single file: its own name).
    """

    path: str
    address: str
    revision: str
    date: str
    files: dict[str, FileRecord]


class _Document(msgspec.Struct):
    schema: int
    models: dict[str, ModelRecord]


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def own_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/virnucpro/models`` or ``~/.cache/virnucpro/models``."""
    return cache_folder() / "virnucpro" / "models"


def model_records_file() -> Path:
    """Return the path of the file that holds every checksum."""
    return own_folder() / "records.json"


def read_model_records() -> dict[str, ModelRecord]:
    """Read all records, by model name.

    Raises:
        ModelError: the file is damaged, or was written by a newer version.
    """
    path = model_records_file()
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: {error}; remove it, and verify again") from error
    if document.schema > SCHEMA:
        raise ModelError(f"{path} was written by a newer version: update virnucpro")
    return document.models


def hub_folder() -> Path:
    """Return the folder of the Hugging Face cache."""
    home = Path(os.environ.get("HF_HOME") or cache_folder() / "huggingface").expanduser()
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(named).expanduser() if named else home / "hub"


def is_offline() -> bool:
    """Return whether the standard switches forbid the network."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in ("1", "ON", "YES", "TRUE")  # as huggingface_hub reads its switches


def download_path(model: Model) -> Path:
    """Return where a fetch puts the model (on the hub: the folder of its snapshots)."""
    if isinstance(model, HubModel):
        return hub_folder() / f"models--{model.name.replace('/', '--')}" / "snapshots"
    if not model.twin:
        return own_folder() / model.file
    # The folder in which torch hub, and so fair-esm, keeps checkpoints.
    home = Path(os.environ.get("TORCH_HOME") or cache_folder() / "torch").expanduser()
    return home / "hub" / "checkpoints" / model.file


def manual_path(model: Model) -> Path:
    """Return where a person may put it: a file, or a folder with the files of a hub model."""
    return own_folder() / (model.name if isinstance(model, HubModel) else model.file)


def locate_model(model: Model) -> Path | None:
    """Return the complete file or folder of exactly this model, or None."""
    fetched = _snapshots(model) if isinstance(model, HubModel) else [download_path(model)]
    places = [*fetched, manual_path(model)]
    return next((path for path in places if model_files(model, path)), None)


def resolve_model(model: Model) -> tuple[Model, Path] | None:
    """Return the model and its path, or those of its twin on the hub; None where neither exists."""
    if path := locate_model(model):
        return model, path
    if not isinstance(model, HubModel) and model.twin:
        return resolve_model(model_named(model.twin))
    return None


def find_model(name: str) -> Path:
    """Return the file or folder of the model of that name. Raises as the next two functions do."""
    return require_model(model_named(name))[1]


def require_model(model: Model) -> tuple[Model, Path]:
    """Return the model and its path, or those of its twin on the hub.

    Raises:
        ModelError: neither is on this machine; says where they were looked for, and what to do.
    """
    if located := resolve_model(model):
        return located
    looked = " and ".join(map(str, dict.fromkeys([download_path(model), manual_path(model)])))
    text = (
        f"model {model.name} is not on this machine (looked for {looked}); "
        f"fetch it with: virnucpro models fetch {model.name}"
    )
    raise ModelError(f"{text}; {manual_route(model)}" if is_offline() else text)


def manual_route(model: Model) -> str:
    """Return instructions for a machine without internet."""
    reason = "HF_HUB_OFFLINE is set: " if is_offline() else ""
    return f"{reason}fetch {model.address} elsewhere, and put it at {manual_path(model)} here"


def model_files(model: Model, path: Path) -> dict[str, Path]:
    """Return the needed files by name; none where the model is not complete there."""
    if not isinstance(model, HubModel):
        return {path.name: path} if path.is_file() else {}
    if not path.is_dir():
        return {}
    # A link into the cache whose target is gone is not a file: a download was interrupted.
    names = files_to_fetch(model, (p.name for p in path.iterdir() if p.is_file()))
    files = {name: path / name for name in names or ()}
    for index in (file for name, file in files.items() if name.endswith(".index.json")):
        if not set(shards_of(index)) <= files.keys():
            return {}
    return files


def shards_of(index: Path) -> list[str]:
    """Return the names of the files that an index of weights lists, sorted."""
    try:
        return sorted({*map(str, parse_json(index.read_bytes())["weight_map"].values())})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is damaged: {error!r}; fetch the model again") from error


def _snapshots(model: HubModel) -> list[Path]:
    """Snapshots in the cache: the recorded revision, then ``main``, then the others by name.

    Times of change do not decide, because they differ between copies of a cache.
    """
    folder = download_path(model)
    if not folder.is_dir():
        return []
    record = read_model_records().get(model.name)
    main = folder.parent / "refs" / "main"
    first = [
        record.revision if record else "",
        main.read_text(errors="replace").strip() if main.is_file() else "",
    ]
    return sorted(
        folder.iterdir(), key=lambda path: (*(path.name != name for name in first), path.name)
    )


def record_model(model: Model, path: Path, *, address: str = "") -> None:
    """Hash the files of a model and record them, in place of an older record.

    Raises:
        ModelError: a file is plainly something else (see :func:`check_model_file`).
        OutputError: the record cannot be written.
    """
    files = {}
    for name, file in model_files(model, path).items():
        check_model_file(file)
        files[name] = FileRecord(file.stat().st_size, hashed(file).sha256)
    from_hub = isinstance(model, HubModel) and path.parent == download_path(model)
    revision = path.name if from_hub else ""  # the cache names a snapshot after its commit
    today = time.strftime("%Y-%m-%d", time.gmtime())
    record = ModelRecord(str(path.absolute()), address, revision, today, files)
    path = model_records_file()
    with locked(path.with_suffix(".lock"), wait=True):
        document = _Document(SCHEMA, {**read_model_records(), model.name: record})
        content = msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1)
        with explain_write_errors(path):
            Disk().save(path, content)


def verify_model(model: Model) -> Literal["verified", "recorded"]:
    """Compare a model on disk with its record; one that was put there by hand gets a record.

    Raises:
        ModelError: it is missing, or differs from its record.
    """
    model, path = require_model(model)
    record = read_model_records().get(model.name)
    if record is None:
        record_model(model, path)
        return "recorded"
    files = model_files(model, path)
    # A tokenizer file that another program added to the cache later is not damage.
    extra = set(model.wants) if isinstance(model, HubModel) else set()
    for name in sorted((files.keys() - extra) | record.files.keys()):
        facts, file = record.files.get(name), files.get(name, path / name)
        if not (facts and file.is_file() and hashed(file).sha256 == facts.sha256):
            raise _differs(model.name, path / name, record)
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
    for name, record in read_model_records().items():
        facts = record.files.get(absolute.name)
        if facts and facts.sha256 != sha256:
            path = locate_model(model_named(name))
            if path and absolute in (path.absolute(), path.absolute() / absolute.name):
                raise _differs(name, file, record)


def _differs(name: str, file: Path, record: ModelRecord) -> ModelError:
    return ModelError(
        f"{file}: checksum differs from the one recorded on {record.date}: replace it with: "
        f"virnucpro models fetch {name} (or keep it: virnucpro models verify --renew {name})"
    )


def check_model_file(file: Path) -> None:
    """Refuse what is plainly not a model file, before its checksum is recorded as the right one.

    Raises:
        ModelError: a git-LFS pointer, a web page, or a checkpoint cut short.
    """
    check_file(file)
    if file.suffix not in (".pt", ".pth", ".bin", ".part"):
        return
    with file.open("rb") as stream:
        head = stream.read(64)
    whole = not head.lstrip().startswith(b"<")
    if head.startswith(b"PK"):
        try:
            with zipfile.ZipFile(file) as archive:  # a download may have two versions in it
                whole = file.suffix != ".part" or archive.testzip() is None
        except zipfile.BadZipFile:
            whole = False
    if not whole:
        raise ModelError(f"{file} is cut short, damaged, or a web page: remove and fetch it again")


def check_file(path: Path) -> None:
    """Raise ModelError where ``path`` is missing, empty, unreadable or a git-LFS pointer."""
    if not path.is_file():
        raise ModelError(f"{path} is missing: fetch the model again, with all of its files")
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    if start == _LFS:
        raise ModelError(f"{path} is a git-LFS pointer, not the file: run 'git lfs pull' there")
    if not start:
        raise ModelError(f"{path} is empty: it is damaged or incomplete: fetch it again")
