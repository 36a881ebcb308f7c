"""Missing, damaged, hostile and ill-fitting models through the real command line (rows 77 to 85).

``tests/unit/encoders`` has what a configuration and a tokenizer may not say. The models are small ones with random weights, stored as the released ones are.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.inputs import PLAIN, check_accepted, check_nothing_written, check_refused
from tests.hostile import Evil
from tests.unit.encoders.small import ESM_WIDTH, fair_model, make_dnabert, save_fair
from tests.unit.test_classifier import MLPClassifier
from virnucpro.classifier.files import classifier_to_bytes

WIDTH = 48 + ESM_WIDTH
NUCLEOTIDE = "dnabert/pytorch_model.bin"
PROTEIN = "esm2_t2_small_UR50D.pt"
CLASSIFIER = "500_model.pth"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 7000000\n" % (b"0" * 64)
VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_OFFLINE", "TORCH_HOME")  # fmt: skip


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models, intact."""
    folder = tmp_path_factory.mktemp("models")
    make_dnabert(folder / "dnabert")
    save_fair(fair_model(), folder / PROTEIN)
    save_classifier(folder / CLASSIFIER)
    return folder


@pytest.fixture
def models(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to damage, and a cache without any model."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    (tmp_path / "sample.fa").write_bytes(PLAIN)
    folder = tmp_path / "models"
    shutil.copytree(pristine, folder)
    _configure(folder)
    return folder


@pytest.fixture
def run(call: Callable, models: Path):  # type: ignore[no-untyped-def]
    """``predict`` with the small models."""

    def _run(*options: object):  # type: ignore[no-untyped-def]
        base = models.parent
        fixed = ("-d", "cpu", "-c", models / "config.yaml")
        return call("predict", base / "sample.fa", "-o", base / "out", *fixed, *options)

    return _run


def _configure(folder: Path, **names: str) -> None:
    names = {"nucleotide": str(folder / "dnabert"), "protein": str(folder / PROTEIN)} | names
    (folder / "config.yaml").write_text(
        f"features:\n  dnabert:\n    model_name: {names['nucleotide']}\n"
        f"  esm:\n    model_name: {names['protein']}\n"
        f"prediction:\n  models:\n    '500': {names.get('classifier', folder / CLASSIFIER)}\n"
    )


def small_classifier(width: int = WIDTH) -> MLPClassifier:
    torch.manual_seed(2)
    return MLPClassifier(width, 6).eval()


def save_classifier(path: Path, width: int = WIDTH) -> None:
    """A whole pickled module whose class was defined in a script, as the released ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MLPClassifier, "__module__", "__main__")
        patch.setattr(sys.modules["__main__"], "MLPClassifier", MLPClassifier, raising=False)
        torch.save(small_classifier(width), path)


def save_own(path: Path, *, width: int = WIDTH, **said: Any) -> None:
    """A classifier in the project's own format."""
    known = {"encoders": [], "chunk_lengths": [500], "extra": {}} | said
    path.write_bytes(classifier_to_bytes(small_classifier(width).state_dict(), **known))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _replaced(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def _hostile(path: Path) -> None:
    torch.save({"cfg": {}, "model": Evil("ran")}, path)


DAMAGE = (
    ("removed", Path.unlink, NUCLEOTIDE),
    ("git-LFS pointer", _replaced(POINTER), CLASSIFIER),
    ("a web page", _replaced(b"<!DOCTYPE html>"), PROTEIN),
    *(("truncated", _cut, file) for file in (NUCLEOTIDE, PROTEIN, CLASSIFIER)),
    *(("hostile", _hostile, file) for file in (NUCLEOTIDE, PROTEIN, CLASSIFIER)),
    ("endless nesting", _replaced(b"[" * 200_000), "dnabert/config.json"),
)


@pytest.mark.parametrize(("name", "damage", "file"), DAMAGE)
def test_damaged(
    run: Callable,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    damage: Callable[[Path], None],
    file: str,
) -> None:
    monkeypatch.chdir(models.parent)
    damage(models / file)
    check_refused(run(), 64, models / Path(file).parts[0])
    assert not Path("ran").exists()
    assert not (models.parent / "out/sample_contigs.tsv").exists()


RELEASED = {
    "nucleotide": "zhihan1996/DNABERT-S",
    "protein": "esm2_t36_3B_UR50D",
    "classifier": "500_model.pth",
}


@pytest.mark.parametrize("kind", RELEASED)
def test_not_on_this_machine(run: Callable, models: Path, kind: str) -> None:
    _configure(models, **{kind: RELEASED[kind]})
    check_refused(run(), 64, "virnucpro models fetch 500;")
    check_nothing_written(models.parent / "out")


def test_models_that_do_not_fit(run: Callable, models: Path) -> None:
    own = models / "own.safetensors"
    for said in ({"width": 3328}, {"chunk_lengths": [300]}, {"encoders": ["dnabert-s", "prot-t5"]}):
        save_own(own, **said)
        check_refused(run("-m", "custom", "-p", own, "-e", 500), 64, own)
    _configure(models, nucleotide=str(models / PROTEIN))
    check_refused(run(), 64, models / PROTEIN)
    check_nothing_written(models.parent / "out")


def test_a_checksum_that_differs(run: Callable, call: Callable, models: Path) -> None:
    place = models.parent / "cache/virnucpro/models/500_model.pth"
    place.parent.mkdir(parents=True)
    (models / CLASSIFIER).rename(place)
    _configure(models, classifier=place.name)
    assert call("models", "verify", place.name).code == 0
    check_accepted(run())
    shutil.rmtree(models.parent / "out")
    content = bytearray(place.read_bytes())  # one bit of a weight: still a whole file
    content[len(content) // 2] ^= 1
    place.write_bytes(content)
    check_refused(run(), 64, place, "checksum differs")
    check_nothing_written(models.parent / "out")
