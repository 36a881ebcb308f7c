"""Names, and which files of a hub repository are taken."""

from __future__ import annotations

import pytest

from virnucpro.errors import ModelError
from virnucpro.models.catalogue import (
    KNOWN,
    HubModel,
    WebFile,
    files_to_fetch,
    model_named,
    models_for,
)

DNABERT = model_named("zhihan1996/DNABERT-S")
ESM = HubModel("facebook/esm2_t36_3B_UR50D", "ESM-2")


def test_every_name_is_there_once_and_every_address_is_https():
    assert len({model.name for model in KNOWN}) == len(KNOWN)
    assert all(model.address.startswith("https://") for model in KNOWN)


def test_known_sizes_and_checksums_are_only_those_that_were_published():
    files = [model for model in KNOWN if isinstance(model, WebFile)]
    assert {f.name: f.bytes for f in files if f.bytes} == {"esm2_t36_3B_UR50D": 5_678_116_398}
    assert not any(f.sha256 for f in files)


def test_every_twin_is_known():
    for model in KNOWN:
        if isinstance(model, WebFile) and model.twin:
            assert isinstance(model_named(model.twin), HubModel)


def test_a_model_type_stands_for_three_models():
    assert [model.name for model in models_for("300")] == [
        "zhihan1996/DNABERT-S",
        "esm2_t36_3B_UR50D",
        "300_model.pth",
    ]


def test_any_owner_and_name_is_a_hub_model():
    assert model_named("someone/my-esm").address == "https://huggingface.co/someone/my-esm"


@pytest.mark.parametrize("name", ["esm2_t36_3B", "500_model.pt", "../../etc", "a/../b", "", "a b"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(ModelError, match="no model is called"):
        model_named(name)


def test_a_model_type_is_not_one_model():
    with pytest.raises(
        ModelError, match=r"'500' is a model type, of several models: .*500_model.pth"
    ):
        model_named("500")


def test_lite_needs_no_fetching():
    with pytest.raises(ModelError, match="lite needs no fetching"):
        models_for("lite")


def test_the_nearest_name_is_suggested():
    with pytest.raises(ModelError, match="did you mean esm2_t36_3B_UR50D"):
        model_named("esm2_t36_3B_UR50")


CODE = ["bert_layers.py", "configuration_bert.py", "README.md", "optimizer.pt"]


@pytest.mark.parametrize(
    ("model", "offered", "taken"),
    [
        (
            DNABERT,
            ["config.json", "tokenizer.json", "tokenizer_config.json", "pytorch_model.bin"],
            ("config.json", "tokenizer.json", "tokenizer_config.json", "pytorch_model.bin"),
        ),
        (DNABERT, ["config.json", "pytorch_model.bin"], None),
        (ESM, ["config.json"], None),
        (ESM, ["model.safetensors"], None),
        (
            ESM,
            ["config.json", "pytorch_model.bin", "model.safetensors", "tf_model.h5", "vocab.txt"],
            ("config.json", "model.safetensors"),
        ),
        (
            ESM,
            [
                "config.json",
                "pytorch_model.bin.index.json",
                "pytorch_model-00001-of-00002.bin",
                "pytorch_model-00002-of-00002.bin",
                "tf_model-00001-of-00002.h5",
            ],
            (
                "config.json",
                "pytorch_model.bin.index.json",
                "pytorch_model-00001-of-00002.bin",
                "pytorch_model-00002-of-00002.bin",
            ),
        ),
    ],
)
def test_only_the_needed_files_are_taken(model, offered, taken):
    assert files_to_fetch(model, [*offered, *CODE]) == taken
