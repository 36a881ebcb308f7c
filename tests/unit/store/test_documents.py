"""Which schemas of our own files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.errors import ResumeRefusedError
from virnucpro.store.documents import SCHEMAS, in_schema, parse_json

PATH = Path("folder/file.json")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_present_schema_stays_and_another_one_is_refused(kind):
    document = {"schema": SCHEMAS[kind], "rows": [1], "producer": "virnucpro 99"}
    assert in_schema(kind, document, PATH) == document
    with pytest.raises(ResumeRefusedError, match=r"file\.json.*another version.*virnucpro 99"):
        in_schema(kind, document | {"schema": SCHEMAS[kind] + 1}, PATH)


@pytest.mark.parametrize("document", [None, [], "text", {"schema": 0}, {"schema": True}, {}])
def test_what_is_no_such_document_is_unusable(document):
    with pytest.raises(ValueError, match=r"file\.json"):
        in_schema("run state", document, PATH)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "[" * 100_000])
def test_what_is_no_json(text):
    with pytest.raises(ValueError, match=r"finite|nested"):
        parse_json(text)
