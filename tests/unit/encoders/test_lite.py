"""The lite encoder: independent of batch and strand, exact on disk, and damage is noticed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.unit.encoders.small import open_path, quiet, sequences
from virnucpro.encoders.dnabert_s import Dnabert, DnabertSizes
from virnucpro.encoders.esm2 import Esm2, Esm2Sizes
from virnucpro.encoders.lite import (
    PACKAGED,
    LiteNetwork,
    LiteShape,
    base_numbers,
    lite_to_bytes,
    read_lite,
)
from virnucpro.errors import ModelError

SHAPE = LiteShape(word_width=8, channels=(12, 16), heads=4, dim=24)
TEXTS = [
    *sequences([500, 499, 498, 150, 149, 31, 30, 500, 60], "ACGT"),
    *sequences([60, 90], "ACGTNRY", seed=1),
    "N" * 60,
]
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def network(shape=SHAPE, seed=5):
    """Random weights, and batch norms with statistics of their own."""
    random = torch.Generator().manual_seed(seed)
    made = LiteNetwork(shape)
    for name, value in made.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=random) * 0.3
            value.copy_(noise.abs() + 0.5 if name.endswith("running_var") else noise)
    return made


def content():
    return lite_to_bytes(network(), {"command": "a test"})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("lite") / "encoder.safetensors"
    path.write_bytes(content())
    return path


def embedded(path, texts, **options):
    return open_path(path, "nucleotide", **options).encode(texts, quiet)


def near(first, second):
    return torch.allclose(first, second, rtol=1e-4, atol=1e-5)


def test_both_strands_are_the_same_sequence(file):
    texts = [*TEXTS, *sequences(range(140, 170), "ACGTN", seed=2)]
    rows = embedded(file, texts)
    assert near(rows, embedded(file, [text.translate(COMPLEMENT)[::-1] for text in texts]))
    assert not near(rows[:9], embedded(file, [text[::-1] for text in texts[:9]]))


def test_case_and_other_letters(file):
    rows = embedded(file, ["ACGTTACGTANNNN" * 4, "acgttacgtaRYxn" * 4])
    assert near(rows[0], rows[1])
    assert embedded(file, []).shape == (0, SHAPE.dim)
    short = embedded(file, ["", "A", "NNN"])  # a measurement may ask for them; predict does not
    assert bool(torch.isfinite(short).all())


@pytest.mark.parametrize("groups", [1, 2])
def test_a_fused_network_computes_the_same(groups):
    shape = replace(SHAPE, groups=groups)
    plain, fused = network(shape).eval(), network(shape).fused()
    for text in TEXTS:
        bases = torch.from_numpy(base_numbers([text])).long()
        with torch.inference_mode():
            expected = plain(bases)
            assert (fused(bases) - expected).abs().max() <= 1e-3 * expected.abs().max()


def test_file_and_back(file):
    made = read_lite(file)
    assert not made.training
    assert made.shape == SHAPE
    stored = network().state_dict()
    for name, value in made.state_dict().items():
        kept = stored[name].half().float() if value.ndim > 1 else stored[name]
        assert torch.equal(value, kept), name
    assert lite_to_bytes(made, {"command": "a test"}) == file.read_bytes() == content()
    with safe_open(file, "pt") as opened:
        said = json.loads(opened.metadata()["virnucpro_lite"])
    assert said["shape"]["dim"] == SHAPE.dim
    assert said["extra"] == {"command": "a test"}


def changed(path, target, tensors=None, **said):
    """A copy with other metadata or other tensors."""
    with safe_open(path, "pt") as opened:
        metadata = json.loads(opened.metadata()["virnucpro_lite"])
    kept = {name: value for name, value in (metadata | said).items() if value is not None}
    save_file(load_file(path) | (tensors or {}), target, {"virnucpro_lite": json.dumps(kept)})
    return target


def sizes(**changes):
    return {"shape": asdict(SHAPE) | changes}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"schema": 3}, "schema"),
        ({"schema": None}, "schema"),
        ({"shape": 7}, "damaged"),
        (sizes(dim=SHAPE.dim + 1), "damaged"),
        (sizes(dim=0), "damaged"),
        (sizes(word_width=10**9), "damaged"),
        (sizes(kernel=5), "size mismatch"),
        # Gigabytes, of which the file holds nothing: refused before they are allocated.
        (sizes(channels=[4096, 4096], kernel=4095), "size mismatch"),
        (sizes(channels=[12, 16, 16]), "damaged"),
    ],
)
def test_damaged_metadata(file, tmp_path, said, message):
    path = changed(file, tmp_path / "damaged.safetensors", **said)
    with pytest.raises(ModelError, match=message):
        read_lite(path)


@pytest.mark.parametrize("name", ["bases.convolutions.0.weight", "codons.norms.1.running_var"])
def test_damaged_weights(file, tmp_path, name):
    value = load_file(file)[name]
    value.view(-1)[-1] = float("nan")
    path = changed(file, tmp_path / "damaged.safetensors", {name: value})
    with pytest.raises(ModelError, match="NaN or infinite"):
        embedded(path, TEXTS)


def test_opening_an_encoder_does_not_import_the_compiler_of_torch(monkeypatch):
    """That takes longer than all else before the first record."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # an import fails
    assert read_lite(PACKAGED).shape.dim == 512
    with torch.device("meta"):
        assert Esm2(Esm2Sizes(1, 8, 2, 16, 1e-5, True)).embed.weight.is_meta
        assert Dnabert(DnabertSizes(1, 8, 2, 16, 1e-12, 9, 2)).token_type.weight.is_meta
