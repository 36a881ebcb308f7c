"""Missing, damaged, hostile and ill-fitting models through the real command line (rows 77 to 85).

The models are small ones with random weights, stored as the released ones are.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.inputs import PLAIN, check_accepted, check_nothing_written, check_refused, table
from tests.unit.encoders.small import ESM_WIDTH, fair_model, make_dnabert, save_fair
from tests.unit.test_classifier import MLPClassifier
from virnucpro.classifier.files import classifier_to_bytes

WIDTH = 48 + ESM_WIDTH
NUCLEOTIDE = "dnabert/pytorch_model.bin"
PROTEIN = "esm2_t2_small_UR50D.pt"
CLASSIFIER = "500_model.pth"
OWN = "own.safetensors"
ALL = (NUCLEOTIDE, PROTEIN, CLASSIFIER)
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


class Hostile:
    """What a pickle can do: run a command as soon as it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch ran",)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _replaced(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def _hostile(path: Path) -> None:
    torch.save({"cfg": {}, "model": Hostile()}, path)


def _nan(path: Path) -> None:
    """One weight becomes NaN."""
    with torch.serialization.safe_globals([Namespace]):
        content = torch.load(path, weights_only=True)
    state = content.get("model", content)
    name = next(key for key in reversed(state) if key.endswith("mlp.wo.weight") or "fc2" in key)
    state[name].view(-1)[0] = torch.nan
    torch.save(content, path)


def _edited(**changes: object) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | changes)) and None


def _repeated_key(path: Path) -> None:
    path.write_text('{"num_hidden_layers": 1, ' + path.read_text().lstrip()[1:])


def _first_word(number: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        document = json.loads(path.read_text())
        words = document["model"]["vocab"]
        words[next(iter(words))] = number
        path.write_text(json.dumps(document))

    return change


def _marks(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"(" * 100_000_000)
        archive.writestr("archive/version", "3\n")


def _mixed_weight_map(path: Path) -> None:
    path.unlink()
    index = path.with_name(f"{path.name}.index.json")
    index.write_text('{"weight_map": {"a": 1, "b": "x", "c": []}}')


def test_the_models_of_these_tests_are_fine(run: Callable, models: Path) -> None:
    check_accepted(run())
    assert {row["status"] for row in table(models.parent / "out/sample_contigs.tsv")} == {"scored"}


CONFIG, TOKENIZER = "dnabert/config.json", "dnabert/tokenizer.json"
DAMAGE = (
    ("77 removed", Path.unlink, NUCLEOTIDE, "expected model.safetensors or pytorch_model.bin"),
    ("77 removed", Path.unlink, CLASSIFIER, "check --model-path"),
    *(("78 git-LFS pointer", _replaced(POINTER), file, "run 'git lfs pull' there") for file in ALL),
    *(("79 truncated", _cut, file, "cannot be read") for file in ALL),
    ("79 a web page", _replaced(b"<!DOCTYPE html>"), PROTEIN, "cannot be read"),
    ("79 a table", _replaced(b"PK\x03\x04" + bytes(99)), CLASSIFIER, "cannot be read"),
    *(("80 hostile", _hostile, file, "reading it would run posix.system") for file in ALL),
    ("80 a hundred million marks", _replaced(b"(" * 100_000_000), CLASSIFIER, ""),
    ("80 packed marks", _marks, PROTEIN, ""),
    ("80 endless nesting", _replaced(b"[" * 200_000), CONFIG, ""),
    ("80 a repeated key", _repeated_key, CONFIG, ""),
    ("80 ten million layers", _edited(num_hidden_layers=10_000_000), CONFIG, ""),
    ("80 parts of several types", _mixed_weight_map, NUCLEOTIDE, ""),
    *(("80 a wrong word", _first_word(n), TOKENIZER, "") for n in (-1, "7", 2**70)),
    *(("83 NaN", _nan, file, "NaN or infinite values") for file in (NUCLEOTIDE, PROTEIN)),
)
# Found only when the weights are loaded, after chunks and frames were made.
LATE = ("79", "80", "83")
SECONDS = 60  # a bound for what runs for minutes, not a measurement


@pytest.mark.parametrize(
    ("row", "damage", "file", "says"),
    DAMAGE,
    ids=lambda value: value if isinstance(value, str) else "damage",
)
def test_damaged(
    run: Callable,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: str,
    damage: Callable[[Path], None],
    file: str,
    says: str,
) -> None:
    monkeypatch.chdir(models.parent)
    damage(models / file)
    started = time.process_time()
    done = run()
    check_refused(done, 64, models / Path(file).parts[0], says)
    assert time.process_time() - started < SECONDS
    assert not Path("ran").exists()
    out = models.parent / "out"
    assert not (out / "sample_contigs.tsv").exists()
    if not (file in (NUCLEOTIDE, TOKENIZER) and row.startswith(LATE)) and row != "83 NaN":
        check_nothing_written(out)


# --- not here


def _configuration_with_gaps(models: Path, kind: str) -> None:
    names = {
        "nucleotide": "zhihan1996/DNABERT-S",
        "protein": "esm2_t36_3B_UR50D",
        "classifier": "500_model.pth",
    }
    _configure(models, **{kind: names[kind]})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("nucleotide", "zhihan1996/DNABERT-S"),
        ("protein", "esm2_t36_3B_UR50D"),
        ("classifier", "500_model.pth"),
    ],
)
def test_77_and_85_not_on_this_machine(
    run: Callable, models: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    _configuration_with_gaps(models, kind)
    says = (f"model {name} is not on this machine", models.parent / "cache")
    check_refused(run(), 64, *says, f"virnucpro models fetch {name}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check_refused(run(), 64, *says, "on this one")
    check_nothing_written(models.parent / "out")


# --- that do not fit


def test_81_encoders_in_each_others_place(run: Callable, models: Path) -> None:
    _configure(models, nucleotide=str(models / PROTEIN))
    check_refused(run(), 64, models / PROTEIN, "is a protein model (esm2)")
    check_nothing_written(models.parent / "out")


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"width": 3328}, "takes 3328 numbers per sequence"),
        ({"chunk_lengths": [300]}, "trained for chunks of 300 bases, not 500"),
        ({"encoders": ["dnabert-s", "prot-t5"]}, "was trained with dnabert-s and prot-t5"),
    ],
)
def test_82_a_classifier_that_does_not_fit(
    run: Callable, models: Path, said: dict[str, Any], says: str
) -> None:
    save_own(models / OWN, **said)
    done = run("-m", "custom", "-p", models / OWN, "-e", 500)
    check_refused(done, 64, models / OWN, says)
    check_nothing_written(models.parent / "out")


def test_82_a_pth_whose_name_suggests_another_length(run: Callable, models: Path) -> None:
    done = run("-e", 300)
    check_accepted(done)
    assert "warning: 500_model.pth is, by its name, for chunks of 500 bases" in done.err
    assert "scores may be far off" in done.err


# --- that changed since they were first seen


@pytest.mark.parametrize("file", ALL)
def test_84_checksum_differs(run: Callable, call: Callable, models: Path, file: str) -> None:
    cache = models.parent / "cache"
    places = {
        NUCLEOTIDE: ("zhihan1996/DNABERT-S", cache / "virnucpro/models/zhihan1996/DNABERT-S"),
        PROTEIN: ("esm2_t36_3B_UR50D", cache / "torch/hub/checkpoints/esm2_t36_3B_UR50D.pt"),
        CLASSIFIER: ("500_model.pth", cache / "virnucpro/models/500_model.pth"),
    }
    kinds = {NUCLEOTIDE: "nucleotide", PROTEIN: "protein", CLASSIFIER: "classifier"}
    name, place = places[file]
    place.parent.mkdir(parents=True)
    origin = models / file
    (origin.parent if file == NUCLEOTIDE else origin).rename(place)
    _configuration_with_gaps(models, kinds[file])
    assert call("models", "verify", name).code == 0
    check_accepted(run())
    shutil.rmtree(models.parent / "out")
    weights = place / Path(file).name if file == NUCLEOTIDE else place
    with weights.open("r+b") as stream:  # one bit of a weight: still a whole file
        stream.seek(weights.stat().st_size // 2)
        byte = stream.read(1)[0]
        stream.seek(-1, 1)
        stream.write(bytes([byte ^ 1]))
    done = run()
    check_refused(done, 64, weights, "checksum differs", f"virnucpro models fetch {name}")
    check_nothing_written(models.parent / "out")
