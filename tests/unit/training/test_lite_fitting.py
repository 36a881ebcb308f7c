"""From a data set to the files of a lite model: the same to the byte, also when interrupted."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch
import train as trainer
from safetensors.torch import load_file
from train import CLASSIFIER, ENCODER, fit_lite
from windows import read_mask

from tests.training_data import make_records
from tests.unit.training.made_genomes import RecordedProgress
from tests.unit.training.test_lite_trainer import SETTINGS as SHORT
from virnucpro.classifier.files import inspect_classifier
from virnucpro.errors import InputError, ResumeRefusedError, RunInterruptedError
from virnucpro.events import StepAdvanced
from virnucpro.store.hashed import hashed
from virnucpro.tables import REGIONS
from virnucpro.workers.signals import Interruption

SETTINGS = replace(SHORT, steps=5)
NAMES = ("lite.json", "lite_classifier.safetensors", "lite_encoder.safetensors")


class Stops(RecordedProgress):
    """A display that interrupts after so many batches."""

    def __init__(self, after=10**9):
        super().__init__()
        self.interruption = Interruption()
        self.seen = 0
        self._after = after

    def show(self, event):
        if isinstance(event, StepAdvanced):
            self.seen += event.amount
            if self.seen == self._after and self.interruption.number is None:
                self.interruption.receive(15)


@pytest.fixture(autouse=True, scope="module")
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "BATCH_BASES", 6000)
        patch.setattr(trainer, "SAVED_STEPS", 2)
        patch.setattr("virnucpro.training.loop.REPORT_SECONDS", 0.0)
        yield


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_records(tmp_path_factory.mktemp("data") / "set", codons=500)


def fit(dataset, root, stops=None, settings=SETTINGS, **options):
    stops = stops or Stops()
    return fit_lite(dataset, root, settings, stops.show, **options)


def contents(root):
    return {name: (root / name).read_bytes() for name in NAMES}


@pytest.fixture(scope="module")
def done(dataset, tmp_path_factory):
    """A finished training; not to be changed."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("done")
    fit(dataset, root)
    return root


def test_what_is_written(dataset, done):
    assert sorted(p.name for p in done.iterdir() if p.name != ".checkpoints") == sorted(NAMES)
    facts = json.loads((done / "lite.json").read_text())
    assert facts["command"] == "examples/lite/train.py DATASET --output-dir DIR --steps 5 --seed 0"
    assert facts["data_set"] == hashed(dataset.description_file).sha256
    assert facts["settings"]["steps"] == 5
    info, digest = inspect_classifier(done / CLASSIFIER), hashed(done / ENCODER).sha256
    assert info.temperature == facts["temperature"] > 0
    assert (info.encoders, info.chunk_lengths, list(info.contigs)) == (("lite",), (300,), [300])
    assert info.extra["encoder_sha256"] == facts["encoder"] == digest
    classifier = load_file(done / CLASSIFIER)
    assert torch.equal(*(classifier["hidden_layer.weight"] * torch.tensor([[1.0], [-1.0]])))
    for part in ("validation", "test"):
        row = facts["chunk_auroc"][part]["300"]
        assert (row["chunks"], row["virus"]) == (20, 10)
        assert 0 <= row["auroc"] <= 1


def test_the_same_again_is_the_same_to_the_byte(dataset, done, tmp_path):
    fit(dataset, tmp_path / "deep" / "folder")
    assert contents(tmp_path / "deep" / "folder") == contents(done)
    assert str(done).encode() not in b"".join(contents(done).values())
    fit(dataset, tmp_path / "other", settings=replace(SETTINGS, seed=1))
    other = contents(tmp_path / "other")
    assert all(other[name] != data for name, data in contents(done).items())


REGION = "r\t{record}\t{start}\t{end}\t1\t1\t1\t0.9\t-0.9\tFalse\n"


def mask(path, end=700):
    path.write_text(REGIONS.header + REGION.format(record="train_others_0", start=1, end=end))
    return path


def test_masked_regions_are_not_trained_on(dataset, done, tmp_path):
    table = mask(tmp_path / "regions.tsv")
    fit(dataset, tmp_path / "masked", mask=table)
    facts = json.loads((tmp_path / "masked" / "lite.json").read_text())
    assert facts["settings"]["mask"] == hashed(table).sha256
    assert facts["command"].endswith("--seed 0 --mask REGIONS")
    made, unmasked = (load_file(root / ENCODER) for root in (tmp_path / "masked", done))
    assert any(not torch.equal(made[name], unmasked[name]) for name in made)
    with pytest.raises(ResumeRefusedError, match="mask: was"):
        fit(dataset, tmp_path / "masked", mask=mask(table, end=701))


def test_regions_of_viruses_are_not_masked(dataset, tmp_path):
    table = mask(tmp_path / "regions.tsv")
    rows = [("train_virus_0", 1, 900), ("train_others_1", 3, 4), ("train_others_0", 1001, 1500)]
    with table.open("a") as stream:
        stream.writelines(REGION.format(record=r, start=s, end=e) for r, s, e in rows)
    assert read_mask(table, dataset) == {
        "train_others_0": [(0, 700, "", False), (1000, 1500, "", False)],
        "train_others_1": [(2, 4, "", False)],
    }
    rows = "train_others_0\trRNA\t1\t700\t\ntrain_others_0\tproviruses\t800\t900\tvirus\n"
    table.write_text("record\tgroup\tstart\tend\tlabel\n" + rows)
    regions = [(0, 700, "rRNA", False), (799, 900, "proviruses", True)]
    assert read_mask(table, dataset) == {"train_others_0": regions}


@pytest.mark.parametrize(
    "region", ["Q 1 9", "R 1 1501", "R 701 700", "R x 9", "R 1 9 g vrius", "R 1 9  virus"]
)
def test_a_mask_that_does_not_fit(dataset, tmp_path, region):
    table, row = tmp_path / "mask.tsv", region + " " * (4 - region.count(" "))
    row = row.replace("R", "train_others_0").replace(" ", "\t")
    table.write_text(f"record\tstart\tend\tgroup\tlabel\n{row}\n")
    with pytest.raises(InputError, match=re.escape(f"{table}: line 2: ")):
        fit(dataset, tmp_path / "masked", mask=table)
    assert not (tmp_path / "masked").exists()


@pytest.mark.parametrize("after", [1, 3, 5])
def test_interrupted_and_gone_on_with(dataset, done, tmp_path, after):
    stops = Stops(after)
    with pytest.raises(RunInterruptedError):
        fit(dataset, tmp_path, stops=stops)
    savepoint = tmp_path / "lite.savepoint.pt"
    assert savepoint.exists()
    assert not (tmp_path / CLASSIFIER).exists()
    again = Stops()
    assert fit(dataset, tmp_path, stops=again) is not None
    assert again.seen == SETTINGS.steps - after // 2 * 2
    assert contents(tmp_path) == contents(done)
    assert not savepoint.exists()
