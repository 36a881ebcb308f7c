"""``virnucpro profile`` on the CPU, with tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.encoders.small import fair_model, make_dnabert, save_fair

QUICK = ("-d", "cpu", "--seconds", 0, "--budgets")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "esm2": save_fair(fair_model(), folder / "esm2_t2_test.pt"),
        "dnabert-s": make_dnabert(folder / "dnabert"),
    }


@pytest.mark.parametrize(
    ("family", "unit", "option"),
    [("esm2", "tokens", "--esm-batch-size"), ("dnabert-s", "sequences", "--dnabert-batch-size")],
)
def test_the_document(call, tmp_path, models, family, unit, option):
    saved = tmp_path / "curve.json"
    arguments = ("profile", "--model", family, "-p", models[family], *QUICK, "2,4")
    done = call(*arguments, "--lengths", "30,60", "--json", "-o", saved)
    assert done.code == 0
    document = json.loads(done.out)
    assert document == json.loads(saved.read_bytes())
    assert [point["budget"] for point in document["points"]] == [2, 4]
    assert all(
        point["tokens_per_second"] > point["sequences_per_second"] > 0
        for point in document["points"]
    )
    assert document["unit"] == unit
    assert document["option"] == f"{option} {document['recommended']}"
    assert (document["lengths"], document["precision"]) == ([30, 60], "fp32")


def test_a_family_with_a_model_of_its_own(call):
    done = call("profile", "--model", "lite", *QUICK, "4")
    assert (done.code, "DNABERT" in done.err) == (64, False)
