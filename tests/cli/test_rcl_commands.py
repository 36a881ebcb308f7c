"""The commands of RCL-identifier, each in its form of today, with small data."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.unit.encoders.small import fair_model, save_fair
from tests.unit.rcl.made_proteins import proteins, write_tables
from virnucpro.rcl.models import read_rcl_model

PAGE = Path(__file__).parents[2] / "docs/rcl.md"
CONFIG = {
    "data": {"train_serpin": "serpins.csv", "train_non_serpin": "others.csv"},
    "models": {"unet": {"base_filters": 2, "depth": 2}},
    "training": {"epochs": 1, "batch_size": 8},
    "logging": {"use_tensorboard": False},
}
SPLIT = ["--split", "random"]  # all proteins of these tables have the motif: they are one cluster
# What is added to a command, for small data.
MORE = {
    "train": ["--config", "config.yaml", *SPLIT, "-t", "1"],
    "embed": ["--esm-model", "tiny.pt", "--esm-batch-size", "2048", "--device", "cpu", "-t", "1"],
    "predict": ["--device", "cpu", "-t", "1"],
    "evaluate": ["--device", "cpu", "-t", "1"],
    "validate": [],
}
PLACES = {"FASTA": "proteins.fa", "TABLE": "serpins.csv", "MODEL": "runs/run_001"}
FILES = {"--serpins": "serpins.csv", "--others": "others.csv"}
GPUS = "--multi-gpu|--gpu-ids 0,1"


def _commands() -> list[list[str]]:
    """The second column of the table, as it can be run where there is no GPU."""
    section = PAGE.read_text().partition("## The commands of RCL-identifier\n")[2]
    table = section.partition("\n## ")[0]
    commands = []
    for text in re.findall(r"^\|.*\| `virnucpro rcl ([^`]+)`", table, re.MULTILINE):
        words = shlex.split(re.sub(GPUS, "--processes 2", text))
        words = [PLACES.get(word, word) for word in words]
        for name, file in FILES.items():
            if name in words:
                words[words.index(name) + 1] = file
        if words[0] == "train" and "--processes" not in words:
            words += ["--device", "cpu"]
        words += MORE[words[0]]
        if words not in commands:
            commands.append(words)
    return commands


def test_every_command_of_the_table_runs(
    call: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    save_fair(fair_model(layers=1, width=320, heads=4), tmp_path / "tiny.pt")
    Path("config.yaml").write_text(yaml.safe_dump(CONFIG))
    Path("proteins.fa").write_text(f">a\n{proteins(1)[0].sequence}\n")
    commands = _commands()
    trainings = 0
    for number, words in enumerate(commands):
        if words[0] in ("predict", "evaluate") and "--output-dir" not in words:
            words += ["--output-dir", f"out{number}"]
        done = call("rcl", *words)
        assert done.code == 0, (words, done.err)
        if words[0] != "train":
            continue
        trainings += 1
        run = Path(f"runs/run_{trainings:03d}")
        assert read_rcl_model(run).kind == "unet"
        training = json.loads((run / "config.json").read_text())["training"]
        for name, key in (("--lr", "learning_rate"), ("--epochs", "epochs")):
            if name in words:
                assert training[key] == float(words[words.index(name) + 1])
        assert ("2 processes" in done.err) == ("--processes" in words)
    assert {words[0] for words in commands} == set(MORE)
    assert trainings >= 6
    assert len(list(Path().glob("out*/proteins_blosum_*_thr0p60.fasta"))) == 2
    assert Path("D/proteins_hmm_RCL_predictions_thr0p50.tsv").is_file()
