"""Every step from an older schema of our own files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError
from virnucpro.store.migrations import SCHEMAS, STEPS, DocumentKind, upgraded

PATH = Path("folder/file.json")

# An older document and what the next schema makes of it, for every step of the table.
EXAMPLES: dict[tuple[DocumentKind, int], tuple[dict[str, Json], dict[str, Json]]] = {
    ("data set", 1): (
        {"schema": 1, "lengths": [500]},
        {"schema": 2, "lengths": [500], "content": "frames"},
    ),
    ("lite training", 0): (
        {"data_set": "ab", "data set": "ab", "recipe": {"steps": 5}, "words": []},
        {"data_set": "ab", "settings": {"steps": 5}, "word_patterns": [], "schema": 1},
    ),
}


def test_every_step_has_an_example() -> None:
    assert set(EXAMPLES) == set(STEPS)


@pytest.mark.parametrize(("step", "example"), EXAMPLES.items())
def test_steps(
    step: tuple[DocumentKind, int], example: tuple[dict[str, Json], dict[str, Json]]
) -> None:
    older, newer = example
    before = dict(older)
    assert {**STEPS[step](older), "schema": step[1] + 1} == newer
    assert older == before


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_present_schema_stays_as_it_is(kind: DocumentKind) -> None:
    document = {"schema": SCHEMAS[kind], "rows": [1]}
    assert upgraded(kind, document, PATH) == document


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_newer_schema_is_refused_and_its_producer_is_named(kind: DocumentKind) -> None:
    document = {"schema": SCHEMAS[kind] + 1, "producer": "virnucpro 99"}
    with pytest.raises(ResumeRefusedError, match=r"file\.json.*newer version.*virnucpro 99"):
        upgraded(kind, document, PATH)


@pytest.mark.parametrize("document", [None, [], "text", {"schema": "1"}, {"schema": True}, {}])
def test_what_is_no_such_document_is_unusable(document: Json) -> None:
    with pytest.raises(ValueError, match=r"file\.json"):
        upgraded("run state", document, PATH)
