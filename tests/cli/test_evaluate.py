"""``virnucpro evaluate`` from a run of predict to figures and plots."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import custom_toy, open_bases, table
from tests.declared import with_changes
from virnucpro.cli import run as run_program
from virnucpro.report.plots import image_of
from virnucpro.settings import TOY_CLASSIFIER

FILES = ["evaluation.json", "evaluation.md", "evaluation.tsv"]
PLOTS = ["pr.png", "reliability.png", "roc.png"]
RECORDS = 220


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``out``, a toy run, and ``labels.tsv``; two labels, two groups of each.

    What a toy says means nothing, so the truth is made to fit: three of four are right.
    """
    home, rng = tmp_path_factory.mktemp("evaluate"), random.Random(1)
    records = (f">r{n}\n{open_bases(100 + n % 70, n)}\n" for n in range(RECORDS))
    (home / "in.fa").write_text(">closed\nTAATTAATTAATTAATTAATTAA\n" + "".join(records))
    assert run_program(_predict(home, TOY_CLASSIFIER, "out")) == 0
    rows = [row for row in table(home / "out/in_contigs.tsv") if row["status"] == "scored"]
    middle = sorted(float(row["virus_score"]) for row in rows)[len(rows) // 2]
    labels = ["record\tlabel\tgroup\tgenome\n"]
    labels.append("closed\tothers\tPlants\tgc\nabsent\tvirus\tPhages\tga\n")
    for n, row in enumerate(rows):
        virus = (float(row["virus_score"]) > middle) == (rng.random() < 0.75)
        groups = ("Phages", "*Odd|<b>*") if virus else ("Bacteria", "Plants")
        word = "virus" if virus else "others"
        labels.append(f"{row['record']}\t{word}\t{groups[n % 2]}\tg{n // 4}{virus}\n")
    (home / "labels.tsv").write_text("".join(labels))
    return home


@pytest.fixture
def evaluate(call: Callable, made: Path, tmp_path: Path) -> Callable:
    """Evaluate the toy run, or something else, into the folder ``e`` of the test."""

    def _evaluate(*options, of: Path = made / "out", labels: Path = made / "labels.tsv", out="e"):
        return call("evaluate", of, "--labels", labels, "-o", tmp_path / out, *options)

    return _evaluate


def _predict(home: Path, classifier: Path, out: str) -> list[str]:
    arguments = ["predict", home / "in.fa", "-o", home / out, "-q"]
    return list(map(str, [*arguments, *custom_toy(home, classifier, 300)]))


@pytest.mark.parametrize("level", ["frame", "chunk", "contig"])
def test_a_run_is_measured_at_every_level(evaluate, tmp_path, level, monkeypatch):
    if level == "frame":  # the only plots that are drawn
        monkeypatch.setattr("virnucpro.evaluation.plots.image_of", image_of)
    out, done = tmp_path / "e", evaluate("--level", level)
    assert done.code == 0, done.err
    assert sorted(path.name for path in out.iterdir()) == [".checkpoints", *FILES, *PLOTS]
    if level == "frame":
        before = contents(out)
        assert all(before[name].endswith(b"IEND\xaeB`\x82") for name in PLOTS)
        assert (evaluate("--level", level).code, contents(out)) == (0, before)
    found = json.loads((out / "evaluation.json").read_text())
    rows = table(out / "evaluation.tsv")
    groups = ["Bacteria", "Plants", "*Odd|<b>*", "Phages"]
    assert [row["name"] for row in rows if row["slice"] == "group"] == groups
    assert float(rows[0]["auroc"]) == pytest.approx(found["slices"][0]["auroc"], abs=1e-6)
    assert found["counts"]["labelled_records_without_a_row"]["virus"] == 1
    report = (out / "evaluation.md").read_text()
    assert r"\*Odd\|\<b\>\*" in report
    assert "![roc.png](roc.png)" in report


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_something_else_is_refused_and_forced(call, made, tmp_path):
    shutil.copytree(made / "out", tmp_path / "out")
    command = ("evaluate", tmp_path / "out", "--labels", made / "labels.tsv")
    assert call(*command).code == 0
    out = tmp_path / "out/in_chunk_evaluation"  # beside its input
    frames = ("evaluate", tmp_path / "out/in_merged/prediction_results.txt")
    assert call(*frames, *command[2:]).code == 0
    assert (tmp_path / "out/in_frame_evaluation/evaluation.md").exists()
    before = contents(out)
    refused = call(*command, "--threshold", 0.7)
    assert (refused.code, contents(out)) == (3, before)
    assert call(*command, "--threshold", 0.7, "--force").code == 0
    assert json.loads((out / "evaluation.json").read_text())["threshold"] == 0.7


def test_stated_rates_are_compared_with_the_truth(call, evaluate, made, tmp_path):
    new = tmp_path / "new.safetensors"
    new.write_bytes(with_changes(TOY_CLASSIFIER, temperature=1.0))
    home = shutil.copytree(made, tmp_path / "home", ignore=shutil.ignore_patterns("out"))
    assert call(*_predict(home, new, "out")).code == 0
    assert {row["fdr"] for row in table(made / "out/in_contigs.tsv")} == {"NA"}
    rates = [row["fdr"] for row in table(home / "out/in_contigs.tsv")]
    assert rates.count("NA") == 1
    assert evaluate("--level", "contig", of=home / "out", out="f").code == 0
    stated = json.loads((tmp_path / "f/evaluation.json").read_text())["false_discovery_rates"]
    assert stated[-1]["contigs"] == sum(float(rate) <= 0.2 for rate in rates if rate != "NA")
    assert "False discovery rates" in (tmp_path / "f/evaluation.md").read_text()


@pytest.mark.parametrize("options", [("--threshold", "1.5"), ("--labels", "nowhere.tsv")])
def test_wrong_options(evaluate, tmp_path, options):
    assert evaluate(*options).code == 64
    assert not list(tmp_path.glob("e/*"))
