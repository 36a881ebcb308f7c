"""``rcl evaluate``: several models side by side, and files that are in the way."""

from __future__ import annotations

import pytest

from tests.unit.rcl.made_proteins import write_tables
from virnucpro.rcl.evaluation import EVALUATION_FILES
from virnucpro.rcl.finders import DEFAULT_MODEL, SHIPPED
from virnucpro.rcl.models import read_rcl_model, write_rcl_model
from virnucpro.rcl.networks import RclCnn, RclUnet
from virnucpro.rcl.settings import CnnSettings
from virnucpro.store.disk import Disk


@pytest.fixture
def models(tmp_path):
    paths = [tmp_path / "m0.safetensors", tmp_path / "m1.safetensors"]
    for path in paths:
        weights = RclCnn(21, CnnSettings(channels=(4,), kernel_sizes=(3,))).state_dict()
        write_rcl_model(path, weights, Disk(), encoding="onehot")
    return paths


def test_models_side_by_side(call, models, tmp_path):
    serpins, others = write_tables(tmp_path / "tables", 6)
    out = tmp_path / "out"
    start = ("rcl", "evaluate", "--serpins", serpins, "--others", others, "-o", out)
    start += ("--device", "cpu", "--threshold", 0.4, "-m", models[0])
    done = call(*start, "-m", models[1], "--aa")
    assert done.code == 0, done.err
    assert {path.name for path in out.iterdir()} == {*EVALUATION_FILES, ".checkpoints"}
    for text in ("mean iou", "residue mcc", "m0.safetensors", "m1.safetensors"):
        assert text in done.out
    assert len((out / "rcl_evaluation_proteins.tsv").read_text().splitlines()) == 1 + 2 * 9
    table = (out / "rcl_evaluation.tsv").read_bytes()
    assert call(*start, "-m", models[1]).code == 0  # the same again
    assert (out / "rcl_evaluation.tsv").read_bytes() == table
    assert call(*start).code == 3
    assert call(*start, "--force").code == 0
    split = tmp_path / "split.tsv"
    split.write_text("id\tpart\nS0\ttest\nS1\ttest\nO6\ttest\n")
    part = call(*start, "--split", split, "-o", tmp_path / "part")
    assert part.code == 0, part.err
    assert len((tmp_path / "part/rcl_evaluation_proteins.tsv").read_text().splitlines()) == 4
    assert call(*start, "--split", split, "--dataset", "val", "-o", tmp_path / "none").code == 65


def test_the_shipped_networks_can_be_read_and_are_small():
    networks = list(SHIPPED.glob("rcl_*.safetensors"))
    assert list(SHIPPED.glob(f"rcl_{DEFAULT_MODEL}.*"))
    assert sum(path.stat().st_size for path in networks) < 8 << 20
    for path in networks:
        model = read_rcl_model(path)
        assert isinstance(model.network, RclUnet)
        (probabilities,) = model.probabilities(["MKLV" * 100])
        assert probabilities.max() < model.threshold
