"""``records.json``: size and checksum of each model when it was first seen."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from virnucpro.errors import ModelError
from virnucpro.store.disk import Disk, explain_write_errors
from virnucpro.store.lock import locked

SCHEMA = 1


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
        raise ModelError(
            f"{path} is damaged: {error}; remove it, then record the models again with: "
            "virnucpro models verify"
        ) from error
    if document.schema > SCHEMA:
        raise ModelError(f"{path} was written by a newer version: update virnucpro")
    return document.models


def save_model_record(name: str, record: ModelRecord) -> None:
    """Add a record, in place of an older one of that name.

    Raises:
        OutputError: it cannot be written.
        ModelError: the file with the others is damaged.
    """
    path = model_records_file()
    with locked(path.with_suffix(".lock"), wait=True, state=[path]):
        document = _Document(SCHEMA, {**read_model_records(), name: record})
        content = msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1)
        with explain_write_errors(path):
            Disk().save(path, content)
