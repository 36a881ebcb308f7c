"""The step from an older schema of our own files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError
from virnucpro.store.documents import SCHEMAS, STEPS, DocumentKind, parse_json, upgraded

PATH = Path("folder/file.json")


def test_steps() -> None:
    older = {"schema": 1, "lengths": [500]}
    newer = {"schema": 2, "lengths": [500], "content": "frames"}
    assert upgraded("data set", older, PATH) == newer
    assert older == {"schema": 1, "lengths": [500]}
    assert list(STEPS) == [("data set", 1)]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_present_schema_stays_and_a_newer_one_is_refused(kind: DocumentKind) -> None:
    document = {"schema": SCHEMAS[kind], "rows": [1], "producer": "virnucpro 99"}
    assert upgraded(kind, document, PATH) == document
    with pytest.raises(ResumeRefusedError, match=r"file\.json.*newer version.*virnucpro 99"):
        upgraded(kind, document | {"schema": SCHEMAS[kind] + 1}, PATH)


def test_an_older_schema_without_a_step_is_refused() -> None:
    with pytest.raises(ResumeRefusedError, match=r"file\.json was written by an older version"):
        upgraded("run state", {"schema": 1}, PATH)


@pytest.mark.parametrize("document", [None, [], "text", {"schema": 0}, {"schema": True}, {}])
def test_what_is_no_such_document_is_unusable(document: Json) -> None:
    with pytest.raises(ValueError, match=r"file\.json"):
        upgraded("run state", document, PATH)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "[" * 100_000])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"finite|nested"):
        parse_json(text)
