"""The program's own JSON files: their digest, and their schema.

A flipped bit turns one number into another and leaves a file valid JSON. So every file that the
program trusts later carries the SHA-256 of its canonical text, and one that does not fit its digest
counts as unreadable, whatever else is right in it.

Each file names its ``schema``, a number. To change a format, raise its number in ``SCHEMAS``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError
from virnucpro.version import __version__

T = TypeVar("T")
DIGEST = "digest"  # the key that holds it
DocumentKind = Literal["run state", "receipt", "progress", "data set", "savepoint", "calibration"]
SCHEMAS: Mapping[DocumentKind, int] = {
    "run state": 1,
    "receipt": 1,
    "progress": 1,
    "data set": 1,
    "savepoint": 1,
    "calibration": 1,
}


def sealed(document: Mapping[str, Json]) -> bytes:
    """Return ``document`` as the text of a JSON file, with its digest."""
    # Not indented: Python has no C code for that, and a run has thousands of receipts.
    return (json.dumps({**document, DIGEST: digest(document)}) + "\n").encode()


def unsealed(text: bytes) -> dict[str, Json]:
    """Return the document in a file that :func:`sealed` made; ValueError for any other text."""
    document = parse_json(text)
    if not isinstance(document, dict) or document.pop(DIGEST, None) != digest(document):
        raise ValueError("the content does not fit its digest")
    return document


def parse_json(text: str | bytes) -> Json:
    """Return what a JSON text holds; ValueError where it is none, or a number is not finite."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def digest(document: Mapping[str, Json]) -> str:
    """Return the SHA-256 (hex) of the canonical text of a document."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def stamped(kind: DocumentKind, **content: Json) -> dict[str, Json]:
    """Return a document with its schema and the version of the program."""
    return {"schema": SCHEMAS[kind], "producer": f"virnucpro {__version__}", **content}


def read_kept(kind: DocumentKind, path: Path, form: type[T]) -> T | None:
    """Return what a file with a digest holds; None where it is missing or damaged.

    Raises ResumeRefusedError as :func:`in_schema`.
    """
    try:
        return msgspec.convert(in_schema(kind, unsealed(path.read_bytes()), path), form)
    except (OSError, ValueError):
        return None


def in_schema(kind: DocumentKind, document: Json, path: Path) -> dict[str, Json]:
    """Return ``document``, which was read from ``path``, if it has the present schema.

    Raises:
        ResumeRefusedError: another version of the program wrote it in another schema (exit 3).
        ValueError: it is not a document of this kind.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ValueError(f"{path} has no usable schema number")
    if schema != SCHEMAS[kind]:
        producer = document.get("producer", "unknown")
        raise ResumeRefusedError(
            f"{path} was written by another version of the program ({producer}); go on with that "
            f"version, or start over with --force"
        )
    return dict(document)
