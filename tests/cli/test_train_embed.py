"""``train embed``: features of a data set, each computed once."""

import json

import pytest
import torch

from tests.cli.inputs import poisoned
from tests.training_data import make_dataset
from virnucpro.encoders.toy import ToyEncoder
from virnucpro.io.fasta import read_fasta
from virnucpro.store.features import load_features

TOY = ("--model-type", "toy", "--device", "cpu")


@pytest.fixture
def dataset(tmp_path):
    return make_dataset(tmp_path / "data", genomes=(2, 1, 1), codons=600, shard=15)


def test_features_of_every_frame(call, dataset):
    done = call("train", "embed", dataset.root, *TOY)
    assert done.code == 0, done.err
    assert "Next: virnucpro train classifier" in done.out
    for part in ("train", "validation", "test"):
        layout = dataset.layout(part)
        names = [row.frame for row in dataset.frames(part)]
        files = (layout.features("merged", n + 1) for n in range(dataset.shards(part)))
        merged = [load_features(file, "merged") for file in files]
        assert [name for features in merged for name in features.ids] == names
        sequences = [s for _, s in read_fasta(layout.split("protein", 1))]
        expected = ToyEncoder("protein", 1024).encode(sequences, lambda s, t: None)
        assert torch.equal(merged[0].data[:, 16:], expected)
        record = json.loads(layout.run_record.read_text())
        counts = {"shards": dataset.shards(part), "frames": len(names), "failed": 0}
        assert record["counts"] == counts
        assert record["models"]["protein"]["family"] == "toy-protein"


def test_status(call, dataset):
    assert call("train", "embed", dataset.root, *TOY).code == 0
    assert "train: finished" in call("status", dataset.root).out
    dataset.layout("train").features("merged", 1).unlink()
    assert call("train", "embed", dataset.root, *TOY).code == 0
    assert dataset.layout("train").features("merged", 1).exists()
    assert "chunking" not in call("status", dataset.root).out


def test_other_models_are_refused(call, dataset, reference):
    assert call("train", "embed", dataset.root, *TOY).code == 0
    other = ("--protein-model", reference / "models" / "esm2_t3_tiny_UR50D.pt")
    assert call("train", "embed", dataset.root, *TOY, *other).code == 3
    merged = dataset.layout("train").features("merged", 1)
    assert load_features(merged, "merged").data.shape[1] == 32
    assert call("train", "embed", dataset.root, *TOY, *other, "--force").code == 0
    assert load_features(merged, "merged").data.shape[1] == 16 + 64
    assert dataset.layout("train").split("protein", 1).is_file()  # shards are of train prepare


def test_the_precision_is_that_of_the_start_unless_it_starts_over(call, dataset):
    precision = ("--precision", "bf16")
    for options, expected in ((precision, "bf16"), ((), "bf16"), (("--force",), "fp32")):
        assert call("train", "embed", dataset.root, *TOY, *options).code == 0
        assert json.loads(dataset.layout("train").run_record.read_text())["precision"] == expected


def test_what_cannot_be_embedded(call, dataset, tmp_path):
    embed, layout = ("train", "embed", dataset.root, *TOY), dataset.layout("test")
    assert call("train", "embed", tmp_path / "none", *TOY).code == 64
    whole = call(*embed, "--nucleotide-model", "lite")
    assert (whole.code, "reads whole chunks" in whole.err) == (64, True)
    shards = [layout.split(molecule, 1) for molecule in ("protein", "nucleotide")]
    text = shards[0].read_text()
    shards[0].write_text(text.replace(">", ">x", 1))
    assert call(*embed).code == 65
    shards[0].write_text(text)
    for shard in shards:
        shard.write_text(shard.read_text() + ">more\nACGT\n")
    assert call(*embed).code == 65
    facts = json.loads(dataset.description_file.read_text())
    facts["parts"].pop("test")
    dataset.description_file.write_text(json.dumps(facts))
    assert call(*embed).code == 0


def test_failed_frames_are_left_out_and_tried_again(call, dataset):
    layout, embed = dataset.layout("train"), ("train", "embed", dataset.root, *TOY)
    frame, sequence = list(read_fasta(layout.split("protein", 1)))[3]
    with poisoned(sequence.__eq__):
        assert call(*embed).code == 2
    assert frame in (dataset.root / "failed_files.txt").read_text()
    assert frame not in load_features(layout.features("merged", 1), "merged").ids
    assert json.loads(layout.run_record.read_text())["counts"]["failed"] == 1

    assert call(*embed).code == 0
    assert load_features(layout.features("merged", 1), "merged").ids[3] == frame
    assert json.loads(layout.run_record.read_text())["counts"]["failed"] == 0
    assert not (dataset.root / "failed_files.txt").exists()
