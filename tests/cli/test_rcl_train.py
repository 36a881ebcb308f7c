"""``rcl train``: the folder of a run, the configuration of RCL-identifier, and interruptions."""

from __future__ import annotations

import json
import signal

import pytest
import torch
import yaml

from tests.faults.processes import until
from tests.unit.rcl.made_proteins import write_tables
from virnucpro.rcl.model_files import read_rcl_model
from virnucpro.store.disk import Disk
from virnucpro.training.savepoint import Savepoint, save_savepoint

SMALL = {
    "models": {
        "unet": {"base_filters": 4, "depth": 2},
        "cnn": {"channels": [8], "kernel_sizes": [5]},
    },
    "training": {"epochs": 2, "batch_size": 8, "learning_rate": "1e-2"},
}
# The config.yaml of RCL-identifier: all of its sections and keys.
WHOLE = {
    "data": {"max_length": 128, "train_split": 0.8, "val_split": 0.1, "test_split": 0.1,
             "random_seed": 42, "fasta_annotations": "x.fasta", "train_serpin": "serpins.csv",
             "train_non_serpin": "others.csv", "test_serpin": "t.csv", "test_non_serpin": "u.csv"},
    "encoding": {"onehot": {"dim": 21}, "blosum": {"dim": 20},
                 "esm2": {"model_name": "facebook/esm2_t33_650M_UR50D", "dim": 1280, "batch_size": 4},
                 "esm2_650m": {"dim": 1280, "batch_size": 1}},
    "models": {"cnn": {"channels": [8, 4], "kernel_sizes": [5, 3], "dropout": 0.3},
               "unet": {"base_filters": 4, "depth": 2, "dropout": 0.25, "attention": True},
               "lstm": {"hidden_dim": 8, "num_layers": 1, "dropout": 0.3, "num_classes": 2},
               "graph": {"hidden_dim": 128, "num_layers": 3, "dropout": 0.3, "k_neighbors": 5}},
    "training": {"batch_size": 8, "epochs": 2, "learning_rate": 0.001, "weight_decay": 0.0001,
                 "patience": 5, "loss_weights": [1.0, 5.0], "optimizer": "adam",
                 "scheduler": "reduce_on_plateau", "save_top_k": 3, "monitor": "val_f1", "mode": "max"},
    "evaluation": {"metrics": ["accuracy", "auc"], "threshold": 0.4},
    "hardware": {"device": "cuda", "num_workers": 4, "pin_memory": True, "mixed_precision": True,
                 "use_multi_gpu": False, "gpu_ids": []},
    "logging": {"use_tensorboard": True, "log_interval": 10, "save_predictions": True},
    "output": {"runs_dir": "runs", "models_dir": "models", "predictions_dir": "predictions"},
}  # fmt: skip
FILES = {"best_model.safetensors", "final_model.safetensors", "config.json", "split.tsv",
         "training_history.json", "loss_curve.png", "metrics_curve.png"}  # fmt: skip


@pytest.fixture
def train(call, tmp_path):
    serpins, others = write_tables(tmp_path / "tables")
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(SMALL))

    def _train(runs, *options):
        tables = ("--serpins", serpins, "--others", others, "--device", "cpu")
        start = ("rcl", "train", "--config", config, "--output-dir", runs)
        # All of these proteins have the motif, so they are one cluster.
        return call(*start, *tables, "--no-tensorboard", "-t", 1, "--split", "random", *options)

    return _train


def test_the_configuration_of_the_original_is_accepted_whole(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(WHOLE))
    options = ("--encoding", "blosum", "--model", "cnn", "--split", "random", "--epochs", 1)
    done = call("rcl", "train", "--config", "config.yaml", *options, "--device", "cpu")
    assert done.code == 0, done.err
    warnings = [line for line in done.err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    unused = warnings[0].partition("not read: ")[2].split(", ")
    assert {"data.val_split", "models.graph.hidden_dim", "training.save_top_k"} <= set(unused)
    assert not {key for key in unused if key.startswith("training.mo") or "test_serpin" in key}
    folder = tmp_path / "runs/run_001"
    assert {path.name for path in folder.iterdir()} == FILES | {"tensorboard", ".checkpoints"}
    assert not (folder / ".checkpoints/training.pt").exists()
    config = json.loads((folder / "config.json").read_text())
    assert config["training"]["epochs"] == 1  # the option wins
    assert config["hardware"]["mixed_precision"]
    history = json.loads((folder / "training_history.json").read_text())
    assert set(history["val_metrics"]) >= {"accuracy", "precision", "recall", "f1", "mcc", "auc"}
    model = read_rcl_model(folder)
    assert (model.kind, model.encoding, model.padding) == ("cnn", "blosum", "masked")
    assert model.threshold == 0.4
    assert list(model.settings["channels"]) == [8, 4]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scalars = EventAccumulator(str(folder / "tensorboard")).Reload()
    (f1,) = scalars.Scalars("validation/f1")
    assert (f1.step, f1.value) == (1, pytest.approx(history["val_metrics"]["f1"][0]))
    assert scalars.Scalars("loss/train")[0].value == pytest.approx(history["train_losses"][0])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"training": {"epochs": "many"}}, "training.epochs is 'many', expected a whole number"),
        ({"training": {"loss_weights": [1]}}, "training.loss_weights"),
        ({"hardware": {"mixed_precision": "yes"}}, "expected true or false"),
        ({"models": {"cnn": {"channels": "wide"}}}, "models.cnn.channels"),
        ({"models": {"cnn": {"kernel_sizes": [4] * 4}}}, "must be odd"),
        ([1, 2], "expected sections"),
    ],
)
def test_configurations_that_are_wrong(call, tmp_path, section, message):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(section))
    options = ("--serpins", "x.csv", "--model", "cnn", "--device", "cpu")
    done = call("rcl", "train", "--config", config, *options)
    assert done.code == 64
    assert message in done.err


def test_same_bytes_and_what_is_there_is_kept(train, tmp_path):
    runs = tmp_path / "runs"
    assert train(runs).code == 0
    assert train(runs).code == 0  # a finished run is kept: each start is a run of its own
    names = FILES - {"config.json"}
    for name in names:
        one, two = (runs / run / name for run in ("run_001", "run_002"))
        assert one.read_bytes() == two.read_bytes(), name
    assert train(tmp_path / "other", "--seed", 7).code == 0
    model = "run_001/best_model.safetensors"
    assert (tmp_path / "other" / model).read_bytes() != (runs / model).read_bytes()
    split = runs / "run_001/split.tsv"
    done = train(tmp_path / "again", "--split", split, "--recipe", "original", "--model", "cnn")
    assert done.code == 0, done.err
    assert (tmp_path / "again/run_001/split.tsv").read_text().splitlines()[1:] != []
    assert read_rcl_model(tmp_path / "again/run_001").padding == "padded 1024"


def test_what_cannot_be_trained(call, train, tmp_path):
    assert "--serpins" in call("rcl", "train", "--device", "cpu").err
    assert train(tmp_path / "a", "--batch-size", 2, "--processes", 2, "--device", "cpu").code == 64
    assert train(tmp_path / "a", "--split", "nowhere").code == 64
    few = tmp_path / "few.csv"
    few.write_text("id,rcl_start,rcl_end,Sequence\nA,2,4,MKLVMKLV\n")
    done = call("rcl", "train", "--serpins", few, "--output-dir", tmp_path / "b", "--device", "cpu")
    assert done.code == 65
    assert "proteins with an RCL, and needs 2" in done.err


def test_a_training_of_a_version_without_averaged_weights(train, tmp_path):
    """It is neither continued nor touched."""
    runs = tmp_path / "runs"
    assert train(runs).code == 0
    config = json.loads((runs / "run_001/config.json").read_text())
    identity = config["virnucpro"]["identity"]
    del identity["averaged"]
    savepoint = runs / "run_001/.checkpoints/training.pt"
    save_savepoint(savepoint, Savepoint(identity), Disk())
    before = savepoint.read_bytes()
    refused = train(runs, "--resume")
    assert refused.code == 3
    assert "averaged: was" in refused.err
    assert train(runs).code == 0
    assert (runs / "run_002/best_model.safetensors").exists()
    assert savepoint.read_bytes() == before


def test_killed_interrupted_and_gone_on_with(start, train, tmp_path):
    """The end is that of a training that nobody disturbed."""
    long = tmp_path / "long.yaml"
    long.write_text(yaml.safe_dump({**SMALL, "training": {"epochs": 10, "patience": 10}}))
    runs, tables = tmp_path / "runs", tmp_path / "tables"
    savepoint = runs / "run_001/.checkpoints/training.pt"
    command = ["virnucpro", "rcl", "train", "--config", long, "--output-dir", runs]
    command += ["--serpins", tables / "serpins.csv", "--others", tables / "others.csv"]
    command += ["--device", "cpu", "--no-tensorboard", "-t", 1, "--split", "random"]

    def epochs() -> int:
        if not savepoint.exists():
            return 0
        return int(torch.load(savepoint, weights_only=True)["epoch"])

    for number, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        before = epochs()
        process = start(*command)
        until(lambda: epochs() > before or process.poll() is not None)  # noqa: B023
        process.send_signal(number)
        assert process.wait() == code
        assert savepoint.exists()
    refused = train(runs, "--config", long, "--seed", 3, "--resume")
    assert refused.code == 3
    assert "seed: was 42, is 3" in refused.err
    done = train(runs, "--config", long)
    assert done.code == 0, done.err
    assert "going on in epoch" in done.err
    assert not (runs / "run_002").exists()
    assert train(tmp_path / "whole", "--config", long).code == 0
    for name in FILES - {"config.json"}:
        assert (runs / "run_001" / name).read_bytes() == (
            tmp_path / "whole/run_001" / name
        ).read_bytes(), name
