"""``rcl train``: the folder of a run, the configuration of RCL-identifier, and interruptions."""

import json

import pytest
import yaml

from tests.unit.rcl.made_proteins import write_tables
from virnucpro.rcl.models import read_rcl_model

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
         "training_history.json"}  # fmt: skip


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
    warnings = [text for text in warnings if "config.yaml" in text]  # others are of the processor
    assert len(warnings) == 1
    unused = warnings[0].partition("not read: ")[2].split(", ")
    assert {"data.val_split", "models.graph.hidden_dim", "training.save_top_k"} <= set(unused)
    assert not {"data.max_length", "models.cnn.dropout", "evaluation.threshold"} & set(unused)
    folder = tmp_path / "runs/run_001"
    assert {path.name for path in folder.iterdir()} == FILES | {"tensorboard", ".checkpoints"}
    assert not (folder / ".checkpoints/training.pt").exists()
    config = json.loads((folder / "config.json").read_text())
    assert config["training"]["epochs"] == 1  # the option wins
    assert config["hardware"]["mixed_precision"]
    history = json.loads((folder / "training_history.json").read_text())
    model = read_rcl_model(folder)
    assert (model.encoding, model.threshold) == ("blosum", 0.4)
    assert [layer.conv.out_channels for layer in model.network.conv_layers] == [8, 4]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scalars = EventAccumulator(str(folder / "tensorboard")).Reload()
    (f1,) = scalars.Scalars("validation/f1")
    assert (f1.step, f1.value) == (1, pytest.approx(history["val_metrics"]["f1"][0]))
    assert scalars.Scalars("loss/train")[0].value == pytest.approx(history["train_losses"][0])


@pytest.mark.parametrize(
    "section",
    [{"training": {"epochs": "many"}}, {"training": {"loss_weights": [1]}}, [1, 2],
     {"precision": "half"},
     {"hardware": {"mixed_precision": "yes"}}, {"models": {"cnn": {"channels": "wide"}}},
     {"models": {"cnn": {"kernel_sizes": [4] * 4}}}, {"models": {"cnn": {"kernel_sizes": [3]}}},
     {"training": {"optimizer": "sgd"}}, {"data": {"train_split": 1}},
     {"training": {"learning_rate": float("nan")}}],
)  # fmt: skip
def test_configurations_that_are_wrong(call, tmp_path, section):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(section))
    options = ("--serpins", "x.csv", "--model", "cnn", "--device", "cpu")
    assert call("rcl", "train", "--config", config, *options).code == 64


def test_same_bytes_and_what_is_there_is_kept(train, tmp_path):
    runs = tmp_path / "runs"
    first, second, other = runs / "run_001", runs / "run_002", runs / "run_003"
    for options in ((), (), ("--seed", 7)):  # each start is a run of its own
        assert train(runs, *options).code == 0
    for name in FILES - {"config.json"}:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    model = "best_model.safetensors"
    assert (other / model).read_bytes() != (first / model).read_bytes()
    assert train(runs, "--split", other / "split.tsv", "--model", "cnn").code == 0
    split = (runs / "run_004/split.tsv").read_bytes()
    assert split == (other / "split.tsv").read_bytes() != (first / "split.tsv").read_bytes()


def test_what_cannot_be_trained(call, train, tmp_path):
    assert "--serpins" in call("rcl", "train", "--device", "cpu").err
    assert train(tmp_path / "a", "--batch-size", 2, "--processes", 2, "--device", "cpu").code == 64
    assert train(tmp_path / "a", "--split", "nowhere").code == 64
    few = tmp_path / "few.csv"
    few.write_text("id,rcl_start,rcl_end,Sequence\nA,2,4,MKLVMKLV\n")
    assert train(tmp_path / "a", "--serpins", few).code == 65
