"""``records.json``: size and checksum of each model when it was first seen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from virnucpro.errors import ModelError
from virnucpro.store.disk import Disk, explain_write_errors
from virnucpro.store.documents import parse_json
from virnucpro.store.lock import locked

SCHEMA = 1


@dataclass(frozen=True)
class FileRecord:
    """Size and SHA-256 (hex) of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class ModelRecord:
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
    files: Mapping[str, FileRecord]


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
        document = parse_json(path.read_bytes())
        if document["schema"] > SCHEMA:
            raise ModelError(f"{path} was written by a newer version: update virnucpro")
        return {name: _record(**entry) for name, entry in document["models"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{path} is damaged: {error!r}; remove it, then record the models anew with: "
            "virnucpro models verify"
        ) from error


def _record(files: Mapping[str, Any], **texts: str) -> ModelRecord:
    described = {name: FileRecord(**facts) for name, facts in files.items()}
    return ModelRecord(files=described, **{key: str(text) for key, text in texts.items()})


def save_model_record(name: str, record: ModelRecord) -> None:
    """Add a record, in place of an older one of that name.

    Raises:
        OutputError: it cannot be written.
        ModelError: the file with the others is damaged.
    """
    path = model_records_file()
    with locked(path.with_suffix(".lock"), wait=True, state=[path]):
        records = {**read_model_records(), name: record}
        document = {"schema": SCHEMA, "models": {n: asdict(r) for n, r in records.items()}}
        with explain_write_errors(path):
            Disk().save(path, json.dumps(document, indent=1, sort_keys=True).encode())
