"""``rcl embed``: features per residue, resumed, and read by ``rcl train``."""

import numpy as np
import pytest
import torch

from tests.unit.encoders.small import fair_model, save_fair
from tests.unit.rcl.made_proteins import proteins, write_tables
from virnucpro.rcl.features import open_features
from virnucpro.rcl.models import read_rcl_model

WIDTH = 320  # that of ESM-2 8M
OPTIONS = ("--checkpoint-every", 16, "--device", "cpu", "-t", 1)


@pytest.fixture
def tables(tmp_path):
    serpins, others = write_tables(tmp_path / "tables", 20)
    return ("--serpins", serpins, "--others", others)


@pytest.fixture(scope="module")
def esm(tmp_path_factory):
    model = fair_model(layers=1, width=WIDTH, heads=4)
    return model, save_fair(model, tmp_path_factory.mktemp("esm") / "tiny.pt")


def test_features_are_those_of_fair_esm_and_are_computed_once(call, esm, tables, tmp_path):
    model, path = esm
    folder = tmp_path / "features"
    start = ("rcl", "embed", "--esm-model", path, *tables, "-o", folder, *OPTIONS)
    assert call(*start).code == 0
    assert len(list(folder.glob("features_*.safetensors"))) == 2
    features = open_features(folder)
    assert features.width == WIDTH
    alphabet = {letter: 4 + n for n, letter in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO.-")}
    for protein in proteins(20)[::7]:
        tokens = torch.tensor([[0, *(alphabet[letter] for letter in protein.sequence), 2]])
        with torch.no_grad():
            expected = model(tokens, repr_layers=[1])["representations"][1][0, 1:-1]
        rows = features.encode(protein.sequence)
        assert rows.shape == (len(protein.sequence), WIDTH)
        np.testing.assert_allclose(rows, expected.numpy(), atol=2e-3, rtol=2e-3)  # float16
    assert "Nothing to compute" in call(*start).out
    assert call(*start, "--checkpoint-every", 5).code == 3


def test_training_on_features(call, esm, tables, tmp_path):
    folder, config = tmp_path / "features", tmp_path / "config.yaml"
    config.write_text("models: {cnn: {channels: [4], kernel_sizes: [3]}}\ntraining: {epochs: 1}\n")
    train = ("rcl", "train", "--encoding", "esm2_650m", "--model", "cnn", "--config", config, *tables,
             "--split", "random", "--no-tensorboard", "--device", "cpu", "-t", 1)  # fmt: skip
    runs, model = tmp_path / "runs", ("--esm-model", esm[1])
    fasta = tmp_path / "p.fa"
    fasta.write_text(">a\nMKLMKLMKL\n>b\nMKLV\n")
    use = ("-m", runs / "run_001", "--device", "cpu", "-t", 1)
    measure = ("rcl", "evaluate", *tables, "-o", tmp_path / "figures", *use)
    predict = ("rcl", "predict", fasta, "-o", tmp_path / "out", *use)
    embed = ("rcl", "embed", *model, *tables, "-o", folder, *OPTIONS)
    archive = tmp_path / "features.npz"  # of RCL-identifier: it holds pickled objects
    np.savez(archive, sequences=np.array(["MKLV"], object))
    other = write_tables(tmp_path / "more", 25)[0]
    stored = ("--precomputed", folder, "--output-dir")
    for command, code in (
        ((*train, "--output-dir", runs, *model), 0),  # features are computed on the way
        (measure, 64),  # the released ESM-2 of that width is not here
        ((*measure, *model), 0),
        ((*predict, *model), 0),
        (embed, 0),
        ((*train, *stored, tmp_path / "stored"), 0),
        ((*train, "--serpins", other, *stored, tmp_path / "x"), 65),  # without features
        ((*train, "--encoding", "onehot", *stored, tmp_path / "x"), 64),
        ((*train, "--precomputed", archive, "--output-dir", tmp_path / "x"), 64),
    ):
        assert call(*command).code == code
    assert read_rcl_model(runs / "run_001").encoding == "esm2_8m"
    assert len(list((runs / "features_tiny.pt").glob("features_*"))) == 1
    assert len((tmp_path / "out" / "p_rcl.tsv").read_text().splitlines()) == 3
