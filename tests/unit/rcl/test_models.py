"""Model files of the RCL predictor, and what batches and windows do to probabilities."""

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.hostile import Evil
from virnucpro.errors import ModelError
from virnucpro.rcl.features import AMINO_ACIDS
from virnucpro.rcl.finders import RclFinder, find_region
from virnucpro.rcl.models import (
    NETWORKS,
    RCL,
    WINDOW,
    RclModel,
    read_rcl_model,
    windows_of,
    write_rcl_model,
)
from virnucpro.store.disk import Disk
from virnucpro.training.loop import MaskedBatchNorm

KINDS, ENCODINGS = tuple(NETWORKS), ("onehot", "blosum", "onehot")


def protein(length: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices(AMINO_ACIDS, k=length))


PROTEINS = [protein(length, length) for length in (1, 2, 15, 16, 17, 33, 100, 101, 250)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_protein_has_the_same_probabilities_in_every_batch(small_model, kind):
    model = small_model(kind)
    alone = [model.probabilities([sequence])[0] for sequence in PROTEINS]
    together = model.probabilities(PROTEINS[::-1])[::-1]
    pairs = model.probabilities(PROTEINS, batch_size=2)
    for one, two, three in zip(alone, together, pairs, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-6)
        np.testing.assert_allclose(three, one, atol=1e-6)


def test_the_masked_batch_norm_is_that_of_torch_on_the_residues():
    torch.manual_seed(0)
    ours, theirs = MaskedBatchNorm(5).train(), torch.nn.BatchNorm1d(5).train()
    x = torch.rand(3, 5, 20) * 4 + 100
    mask = (torch.arange(20) < torch.tensor([[20], [11], [3]]))[:, None].float()
    residues = x.transpose(1, 2)[mask[:, 0].bool()]
    expected = theirs(residues)
    normalised = ours(x, mask).transpose(1, 2)[mask[:, 0].bool()]
    torch.testing.assert_close(normalised, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1025, 1536, 1537, 5000, 35_213])
def test_windows_take_each_residue_once_and_far_from_cuts(length):
    taken = []
    for start, kept in windows_of(length):
        taken += range(length)[kept]
        assert start <= kept.start < kept.stop <= min(start + WINDOW, length)
        assert start == 0 or kept.start - start >= 256
        assert start + WINDOW >= length or start + WINDOW - kept.stop >= 256
    assert taken == list(range(length))


@pytest.mark.parametrize("padded", [False, True])
def test_long_and_empty_proteins(small_model, padded):
    model = small_model("cnn", padded=padded)
    sequence = protein(3000)
    long, empty = model.probabilities([sequence, ""])
    assert long.shape == (3000,)
    assert empty.shape == (0,)
    middle = model.probabilities([sequence[512:1536]])[0]
    np.testing.assert_allclose(long[800:1000], middle[288:488], atol=1e-6)
    finder = RclFinder("m", model, 0.5, 12, 7, "", ())
    letters, small = (finder.find([text])[0] for text in (sequence[:99], sequence[:99].lower()))
    assert np.array_equal(letters.probabilities, small.probabilities) is not padded


def write(path: Path, model: RclModel, **more: Any) -> None:
    weights = model.network.state_dict()
    write_rcl_model(path, weights, Disk(), encoding=model.encoding, **more)


@pytest.mark.parametrize(("kind", "encoding"), list(zip(KINDS, ENCODINGS, strict=True)))
def test_a_model_is_read_as_it_was_written(small_model, tmp_path, kind, encoding):
    model = small_model(kind, encoding)
    path, copy = tmp_path / "model.safetensors", tmp_path / "copy.safetensors"
    write(path, model, threshold=0.4)
    again = read_rcl_model(path)
    assert (type(again.network), again.encoding, again.padded) == (NETWORKS[kind], encoding, False)
    assert again.threshold == 0.4
    for one, two in zip(model.probabilities(PROTEINS), again.probabilities(PROTEINS), strict=True):
        np.testing.assert_allclose(one, two, atol=5e-3)  # float16 weights
    write(copy, again, threshold=0.4)
    assert path.read_bytes() == copy.read_bytes()
    numbers = sum(value.numel() for value in model.network.state_dict().values())
    assert path.stat().st_size < 2.2 * numbers + 9000


REFERENCE = ("blosum_cnn", "blosum_unet", "onehot_cnn", "onehot_lstm", "onehot_unet")


def probes(folder: Path) -> dict[str, str]:
    records = [record.split("\n") for record in (folder / "probes.fa").read_text().split(">")[1:]]
    return {header.split()[0]: "".join(lines) for header, *lines in records}


@pytest.mark.parametrize("name", REFERENCE)
def test_checkpoints_of_the_original(rcl_reference, name):
    """They give its probabilities, and the rule gives its tables (``rcl/reference``)."""
    model = read_rcl_model(rcl_reference / f"{name}.pt")
    encoding, kind = name.split("_")
    assert (model.encoding, type(model.network), model.padded) == (encoding, NETWORKS[kind], True)
    proteins = probes(rcl_reference)
    probabilities = model.probabilities(list(proteins.values()), batch_size=5)
    expected = np.load(rcl_reference / f"{name}.npz")["probabilities"][:, :, RCL]
    for row, values in zip(expected, probabilities, strict=True):
        if len(values) <= WINDOW:
            np.testing.assert_allclose(values, row[: len(values)], rtol=0, atol=1e-5)
    tables = sorted(rcl_reference.glob(f"{name}.thr*.min*.tsv"))
    assert tables
    for table in tables:
        threshold, minimum = re.findall(r"thr(0\.\d+)\.min(\d+)", table.name)[0]
        rule = (float(threshold), int(minimum), 7)
        rows = []
        for (accession, sequence), row in zip(proteins.items(), expected, strict=True):
            region = find_region(row[: len(sequence)], *rule)
            if region is not None:
                rows.append([accession, *map(str, region[:2])])
        lines = table.read_text().splitlines()[1:]
        assert rows == [line.split("\t")[:3] for line in lines], table.name
    assert find_region(np.full(20, 0.5, np.float32), 0.5, 12, 7) is None  # none is above


# --- hostile files ---------------------------------------------------------------------------


FIRST = "conv_layers.0.conv.weight"


@pytest.mark.parametrize(
    "changes",
    [
        {"config": Evil("ran")},
        {"model_state_dict": None},
        {"model_state_dict": [1]},
        {"model_state_dict": {1: 2}},
        {"model_state_dict": {"a": torch.ones(3)}},  # another network
        {FIRST: torch.ones(8, 77, 7)},  # no encoding has this width
        {FIRST: torch.ones(1).expand(10**6, 21, 49_999)},  # 4 TB in 4 bytes
        {FIRST: torch.tensor(1.0)},
    ],
)
def test_hostile_checkpoints_are_refused(small_model, tmp_path, monkeypatch, changes):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "best_model.pt"
    weights = small_model("cnn").network.state_dict()
    weights |= {name: value for name, value in changes.items() if name == FIRST}
    state = {f"module.{name}": value for name, value in weights.items()}
    torch.save({"model_state_dict": state, "config": {}} | changes, path)
    with pytest.raises(ModelError, match=str(path)):
        read_rcl_model(tmp_path)
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("schema", 2), ("content", "classifier"), ("encoding", "blosum"), ("threshold", 1.5)],
)
def test_hostile_metadata_is_refused(small_model, tmp_path, name, value):
    path = tmp_path / "model.safetensors"
    write(path, small_model("cnn"))
    with safe_open(path, "pt") as file:
        metadata = json.loads(file.metadata()["virnucpro"])
    save_file(load_file(path), path, {"virnucpro": json.dumps(metadata | {name: value})})
    with pytest.raises(ModelError, match=str(path)):
        read_rcl_model(path)


def test_damaged_and_missing_files_and_numbers_that_are_too_large(small_model, tmp_path):
    path, model = tmp_path / "model.safetensors", small_model("cnn")
    write(path, model)
    content = path.read_bytes()
    for damaged in (b"", content[:100], content[:-7], b"\xff" * 99):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match=str(path)):
            read_rcl_model(path)
    for missing in (tmp_path, tmp_path / "none.pt"):
        with pytest.raises(ModelError, match=str(missing)):
            read_rcl_model(missing)
    model.network.state_dict()["output.0.bias"].fill_(1e30)
    with pytest.raises(ModelError, match="NaN or infinite"):
        write(tmp_path / "large.safetensors", model)
    assert not (tmp_path / "large.safetensors").exists()
