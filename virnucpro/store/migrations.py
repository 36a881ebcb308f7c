"""Schemas of our own JSON files, and how an older one becomes the present one.

Each file names its ``schema``, a number. To change a format, raise its number in ``SCHEMAS`` and
add the step from the number before to ``STEPS``; a reader then knows the present schema only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError
from virnucpro.version import __version__

DocumentKind = Literal[
    "run state", "receipt", "data set", "savepoint", "lite training", "work", "receipts"
]
Step = Callable[[dict[str, Json]], dict[str, Json]]

SCHEMAS: Mapping[DocumentKind, int] = {
    "run state": 2,  # 1: spans of files were the units of work
    "receipt": 1,
    "data set": 2,
    "savepoint": 1,
    "lite training": 1,
    "work": 1,
    "receipts": 1,
}


def _data_set_of_frames(document: dict[str, Json]) -> dict[str, Json]:
    """Name the content of a data set; the first data sets all held frames."""
    return {**document, "content": "frames"}


STEPS: Mapping[tuple[DocumentKind, int], Step] = {("data set", 1): _data_set_of_frames}
"""The steps from a schema to the next one."""


def current_schema(kind: DocumentKind) -> int:
    """Return the schema that this version of the program writes."""
    return SCHEMAS[kind]


def stamped(kind: DocumentKind, **content: Json) -> dict[str, Json]:
    """Return a document with its schema and the version of the program."""
    return {"schema": SCHEMAS[kind], "producer": f"virnucpro {__version__}", **content}


def upgraded(kind: DocumentKind, document: Json, path: Path) -> dict[str, Json]:
    """Return ``document``, which was read from ``path``, in the present schema.

    Raises:
        ResumeRefusedError: it is of a newer version of the program, or of one so old that no step
            leads on from its schema (exit 3).
        ValueError: it is not a document of this kind.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ValueError(f"{path} has no usable schema number")
    changed = dict(document)
    while step := STEPS.get((kind, schema)):
        schema += 1
        changed = {**step(changed), "schema": schema}
    if schema != SCHEMAS[kind]:
        age = "a newer" if schema > SCHEMAS[kind] else "an older"
        producer = document.get("producer") or document.get("version") or "unknown"
        raise ResumeRefusedError(
            f"{path} was written by {age} version of the program ({producer}); go on with that "
            f"version, or start over with --force"
        )
    return changed
