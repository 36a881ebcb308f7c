"""What embedding a part left on record: with which models, and how many frames failed."""

from __future__ import annotations

import json

from virnucpro.contracts import Json
from virnucpro.layout import Layout


def read_record(layout: Layout) -> dict[str, Json] | None:
    """The ``PART_run.json`` of a part that was embedded; None where there is none to read.

    ``data set`` (SHA-256 of its ``dataset.json``), ``models`` (``nucleotide`` and ``protein``, each
    with family, name, path, sha256, dim), ``truncation``, ``precision`` and ``counts`` (``shards``,
    ``frames``, ``failed``) among others.
    """
    try:
        document = json.loads(layout.run_json.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
