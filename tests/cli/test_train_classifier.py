"""``train classifier``: the whole path to calls, what is refused, and interruptions."""

import os
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.faults.processes import family, running, until
from tests.training_data import LENGTH, embed_toy, genome, make_dataset
from tests.unit.encoders.small import fair_model, save_fair
from virnucpro.classifier.files import inspect_classifier
from virnucpro.cli.train import training_machine
from virnucpro.training.features import find_features
from virnucpro.training.loop import load_savepoint

QUICK = ("--hidden", 16, "--epochs", 3, "--learning-rate", 0.01, "--threads", 1)
LONG = ("--hidden=16", "--epochs=30", "--patience=30", "--batch-size=16", "-t1", "--processes")
FEW = ("--batch-size", 64)  # steps of an epoch: processes wait for each other in every one


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Embedded; not to be changed."""
    made = make_dataset(tmp_path_factory.mktemp("data"), codons=800)
    embed_toy(made)
    return made


@pytest.fixture
def train(call, dataset):
    command = ("train", "classifier", dataset.root, "--output")
    return lambda output, *options: call(*command, output, *options)


def test_the_next_command_works_as_printed(call, tmp_path, monkeypatch):
    made = make_dataset(tmp_path / "data", codons=300)
    folder = tmp_path / "my models"
    folder.mkdir()
    file = save_fair(fair_model(), folder / "esm.pt")
    embed_toy(made, protein_model=str(file))
    done = call("train", "classifier", made.root, "-o", tmp_path / "my own.safetensors", *QUICK)
    assert done.code == 0, done.err
    command, _, configuration = done.out.partition("Next: ")[2].partition(
        "\nwith this in my.yaml:\n"
    )
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(configuration)
    Path("contigs.fa").write_text(f">a\n{genome('virus', 300, 1)}\n")
    assert call(*shlex.split(command)[1:]).code == 0
    assert (tmp_path / "contigs_predictions/contigs_contigs.tsv").exists()


def _facts(output):
    """What the model card of a classifier says: the cells behind each name."""
    rows = output.with_suffix(".md").read_text().splitlines()
    cells = [[cell.strip() for cell in row.strip("| ").split("|")] for row in rows if "|" in row]
    return {name: values for name, *values in cells}


def test_what_a_classifier_and_its_card_say(train, dataset, tmp_path):
    output = tmp_path / "my.safetensors"
    assert train(output, *QUICK).code == 0
    info = inspect_classifier(output)
    assert info.encoders == ("toy-nucleotide", "toy-protein")
    assert (info.chunk_lengths, info.extra["seed"]) == ((LENGTH,), "42")
    assert (info.model.input_width, info.model.hidden) == (32, 16)
    assert str(tmp_path) not in output.read_bytes().decode("latin-1")
    assert not list(tmp_path.glob(".checkpoints/*.pt"))
    parts, said = dataset.description["parts"], _facts(output)
    assert said["train frames"] == [str(parts["train"]["frames"])]
    assert said["frames"] == [f"{parts[part]['frames']:,}" for part in ("validation", "test")]
    test = find_features(dataset, "test")
    called = info.model.scores(test.take(np.arange(len(test)))).argmax(1).numpy()
    (accuracy,) = (values for name, values in said.items() if name.startswith("accuracy"))
    assert accuracy[1] == f"{(called == test.labels).mean():.4f}"


def test_the_best_network_is_measured_and_written(train, tmp_path):
    """A rate far too high, so that the last epoch is not the best; then only up to the best."""
    long, short = tmp_path / "long" / "my.safetensors", tmp_path / "short" / "my.safetensors"
    long.parent.mkdir()
    words = ("--hidden", 16, "--learning-rate", 0.5, "--patience", 2, "-t", 1, "--epochs")
    assert train(long, *words, 60).code == 0
    best, _, last = _facts(long)["kept epoch"][0].partition(" of ")
    assert int(best) + 2 == int(last) < 60  # the patience
    assert train(short, *words, best).code == 0
    assert inspect_classifier(long).temperature == inspect_classifier(short).temperature
    cards = [path.with_suffix(".md").read_text() for path in (long, short)]
    assert len({card.split("## How good")[1] for card in cards}) == 1
    for key, value in load_file(long).items():
        assert torch.equal(value, load_file(short)[key]), key


def test_one_device_is_used_unless_several_are_asked_for():
    none = dict.fromkeys(("multi_gpu", "gpu_ids", "processes"))
    for several, most in (({}, 1), ({"multi_gpu": True}, None), ({"gpu_ids": "0,1"}, None)):
        assert training_machine(None, none | several).max_workers == most


def test_what_cannot_be_trained(call, train, tmp_path):
    assert train(tmp_path / "my.pth").code == 64
    assert train(tmp_path / "a.safetensors", "--processes", 2, "--multi-gpu").code == 64
    output = ("--output", tmp_path / "a.safetensors", *QUICK)
    raw = make_dataset(tmp_path / "raw", genomes=(2, 1, 0), codons=300)
    none = make_dataset(tmp_path / "none", genomes=(2, 0, 1), codons=300)
    assert call("train", "classifier", raw.root, *output).code == 64  # not embedded
    for made, code in ((raw, 0), (none, 64)):
        embed_toy(made)
        assert call("train", "classifier", made.root, *output).code == code
    assert "The test part was\nempty" in (tmp_path / "a.md").read_text()
    raw.description_file.write_text(raw.description_file.read_text() + "\n")  # prepared again
    assert call("train", "classifier", raw.root, *output, "--force").code == 64


@pytest.fixture
def start_training(start, dataset):
    """Start a training in a process of its own."""
    command = ("virnucpro", "train", "classifier", dataset.root, "--output")
    return lambda output, *options: start(*command, output, *options)


def until_epochs(output, more):
    """Wait until so many epochs more are saved than when it was called; returns their number."""
    path = output.parent / ".checkpoints" / f"{output.name}.training.pt"
    before = load_savepoint(path).epoch if path.exists() else 0

    def there():
        return path.exists() and load_savepoint(path).epoch >= before + more

    until(there, 120)
    return path


def test_killed_and_interrupted_and_gone_on_with(start_training, train, tmp_path):
    whole, pieces = tmp_path / "whole.safetensors", tmp_path / "pieces.safetensors"
    assert train(whole, *LONG, 1).code == 0
    process = start_training(pieces, *LONG, 1)
    path = until_epochs(pieces, 1)
    process.kill()
    process.wait()
    process = start_training(pieces, *LONG, 1)  # goes on: until_epochs asks for one epoch more
    until_epochs(pieces, 1)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130, process.err
    assert "the same command" in process.err
    assert not load_savepoint(path).finished
    assert train(pieces, *LONG, 1, "--resume").code == 0
    assert pieces.read_bytes() == whole.read_bytes()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_several_processes(start_training, train, tmp_path):
    """They equal one; a dead one ends the rest, an interruption all; nothing is left behind."""
    single, several = tmp_path / "single.safetensors", tmp_path / "several.safetensors"
    assert train(single, *LONG, 1, *FEW).code == 0
    process = start_training(several, *LONG, 2, *FEW)
    until_epochs(several, 1)
    members = sorted(family(process.pid))
    assert len(members) == 2
    os.kill(members[0], signal.SIGKILL)
    assert process.wait() == 4, process.err
    assert "ended by signal 9" in process.err
    assert not any(running(pid) for pid in members)

    process = start_training(several, *LONG, 2, *FEW, "--resume")
    until_epochs(several, 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143, process.err

    assert train(several, *LONG, 2, *FEW, "--resume").code == 0
    one, two = load_file(single), load_file(several)
    for key, value in one.items():
        assert torch.allclose(value, two[key], atol=1e-5, rtol=1e-5), key
