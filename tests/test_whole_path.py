"""From made-up genomes to measured calls, command by command, as docs/training.md leads."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import custom_toy, table
from tests.unit.training.made_genomes import SENSE, write_fasta, write_table

LENGTH = 300
ENDS = {"virus": "AT", "others": "CG"}  # letters in which codons end rather than in others


def genome(label: str, codons: int) -> str:
    """Codons without a stop, some a little more often than others; no two genomes alike."""
    weights = [1.5 if codon[2] in ENDS[label] else 1.0 for codon in SENSE]
    return "".join(random.Random(f"{label} {codons}").choices(SENSE, weights, k=codons))


def contents() -> dict[str, bytes]:
    """Every file but states and logs."""
    files = (path for path in Path().rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if ".checkpoints" not in path.parts}


@pytest.fixture
def twice(call: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Carry out a command, then again: it must succeed, say so, and change no file.

    It works in a folder with genomes of two labels that differ in their codons.
    """
    monkeypatch.chdir(tmp_path)
    for label in ENDS:
        records = [(f"{label}{n}", genome(label, 700 + 90 * n)) for n in range(12)]
        write_fasta(Path(f"{label}.fa"), records)
    rows = [{"file": f"{name}.fa", "label": name, "group": name} for name in ENDS]
    write_table(Path("genomes.tsv"), rows)

    def _twice(command: str, said: str, *, again: str = "") -> None:
        assert call(*command.split()).code == 0
        before = contents()
        second = call(*command.split(), *again.split())
        assert second.code == 0, second.err
        assert said in second.out
        assert contents() == before, command

    return _twice


def test_embed_and_classifier(twice):
    """The whole of the held-out genomes is predicted, and measured."""
    options = f"-e {LENGTH} --validation 0.25 --test 0.25"
    twice(f"train prepare genomes.tsv -o data {options}", "The data set is in data")
    twice("train embed data -m toy --device cpu", "Nothing to compute")
    options = "--hidden 16 --epochs 5 --learning-rate 0.01 --batch-size 16 --processes 1"
    train = f"train classifier data --output my.safetensors {options}"
    twice(train, "Nothing to do", again="--resume")
    test = [row for row in table(Path("data/genomes.tsv")) if row["part"] == "test"]
    assert {row["label"] for row in test} == set(ENDS)
    held_out = {row["record"] for row in test}
    records = [text for name in ENDS for text in Path(f"{name}.fa").read_text().split(">")[1:]]
    texts = [f">{text}" for text in records if text.split()[0] in held_out]
    Path("held_out.fa").write_text("".join(texts))
    options = " ".join(map(str, custom_toy(Path(), Path("my.safetensors"), LENGTH)))
    twice(f"predict held_out.fa -o held_out {options}", "held_out", again="--resume")
    for level in ("chunk", "contig"):
        evaluate = f"evaluate held_out --labels data/genomes.tsv --level {level} -o {level}"
        twice(evaluate, "auroc")
        found = json.loads(Path(level, "evaluation.json").read_text())
        assert found["counts"]["rows_of_the_training_part"] == 0
        assert found["slices"][0]["auroc"] > 0.9
