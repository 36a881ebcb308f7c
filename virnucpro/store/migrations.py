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

DocumentKind = Literal[
    "run state", "receipt", "data set", "savepoint", "lite training", "work", "archive"
]
Step = Callable[[dict[str, Json]], dict[str, Json]]

SCHEMAS: Mapping[DocumentKind, int] = {
    "run state": 1,
    "receipt": 1,
    "data set": 2,
    "savepoint": 1,
    "lite training": 1,
    "work": 1,
    "archive": 1,
}


def _lite_training_without_schema(document: dict[str, Json]) -> dict[str, Json]:
    """Give each value of ``lite.json`` one name; the digest of the data set once had two."""
    changed = dict(document)
    for old, new in (("data set", "data_set"), ("recipe", "settings"), ("words", "word_patterns")):
        value = changed.pop(old, None)
        changed.setdefault(new, value)
    return changed


def _data_set_of_frames(document: dict[str, Json]) -> dict[str, Json]:
    """Name the content of a data set; the first data sets all held frames."""
    return {**document, "content": "frames"}


# The step from a schema to the next one. A file without a schema has schema 0.
STEPS: Mapping[tuple[DocumentKind, int], Step] = {
    ("lite training", 0): _lite_training_without_schema,
    ("data set", 1): _data_set_of_frames,
}


def current_schema(kind: DocumentKind) -> int:
    """Return the schema that this version of the program writes."""
    return SCHEMAS[kind]


def upgraded(kind: DocumentKind, document: Json, path: Path) -> dict[str, Json]:
    """Return ``document``, which was read from ``path``, in the present schema.

    Raises:
        ResumeRefusedError: a newer version of the program wrote it (exit 3).
        ValueError: it is not a document of this kind.
    """
    if not isinstance(document, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    schema = document.get("schema", 0)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 0:
        raise ValueError(f"{path} has no usable schema number")
    if schema > SCHEMAS[kind]:
        producer = document.get("producer") or document.get("version") or "unknown"
        raise ResumeRefusedError(
            f"{path} was written by a newer version of the program ({producer}); upgrade "
            f"virnucpro to go on, or start over with --force"
        )
    changed = dict(document)
    while schema < SCHEMAS[kind]:
        step = STEPS.get((kind, schema))
        if step is None:
            raise ValueError(f"{path} has schema {schema}, from which no step leads on")
        changed = step(changed)
        schema += 1
        changed["schema"] = schema
    return changed
