"""examples/lite/train.py: a model that predict can use, and what it keeps of an earlier one."""

import json
import shlex
from pathlib import Path

import pytest
import train
from train import RESULTS

from tests.cli.inputs import table
from tests.training_data import LENGTH, genome, make_records
from virnucpro.classifier.files import inspect_classifier

QUICK = ("--steps", "4", "--threads", "1")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small batches."""
    monkeypatch.setattr(train, "BATCH_BASES", 6000)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Not to be changed."""
    return make_records(tmp_path_factory.mktemp("data") / "set", codons=600)


@pytest.fixture(autouse=True)
def contigs(tmp_path, monkeypatch):
    """A file in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("contigs.fa").write_text(f">v\n{genome('virus', 400, 77)}\n")


def fit(dataset, *arguments):
    train.main([str(dataset.root), *map(str, arguments)])


def test_the_model_is_used_as_it_says(call, dataset, tmp_path, capfd):
    """What is printed at the end is a configuration and a command that work as they are."""
    folder = tmp_path / "my lite: model"
    fit(dataset, "--output-dir", folder, *QUICK)
    command, _, *configuration = capfd.readouterr().out.partition("Next: ")[2].splitlines()
    Path("my.yaml").write_text("\n".join(configuration))
    program, *words = shlex.split(command)
    assert program == "virnucpro"
    predict = [*words, "--device", "cpu", "-o"]
    assert call(*predict, "out").code == 0
    rows = table(tmp_path / "out" / "contigs_contigs.tsv")
    assert [(row["record"], row["status"]) for row in rows] == [("v", "scored")]
    assert rows[0]["fdr"] != "NA"  # it is calibrated
    models = json.loads((tmp_path / "out" / "contigs_run.json").read_text())["models"]
    found = [models["nucleotide"][key] for key in ("family", "reads")]
    assert (found, "protein" in models) == (["lite", "whole chunks"], False)
    encoder = folder / RESULTS[0]
    encoder.write_bytes(encoder.read_bytes()[:-9])
    assert call(*predict, "damaged").code == 64


def test_uncalibrated_and_encoders_of_another_training(call, dataset, tmp_path):
    fit(dataset, "-o", tmp_path / "mine", *QUICK)
    only = make_records(tmp_path / "data", genomes=(3, 0, 0), codons=300)
    fit(only, "-o", tmp_path / "other", *QUICK)
    mine, others = ([tmp_path / name / file for file in RESULTS] for name in ("mine", "other"))
    assert inspect_classifier(mine[2]).temperature is not None
    assert inspect_classifier(others[2]).temperature is None
    on = ("-o", tmp_path / "on", "--start-from", mine[0], *QUICK)
    fit(only, *on, "--steps", 0)  # only the classifier is fitted again
    assert mine[0].read_bytes()[-2000:] == (tmp_path / "on" / mine[0].name).read_bytes()[-2000:]
    kept, before = (inspect_classifier(tmp_path / name / mine[2].name) for name in ("on", "mine"))
    assert (kept.temperature, kept.contigs) == (before.temperature, before.contigs)
    mixed = tmp_path / "mixed.yaml"
    mixed.write_text(f"features:\n  dnabert: {{model_name: {others[0]}}}\n")
    custom = ("-m", "custom", "-p", mine[2], "-e", LENGTH, "-c", mixed, "--device", "cpu")
    assert call("predict", "contigs.fa", "-o", "out", *custom).code == 64
