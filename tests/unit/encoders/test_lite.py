"""The lite encoders: independent of their batch, exact on disk, and damage is noticed."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.unit.encoders.small import LETTERS, open_path, quiet, sequences
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.encoders.lite import (
    NUCLEOTIDE,
    PROTEIN,
    Branch,
    branch_shape,
    lite_to_bytes,
    read_lite,
)
from virnucpro.encoders.lite_features import AMINO_ACIDS, WordCounts, WordPattern
from virnucpro.encoders.registry import locate
from virnucpro.errors import ModelError
from virnucpro.settings import TOY_CLASSIFIER
from virnucpro.store.disk import sha256_of

DIM = 24
EXACT = WordPattern(" ".join(AMINO_ACIDS), "111")
SPACED = WordPattern("AST C DE FWY G H ILMV KR NQ P", "11011")
TEXTS = {
    "nucleotide": [
        *sequences([500, 499, 498, 150, 7, 6, 5, 4, 3, 2, 1, 0, 500, 60], "ACGT"),
        *sequences([60, 90], "ACGTNRY", seed=1),
        "NNN",
        "N" * 60,
    ],
    "protein": [
        *sequences([166, 165, 50, 5, 4, 3, 2, 1, 1, 0, 166, 20], LETTERS),
        *sequences([20, 30], LETTERS + "XB*", seed=1),
        "X",
        "X" * 20,
    ],
}


def branch(molecule, word_counts, seed=5):
    """Random weights, and batch norms with statistics of their own."""
    random = torch.Generator().manual_seed(seed)
    made = Branch(branch_shape(molecule, word_counts, DIM))
    for name, value in made.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=random) * 0.3
            positive = name == "scale" or name.endswith("running_var")
            value.copy_(noise.abs() + 0.5 if positive else noise)
    return made


def content(molecule):
    random = np.random.default_rng(3)
    words = (EXACT, SPACED) if molecule == "protein" else ()
    word_counts = [
        WordCounts(kind, random.integers(0, 16, kind.places, np.uint8)) for kind in words
    ]
    return lite_to_bytes(molecule, branch(molecule, len(words)), word_counts, {"command": "a test"})


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    for molecule in TEXTS:
        (folder / f"{molecule}.safetensors").write_bytes(content(molecule))
    return folder


@pytest.fixture(params=list(TEXTS))
def molecule(request):
    return request.param


def test_rows_do_not_depend_on_their_batch_or_order(pair, molecule):
    texts = TEXTS[molecule]
    encoder = open_path(pair / f"{molecule}.safetensors", molecule)
    together = encoder.encode(texts, quiet)
    assert (together.shape, together.dtype) == ((len(texts), DIM), torch.float32)
    assert bool(torch.isfinite(together).all())
    alone = torch.cat([encoder.encode([text], quiet) for text in texts])
    assert torch.allclose(together, alone, rtol=1e-5, atol=1e-5)
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(1))
    shuffled = encoder.encode([texts[i] for i in order], quiet)
    assert torch.allclose(shuffled, together[order], rtol=1e-5, atol=1e-5)
    assert torch.pdist(together[[0, 1, 3]]).min() > 1e-3  # it does look at them
    while encoder.shrink():
        assert torch.allclose(encoder.encode(texts, quiet), together, rtol=1e-5, atol=1e-5)
    assert encoder.facts()["budget"] == 1


def test_the_same_bits_on_any_number_of_threads(pair, molecule):
    before, rows = torch.get_num_threads(), []
    texts = TEXTS[molecule] * 20  # several batches, and some of a few rows
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            rows.append(open_path(pair / f"{molecule}.safetensors", molecule).encode(texts, quiet))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(rows[0], others) for others in rows[1:])


def test_short_and_empty_frames(pair, molecule):
    encoder = open_path(pair / f"{molecule}.safetensors", molecule)
    assert encoder.encode([], quiet).shape == (0, DIM)
    unknown = {"nucleotide": ["", "A", "AC", "NNN", "NNNN"], "protein": ["", "X", "*"]}[molecule]
    rows = encoder.encode(unknown, quiet)
    assert torch.allclose(rows, rows[:1].expand_as(rows), atol=1e-5)  # nothing is known of them
    known = encoder.encode(["ATG" if molecule == "nucleotide" else "M"], quiet)
    assert not torch.allclose(known, rows[:1], atol=1e-3)


def test_what_a_codon_begins_is_not_read(pair):
    encoder = open_path(pair / "nucleotide.safetensors", "nucleotide")
    rows = encoder.encode(["ACGTAC", "ACGTACG", "ACGTACGG", "acgtac"], quiet)
    assert torch.allclose(rows, rows[:1].expand_as(rows), atol=1e-5)


def test_proteins_are_truncated_and_sequences_reported(pair):
    seen = []
    encoder = open_path(pair / "protein.safetensors", truncation=4)
    rows = encoder.encode(["MKVLAG", "MKVL", "MK"], lambda n, tokens: seen.append((n, tokens)))
    assert torch.allclose(rows[0], rows[1], atol=1e-5)
    assert seen == [(1, 2), (2, 8)]


def test_half_precision_is_near(pair, molecule):
    path = pair / f"{molecule}.safetensors"
    full = open_path(path, molecule).encode(TEXTS[molecule], quiet)
    half = open_path(path, molecule, precision="bf16").encode(TEXTS[molecule], quiet)
    assert half.dtype == torch.float32
    assert (full - half).abs().max() < 0.05 * full.abs().max()


def test_file_and_back(pair, molecule):
    path = pair / f"{molecule}.safetensors"
    found, made, word_counts = read_lite(path)
    assert found == molecule
    assert not made.training
    stored = branch(molecule, len(word_counts)).state_dict()
    for name, value in made.state_dict().items():
        kept = stored[name].half().float() if value.ndim > 1 else stored[name]
        assert torch.equal(value, kept), name
    again = lite_to_bytes(molecule, made, word_counts, {"command": "a test"})
    assert again == path.read_bytes() == content(molecule)
    with safe_open(path, "pt") as file:
        said = json.loads(file.metadata()["virnucpro_lite"])
    assert (said["molecule"], said["dim"]) == (molecule, DIM)
    assert said["extra"] == {"command": "a test"}


def test_the_same_bytes_in_another_process(pair):
    code = (
        "import sys, hashlib; from tests.unit.encoders.test_lite import content;"
        "print(hashlib.sha256(content('protein')).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == sha256_of(pair / "protein.safetensors")


def test_which_file_is_what(pair, tmp_path):
    nucleotide, protein = pair / "nucleotide.safetensors", pair / "protein.safetensors"
    files = (nucleotide, protein, TOY_CLASSIFIER, tmp_path, tmp_path / "none.safetensors")
    assert [NUCLEOTIDE.recognises(path) for path in files] == [True, *[False] * 4]
    assert [PROTEIN.recognises(path) for path in files] == [False, True, *[False] * 3]
    for molecule, path in (("nucleotide", nucleotide), ("protein", protein)):
        source = locate(str(path), molecule)
        assert (source.family, source.dim) == (f"lite-{molecule}", DIM)
        other = "protein" if molecule == "nucleotide" else "nucleotide"
        with pytest.raises(ModelError, match=f"is a {molecule} model .lite-{molecule}."):
            locate(str(path), other)
    mine = tmp_path / "classifier.safetensors"
    state = {
        "hidden_layer.weight": torch.zeros(2, 4),
        "hidden_layer.bias": torch.zeros(2),
        "output_layer.weight": torch.zeros(2, 2),
        "output_layer.bias": torch.zeros(2),
        **{f"bn1.{n}": torch.ones(2) for n in ("weight", "bias", "running_mean", "running_var")},
    }
    mine.write_bytes(classifier_to_bytes(state, encoders=(), chunk_lengths=(), extra={}))
    for path in (mine, TOY_CLASSIFIER):
        with pytest.raises(ModelError, match="is not an encoder, or it is damaged"):
            locate(str(path), "protein")
        with pytest.raises(ModelError, match="is not a lite encoder"):
            read_lite(path)


def changed(path, target, tensors=None, **said):
    """A copy with other metadata or other tensors."""
    with safe_open(path, "pt") as file:
        metadata = json.loads(file.metadata()["virnucpro_lite"])
    metadata |= said
    kept = {name: value for name, value in metadata.items() if value is not None}
    save_file(load_file(path) | (tensors or {}), target, {"virnucpro_lite": json.dumps(kept)})
    return target


def words_of(*pairs):
    return [{"groups": groups, "seed": seed} for groups, seed in pairs]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"schema": 2}, "another virnucpro"),
        ({"schema": None}, "another virnucpro"),
        ({"molecule": None}, "damaged"),
        ({"dim": None}, "damaged"),
        ({"dim": DIM + 1}, "damaged"),
        ({"dim": "wide"}, "damaged"),
        ({"censuses": None}, "damaged"),
        ({"censuses": 7}, "damaged"),
        ({"censuses": words_of((EXACT.groups, "111"))}, "damaged"),
        (
            {"censuses": words_of((EXACT.groups, "11"), (SPACED.groups, "11011"))},
            "not of 400 words",
        ),
        ({"censuses": words_of((EXACT.groups, "1x1"), (SPACED.groups, "11011"))}, "make no words"),
    ],
)
def test_damaged_metadata(pair, tmp_path, said, message):
    path = changed(pair / "protein.safetensors", tmp_path / "damaged.safetensors", **said)
    with pytest.raises(ModelError, match=message):
        read_lite(path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["conv1.weight", "norm.running_var", "scale"])
def test_damaged_weights(pair, tmp_path, name, bad):
    source = pair / "protein.safetensors"
    value = load_file(source)[name]
    value.view(-1)[-1] = bad
    path = changed(source, tmp_path / "damaged.safetensors", {name: value})
    with pytest.raises(ModelError, match="NaN or infinite"):
        open_path(path)


def test_a_census_cut_short_and_missing_tensors(pair, tmp_path):
    source = pair / "protein.safetensors"
    tensors = load_file(source)
    target = tmp_path / "damaged.safetensors"
    for cut in (len(tensors["census.0"]) // 2, len(tensors["census.0"]) - 1, 0):
        changed(source, target, {"census.0": tensors["census.0"][:cut].clone()})
        with pytest.raises(ModelError, match=r"damaged .*cut short|cannot be unpacked"):
            open_path(target)
    changed(source, target, {"one_more": torch.zeros(1)})
    with pytest.raises(ModelError, match="one_more"):
        open_path(target)


def test_a_truncated_file(pair, tmp_path):
    data = (pair / "protein.safetensors").read_bytes()
    path = tmp_path / "cut.safetensors"
    for cut in (0, 4, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(ModelError, match=str(path)):
            read_lite(path)
        with pytest.raises(ModelError, match=str(path)):
            locate(str(path), "protein")
