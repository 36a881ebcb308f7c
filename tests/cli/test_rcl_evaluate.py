"""``rcl evaluate``: several models side by side, and files that are in the way."""

import pytest

from tests.cli.inputs import table
from tests.unit.rcl.made_proteins import write_tables
from virnucpro.rcl.evaluation import EVALUATION_FILES
from virnucpro.rcl.finders import DEFAULT_MODEL, SHIPPED
from virnucpro.rcl.models import RclCnn, read_rcl_model, write_rcl_model
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
    out, split = tmp_path / "out", tmp_path / "split.tsv"
    start = ("rcl", "evaluate", "--serpins", serpins, "--others", others, "-o", out)
    start += ("--device", "cpu", "--threshold", 0.4, "-m", models[0])
    done = call(*start, "-m", models[1], "--aa")
    assert done.code == 0, done.err
    assert {path.name for path in out.iterdir()} == {*EVALUATION_FILES, ".checkpoints"}
    assert "residue mcc" in done.out
    assert len(table(out / "rcl_evaluation_proteins.tsv")) == 2 * 9
    figures = (out / "rcl_evaluation.tsv").read_bytes()
    assert call(*start, "-m", models[1]).code == 0  # the same again
    assert (out / "rcl_evaluation.tsv").read_bytes() == figures
    assert [call(*start, *more).code for more in ((), ("--force",))] == [3, 0]
    split.write_text("id\tpart\nS0\ttest\nS1\ttest\nO6\ttest\n")
    for part, code in (("test", 0), ("val", 65)):
        of_part = ("--split", split, "--dataset", part, "-o", tmp_path / part)
        assert call(*start, *of_part).code == code
    assert len(table(tmp_path / "test/rcl_evaluation_proteins.tsv")) == 3


def test_the_shipped_networks_can_be_read_and_are_small():
    networks = list(SHIPPED.glob("rcl_*.safetensors"))
    assert list(SHIPPED.glob(f"rcl_{DEFAULT_MODEL}.*"))
    assert sum(path.stat().st_size for path in networks) < 8 << 20
    for model in map(read_rcl_model, networks):
        assert model.probabilities(["MKLV" * 100])[0].max() < model.threshold
