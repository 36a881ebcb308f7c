"""Names, and which files of a hub repository are taken."""

from __future__ import annotations

import pytest

from virnucpro.errors import ModelError
from virnucpro.models.catalogue import files_to_fetch, model_named, models_for

DNABERT = model_named("zhihan1996/DNABERT-S")
ESM = model_named("facebook/esm2_t36_3B_UR50D")


def test_models_of_a_type():
    names = [model.name for model in models_for("300")]
    assert names == ["zhihan1996/DNABERT-S", "esm2_t36_3B_UR50D", "300_model.pth"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "no model is called") for name in ("../../etc", "a/../b", "", "a b")),
        ("esm2_t36_3B_UR50", "did you mean esm2_t36_3B_UR50D"),
        ("500", "see virnucpro models list"),
    ],
)
def test_an_unknown_name_is_refused(name, says):
    with pytest.raises(ModelError, match=says):
        model_named(name)


CODE = "bert_layers.py configuration_bert.py README.md optimizer.pt"
WHOLE = "config.json tokenizer.json pytorch_model.bin"
SHARDS = (
    "config.json pytorch_model.bin.index.json "
    "pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin"
)
BOTH = "config.json pytorch_model.bin model.safetensors tf_model.h5 vocab.txt"


@pytest.mark.parametrize(
    ("model", "offered", "taken"),
    [
        (DNABERT, WHOLE, WHOLE),
        (DNABERT, "config.json pytorch_model.bin", ""),
        (ESM, "config.json", ""),
        (ESM, "model.safetensors", ""),
        (ESM, BOTH, "config.json model.safetensors"),
        (ESM, f"{SHARDS} tf_model-00001-of-00002.h5", SHARDS),
    ],
)
def test_only_the_needed_files_are_taken(model, offered, taken):
    found = files_to_fetch(model, f"{offered} {CODE}".split())
    assert found == taken.split()
