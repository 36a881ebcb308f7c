"""``virnucpro models calibrate``, and what predict and call make of a calibration."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import msgspec
import numpy as np
import pandas
import pytest
import torch

from tests.cli.inputs import CODONS, custom_toy, open_bases, table
from tests.unit.encoders.small import ESM_WIDTH, fair_model, make_dnabert, save_fair
from tests.unit.test_classifier import MLPClassifier
from virnucpro.classifier.calibration import (
    SUFFIX,
    Calibration,
    find_calibrations,
    read_calibration,
)
from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.evidence import no_evidence
from virnucpro.classifier.files import inspect_classifier
from virnucpro.encoders.registry import locate
from virnucpro.errors import InputError
from virnucpro.evaluation import calibrate
from virnucpro.evaluation.calibrate import (
    RECORDS,
    Contigs,
    figures_of,
    fit_contigs,
    known_records,
)
from virnucpro.settings import LITE_CLASSIFIER, TOY_CLASSIFIER
from virnucpro.stages.calls import FAILED, SCORED, Chunks, summarise
from virnucpro.store.hashed import hashed

MODEL = ContigModel(0.1, 0.9, 0.3, -0.1, 0.0, -2.0, -0.5, 1.0, 0.5, 2.0, 0.5, 2.0, 0.5, 1.5)


@pytest.fixture
def place(tmp_path: Path, monkeypatch) -> Path:
    """The own folder of models."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache/virnucpro/models"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def predict(call, tmp_path):
    """Predict 20 records with toys, which are not calibrated."""
    records = (f">r{n}\n{open_bases(60 + 40 * n, n)}\n" for n in range(20))
    (tmp_path / "in.fa").write_text("".join(records))
    command = ("predict", tmp_path / "in.fa", *custom_toy(tmp_path, TOY_CLASSIFIER, 150))
    return lambda out: call(*command, "-o", tmp_path / out)


def _calibration(out: Path, **changes) -> bytes:
    """Return a calibration of the models of a run."""
    models = json.loads((out / "in_run.json").read_bytes())["models"]
    weights = tuple(models[name]["sha256"] for name in ("classifier", "nucleotide", "protein"))
    own = {"producer": "a test", "records": "0", "weights": weights, "precision": "fp32"}
    own |= {"chunk_length": 150, "contigs": MODEL, "figures": {}, **changes}
    return Calibration(**own).to_bytes()


def _rates(out: Path) -> set[str]:
    return {row["fdr"] for row in table(out / "in_contigs.tsv")}


def test_a_finished_run_gets_rates_without_a_new_score(predict, call, place, tmp_path):
    out, file = tmp_path / "out", place / f"any{SUFFIX}"
    assert predict("out").code == 0
    chunks = (out / "in_chunks.tsv").read_bytes()
    assert _rates(out) == {"NA"}
    file.write_bytes(_calibration(out))
    done = call("call", out)
    assert done.code == 0
    assert str(file) in done.err
    assert "NA" not in _rates(out)
    assert predict("anew").code == 0
    for name in ("chunks.tsv", "contigs.tsv", "virus.tsv", "regions.tsv"):
        assert (out / f"in_{name}").read_bytes() == (tmp_path / f"anew/in_{name}").read_bytes()
    assert (out / "in_chunks.tsv").read_bytes() == chunks
    for folder in (out, tmp_path / "anew"):
        said = json.loads((folder / "in_run.json").read_bytes())["models"]["classifier"]
        assert said["calibration"] == str(file)
    stamp = (out / "in_contigs.tsv").stat().st_mtime_ns
    assert (call("call", out).code, predict("out").code) == (0, 0)
    assert (out / "in_contigs.tsv").stat().st_mtime_ns == stamp
    assert call("call", out, "--max-fdr", 0.1).code == 0


@pytest.mark.parametrize("damage", [lambda b: b.replace(b"0.9", b"0.8"), lambda _: b"{}"])
def test_a_damaged_or_foreign_file_is_named(predict, call, place, tmp_path, damage):
    assert predict("out").code == 0
    file = place / f"any{SUFFIX}"
    file.write_bytes(damage(_calibration(tmp_path / "out")))
    for done in (predict("anew"), call("call", tmp_path / "out")):
        assert done.code == 64
        assert str(file) in done.err


def test_what_fits_best_is_taken(predict, place, tmp_path):
    out = tmp_path / "out"
    assert predict("out").code == 0
    file = place / f"toy_classifier_150{SUFFIX}"
    file.write_bytes(_calibration(out, weights=("0", "1", "2")))
    done = predict("other")  # of other weights
    assert (done.code, _rates(tmp_path / "other")) == (0, {"NA"})
    assert str(file) in done.err
    (place / f"a{SUFFIX}").write_bytes(_calibration(out, precision="bf16"))
    assert str(place / f"a{SUFFIX}") in predict("bf16").err
    (place / f"b{SUFFIX}").write_bytes(_calibration(out))
    (place / f"c{SUFFIX}").write_bytes(_calibration(out, chunk_length=300))
    assert predict("fp32").code == 0
    said = json.loads((tmp_path / "fp32/in_run.json").read_bytes())["models"]["classifier"]
    assert said["calibration"] == str(place / f"b{SUFFIX}")


def test_the_records_of_the_package_are_in_two_halves_of_other_genomes():
    known, sequences = known_records(1.0)
    assert all(500 <= len(sequence) <= 50_000 for sequence in sequences)
    assert sum(map(len, sequences)) < 10e6
    assert RECORDS.stat().st_size < 3e6
    assert not known.source.str.contains("marine_archaeal_viruses").any()  # left for tests
    for (label, group), own in known.groupby(["label", "group"]):
        assert set(own.half) in ({"fit", "measure"}, {"only measured"}), (label, group)
        if own.genome.nunique() > 1:
            assert own.groupby("genome").half.nunique().max() == 1
    part, few = known_records(0.1)
    assert len(part) == len(few) < len(known) / 5
    assert set(part.group) == set(known.group)


def test_the_rates_of_lite_are_of_its_weights_and_of_these_records():
    weights = [hashed(LITE_CLASSIFIER).sha256, locate("lite", "nucleotide").sha256]
    found = find_calibrations(LITE_CLASSIFIER.name, weights, "fp32", _silent)
    assert set(found) == {150, 300, 500}
    assert {read_calibration(f.path).records for f in found.values()} == {hashed(RECORDS).sha256}


def _silent(event: object) -> None:
    pytest.fail(f"nothing is to be said of what the package has: {event}")


def _records(sharpness: float) -> tuple[Chunks, np.ndarray, np.ndarray]:
    """Chunks of 1,200 records of two groups of each label; their log odds are too sharp."""
    chance, rows = np.random.default_rng(3), []
    virus = np.arange(1200) % 3 == 0
    groups = np.array([f"{label}{n % 2}" for n, label in enumerate(virus)])
    for record, label in enumerate(virus):
        own = chance.normal(1.2 if label else -1.2, 0.8)
        for n in range(int(chance.integers(1, 40))):
            odds = sharpness * chance.normal(own, 1.2)
            score = 1 / (1 + np.exp(-odds))
            status = FAILED if chance.random() < 0.1 else SCORED
            rows.append((record, 500 * n, 500 * n + 500, status, 1 - score, score))
    columns = zip(*rows, strict=True)
    return Chunks(*map(np.array, columns)), virus, groups


def test_a_calibration_gives_the_right_rates_for_scores_that_are_too_sure():
    chunks, virus, groups = _records(3.0)
    half = np.where(np.arange(len(virus)) // 6 % 2 == 0, "measure", "fit")
    fitting = chunks.chosen((half == "fit")[chunks.record])
    model = fit_contigs(fitting, virus, groups)
    assert model.temperature > 1.5
    lengths = np.bincount(chunks.record) * 500
    found, odds = summarise(lengths, chunks, model)
    rows = np.zeros((len(lengths), 2))
    rows[found.status == SCORED] = odds
    known = Contigs(virus, groups, lengths, found, rows, no_evidence(len(lengths)))
    figures = figures_of(known, half, model)
    assert figures["records"][0]["auroc"] > 0.9
    assert [row["virus"] for row in figures["samples"]] == [0.03, 0.14, 0.5]
    for row in figures["samples"]:
        wrong = row["realised"] * row["called"]
        assert wrong / 2 - 2 < row["stated"] * row["called"] < 2 * wrong + 2
    with pytest.raises(InputError, match="AUROC"):  # of labels that the scores do not tell apart
        figures_of(known._replace(virus=np.roll(virus, 1)), half, model)
    guessed = chunks._replace(others=chunks.virus, virus=chunks.others)
    with pytest.raises(InputError, match="guessing"):
        fit_contigs(guessed, virus, groups)


def test_lite_is_calibrated_and_the_same_command_gives_the_same_file(
    call, place, tmp_path, monkeypatch
):
    monkeypatch.setattr("virnucpro.evaluation.calibrate.DRAWS", 2)
    output = tmp_path / f"mine{SUFFIX}"
    command = ("models", "calibrate", "lite", "-o", output, "--fraction", 0.03, "-d", "cpu")
    done = call(*command)
    assert done.code == 0, done.err
    content, found = output.read_bytes(), read_calibration(output)
    assert found.contigs.has_distributions
    assert (found.precision, found.chunk_length, len(found.weights)) == ("fp32", 500, 2)
    assert found.contigs[:5] == inspect_classifier(LITE_CLASSIFIER).contigs[500][:5]
    assert found.figures["records"][0]["auroc"] > 0.8
    output.unlink()
    for stage in ("mine.calibration/records_run.json", "mine.calibration/records_contigs.tsv"):
        (tmp_path / stage).unlink()
    assert (call(*command).code, output.read_bytes()) == (0, content)
    assert call(*command[:-4], "--fraction", 0.2).code == 64  # other records
    assert msgspec.json.decode(content)["digest"]
    assert output.with_suffix(".md").read_text().count("\n| ") > 40
    assert call("models", "calibrate", "lite", "-o", tmp_path / "x.json").code == 64


def test_models_put_by_hand_are_calibrated(call, place, tmp_path, monkeypatch):
    """As the released ones are stored; their classifier happens to tell two usages of codons."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    (place / "zhihan1996").mkdir()
    make_dnabert(place / "zhihan1996/DNABERT-S")
    save_fair(fair_model(), place / "esm2_t36_3B_UR50D.pt")
    torch.manual_seed(2)
    classifier = MLPClassifier(48 + ESM_WIDTH, 64).eval()
    monkeypatch.setattr(MLPClassifier, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "MLPClassifier", MLPClassifier, raising=False)
    torch.save(classifier, place / "500_model.pth")
    assert call("models", "verify").code == 0
    codons = {"virus": ("AAA", "GAA", "ATA", "TTA"), "others": ("GGC", "GCC", "CTG", "CGC")}
    chance, rows, sequences = random.Random(4), [], []
    for n in range(240):
        label = "virus" if n % 2 else "others"
        mixed = chance.choices(CODONS, k=170 * (1 + n % 5))
        sequences.append("".join(chance.choice((c, *codons[label])) for c in mixed))
        rows.append((f"r{n}", label, f"{label} {n % 4}", "measure" if n % 8 < 4 else "fit"))
    known = pandas.DataFrame(rows, columns=["record", "label", "group", "half"])
    monkeypatch.setattr(calibrate, "known_records", lambda _: (known, sequences))
    (tmp_path / "in.fa").write_text(
        "".join(f">r{n}\n{bases}\n" for n, bases in enumerate(sequences[:20]))
    )
    command = ("predict", tmp_path / "in.fa", "-m", 500, "-d", "cpu", "-o")
    assert call(*command, tmp_path / "before").code == 0
    assert _rates(tmp_path / "before") == {"NA"}
    done = call("models", "calibrate", 500, "-d", "cpu")
    assert done.code == 0, done.err
    assert "hours" in done.out
    assert call(*command, tmp_path / "after").code == 0
    assert "NA" not in _rates(tmp_path / "after")
    said = json.loads((tmp_path / "after/in_run.json").read_bytes())["models"]["classifier"]
    assert said["calibration"] == str(place / f"500_model_500{SUFFIX}")
