"""The program's own JSON files: written with a digest of their content, and read with care.

A flipped bit turns one number into another and leaves a file valid JSON. So every file that the
program trusts later carries the SHA-256 of its canonical text, and one that does not fit its digest
counts as unreadable, whatever else is right in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping

from virnucpro.contracts import Json

DIGEST = "digest"  # the key that holds it


def sealed(document: Mapping[str, Json]) -> bytes:
    """Return ``document`` as the text of a JSON file, with its digest."""
    content = json.loads(json.dumps(dict(document)))  # tuples become lists, as they are read
    return (json.dumps({**content, DIGEST: _digest(content)}, indent=1) + "\n").encode()


def unsealed(text: bytes) -> dict[str, Json]:
    """Return the document in a file that :func:`sealed` made.

    Raises:
        ValueError: it is not JSON, or not what was written.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    if document.pop(DIGEST, None) != _digest(document):
        raise ValueError("the content does not fit its digest")
    return document


def parse_json(text: str | bytes) -> Json:
    """Return what a JSON text holds; unlike ``json.loads`` it raises nothing but ``ValueError``.

    Raises:
        ValueError: it is not JSON, a key occurs twice in an object, a number is not finite, or
            brackets are nested too deeply.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _digest(document: Mapping[str, Json]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
