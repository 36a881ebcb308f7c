"""Missing, damaged, hostile and ill-fitting models through the command line (rows 77 to 85).

``tests/unit/encoders`` has what a configuration and a tokenizer may not say. The models are small
ones with random weights, stored as the released ones are.
"""

import shutil
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
import yaml

from tests.cli.inputs import PLAIN, check_nothing_written, check_refused
from tests.hostile import Evil
from tests.unit.encoders.small import ESM_WIDTH, fair_model, make_dnabert, save_fair
from tests.unit.models.conftest import cache  # noqa: F401 - an empty one for each test
from tests.unit.test_classifier import MLPClassifier
from virnucpro.classifier.files import classifier_to_bytes

WIDTH = 48 + ESM_WIDTH
NUCLEOTIDE = "dnabert/pytorch_model.bin"
PROTEIN = "esm2_t2_small_UR50D.pt"
CLASSIFIER = "500_model.pth"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 7000000\n" % (b"0" * 64)


def small_classifier(width=WIDTH):
    torch.manual_seed(2)
    return MLPClassifier(width, 6).eval()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """All models, intact; the classifier as a pickled module whose class was defined in a script."""
    folder = tmp_path_factory.mktemp("models")
    make_dnabert(folder / "dnabert")
    save_fair(fair_model(), folder / PROTEIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MLPClassifier, "__module__", "__main__")
        patch.setattr(sys.modules["__main__"], "MLPClassifier", MLPClassifier, raising=False)
        torch.save(small_classifier(), folder / CLASSIFIER)
    return folder


@pytest.fixture
def models(pristine, tmp_path, monkeypatch):
    """A copy to damage."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample.fa").write_bytes(PLAIN)
    return Path(shutil.copytree(pristine, tmp_path / "models"))


@pytest.fixture
def run(call, models):
    """``predict`` with the small models, or with others that a configuration ``names``."""

    def _run(*options, **names):
        known = {"nucleotide": "dnabert", "protein": PROTEIN, "classifier": CLASSIFIER}
        paths = {kind: str(models / name) for kind, name in known.items()} | names
        features = {"dnabert": {"model_name": paths["nucleotide"]}}
        features["esm"] = {"model_name": paths["protein"]}
        classifiers = {"models": {"500": paths["classifier"]}}
        config = models / "config.yaml"
        config.write_text(yaml.safe_dump({"features": features, "prediction": classifiers}))
        return call("predict", "sample.fa", "-o", "out", "-d", "cpu", "-c", config, *options)

    return _run


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def hostile(path):
    torch.save({"cfg": {}, "model": Evil("ran")}, path)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (NUCLEOTIDE, Path.unlink),
        (CLASSIFIER, lambda path: path.write_bytes(POINTER)),
        (PROTEIN, lambda path: path.write_bytes(b"<!DOCTYPE html>")),
        ("dnabert/config.json", lambda path: path.write_bytes(b"[" * 200_000)),
        *product((NUCLEOTIDE, PROTEIN, CLASSIFIER), (cut, hostile)),
    ],
)
def test_damaged(run, models, file, damage):
    damage(models / file)
    check_refused(run(), 64, models / Path(file).parts[0])
    assert not Path("ran").exists()
    assert not Path("out/sample_contigs.tsv").exists()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("nucleotide", "zhihan1996/DNABERT-S"),
        ("protein", "esm2_t36_3B_UR50D"),
        ("classifier", CLASSIFIER),
    ],
)
def test_not_on_this_machine(run, kind, name):
    check_refused(run(**{kind: name}), 64, "virnucpro models fetch 500;")
    check_nothing_written(Path("out"))


@pytest.mark.parametrize(
    ("width", "length", "encoders"),
    [(3328, 500, []), (WIDTH, 300, []), (WIDTH, 500, ["dnabert-s", "prot-t5"])],
)
def test_a_classifier_that_does_not_fit(run, models, width, length, encoders):
    own = models / "own.safetensors"
    known = {"encoders": encoders, "chunk_lengths": [length], "extra": {}}
    own.write_bytes(classifier_to_bytes(small_classifier(width).state_dict(), **known))
    check_refused(run("-m", "custom", "-p", own, "-e", 500), 64, own)
    check_nothing_written(Path("out"))


def test_an_encoder_of_another_molecule(run, models):
    check_refused(run(nucleotide=str(models / PROTEIN)), 64, models / PROTEIN)


def test_a_checksum_that_differs(run, call, models):
    place = models.parent / "cache/virnucpro/models/500_model.pth"
    place.parent.mkdir(parents=True)
    (models / CLASSIFIER).rename(place)
    assert call("models", "verify", place.name).code == 0
    content = bytearray(place.read_bytes())  # one bit of a weight: still a whole file
    for code in (0, 64):
        done = run(classifier=place.name)
        assert (done.code, "checksum differs" in done.err) == (code, code == 64)
        content[len(content) // 2] ^= 1
        place.write_bytes(content)
