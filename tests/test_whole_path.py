"""From made-up genomes to measured calls, command by command, as docs/training.md leads."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.training.made_genomes import SENSE, write_fasta, write_table

LENGTH = 300
ENDS = {"virus": "AT", "others": "CG"}  # letters in which codons end rather than in others
TOY = "features: {dnabert: {model_name: toy}, esm: {model_name: toy}}\n"
LITE = """features:
  dnabert: {model_name: lite/lite_encoder.safetensors}
"""
STATE = {".checkpoints"}


def genome(label: str, codons: int) -> str:
    """Codons without a stop, some a little more often than others; no two genomes alike."""
    weights = [1.5 if codon[2] in ENDS[label] else 1.0 for codon in SENSE]
    return "".join(random.Random(f"{label} {codons}").choices(SENSE, weights, k=codons))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with genomes of two labels that differ in their codons."""
    monkeypatch.chdir(tmp_path)
    for label in ("virus", "others"):
        records = [(f"{label}{n}", genome(label, 700 + 90 * n)) for n in range(12)]
        write_fasta(tmp_path / f"{label}.fa", records)
    rows = [{"file": f"{name}.fa", "label": name, "group": name} for name in ("virus", "others")]
    write_table(tmp_path / "genomes.tsv", rows)
    (tmp_path / "toy.yaml").write_text(TOY)
    (tmp_path / "my_lite.yaml").write_text(LITE)
    return tmp_path


@pytest.fixture
def twice(call: Callable, home: Path) -> Callable:
    """Carry out a command, then again: it must succeed, say so, and change no file."""

    def _twice(command: str, said: str, *, again: str = "") -> None:
        first = call(*command.split())
        assert first.code == 0, first.err
        before = contents(home)
        second = call(*command.split(), *again.split())
        assert second.code == 0, second.err
        assert said in second.out
        assert contents(home) == before, command

    return _twice


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but states and logs."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not STATE & set(path.relative_to(folder).parts)
    }


def prepare(twice: Callable, home: Path, *, content: str = "frames") -> None:
    """A data set, and its held-out genomes in one file."""
    twice(
        f"train prepare genomes.tsv -o data -e {LENGTH} --content {content} --validation 0.25 "
        f"--test 0.25",
        "The data set is in data",
    )
    header, *lines = (home / "data/genomes.tsv").read_text().splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    held_out = {row["record"] for row in rows if row["part"] == "test"}
    assert {row["label"] for row in rows if row["part"] == "test"} == {"virus", "others"}
    texts = [
        record
        for label in ("virus", "others")
        for record in (home / f"{label}.fa").read_text().split(">")[1:]
        if record.split()[0] in held_out
    ]
    (home / "held_out.fa").write_text("".join(f">{text}" for text in texts))


def measured(twice: Callable, home: Path, level: str) -> dict:
    """What ``evaluate`` finds for the whole of the held-out genomes."""
    twice(f"evaluate held_out --labels data/genomes.tsv --level {level} -o {level}", "auroc")
    found = json.loads((home / level / "evaluation.json").read_text())
    assert found["counts"]["rows_of_the_training_part"] == 0
    return found["slices"][0]


def test_embed_and_classifier(twice: Callable, home: Path) -> None:
    prepare(twice, home)
    twice("train embed data -m toy --device cpu", "Nothing to compute")
    options = "--hidden 16 --epochs 5 --learning-rate 0.01 --batch-size 16 --processes 1"
    twice(
        f"train classifier data --output my.safetensors {options}",
        "Nothing to do",
        again="--resume",
    )
    custom = f"-m custom -p my.safetensors -e {LENGTH} -c toy.yaml --device cpu"
    twice(f"predict held_out.fa -o held_out {custom}", "held_out", again="--resume")
    assert measured(twice, home, "chunk")["auroc"] > 0.9
    assert measured(twice, home, "contig")["auroc"] > 0.9


def test_lite(twice: Callable, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virnucpro.training.lite.BATCH_BASES", 12_000)
    prepare(twice, home, content="records")
    twice("train lite data -o lite --steps 20 --threads 1", "was already trained")
    custom = f"-m custom -p lite/lite_classifier.safetensors -e {LENGTH} -c my_lite.yaml"
    twice(f"predict held_out.fa -o held_out {custom} --device cpu", "held_out", again="--resume")
    # The made genomes differ in their bases, too, and lite is trained not to look at their GC.
    assert measured(twice, home, "chunk")["auroc"] > 0.85
    assert measured(twice, home, "contig")["auroc"] > 0.9
