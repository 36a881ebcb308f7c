"""The configuration file, from tables of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.configuration import Configuration, default_yaml, load_configuration
from virnucpro.errors import ConfigError, UsageError
from virnucpro.settings import AnalysisSettings, MachineSettings

ROOT = Path(__file__).parents[2]


def _load(folder: Path, text: str | bytes):  # type: ignore[no-untyped-def]
    path = folder / "c.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_configuration(path)


def test_the_example_is_the_defaults(tmp_path: Path) -> None:
    text = (ROOT / "config/default_config.yaml").read_text()
    assert text == default_yaml(), "run python -m tools.document_tables"
    assert _load(tmp_path, text) == Configuration()


@pytest.mark.parametrize(
    ("text", "group", "name", "value"),
    [
        ("prediction: {batch_size: 9}", "machine", "classifier_rows", 9),
        ("prediction: {models: {'300': a.pth}}", "analysis", "classifier_300", "a.pth"),
        ("prediction: {models: {500: b.pth}}", "analysis", "classifier_500", "b.pth"),
        ("prediction: {default_model_type: 300}", "analysis", "model_type", "300"),
        ("features: {esm: {toks_per_batch: 2048}}", "machine", "protein_batch", 2048),
        ("features: {esm: {toks_per_batch: auto}}", "machine", "protein_batch", None),
        ("features: {dnabert: {model_name: /models/d}}", "analysis", "nucleotide_model", "/models/d"),
        ("files: {auto_cleanup: false}", "machine", "remove_intermediate", False),
        ("device: {default: cuda:1}", "machine", "device", "cuda:1"),
        ("logging: {default_level: WARNING}", "display", "level", "WARNING"),
        ("parallelization: {num_workers: auto}", "machine", "max_workers", None),
        ("prediction:\n", "analysis", "model_type", "500"),
        ("", "analysis", "model_type", "500"),
    ],
)  # fmt: skip
def test_keys(tmp_path: Path, text: str, group: str, name: str, value: object) -> None:
    loaded = _load(tmp_path, text)
    assert getattr(getattr(loaded, group), name) == value
    assert not loaded.warnings


def test_obsolete_keys_give_one_warning(tmp_path: Path) -> None:
    text = (
        "version: '2.0.0'\nfeatures: {dnabert: {trust_remote_code: true}, "
        "esm: {representation_layer: 36}}\nprogress: {enabled: true}\n"
        "validation: {a: {b: 1}}\ncheckpointing: {enabled: true, keep_history: 5}\n"
    )
    loaded = _load(tmp_path, text)
    assert len(loaded.warnings) == 1
    assert "trust_remote_code" in loaded.warnings[0]


BOMB = "a: &a [x, x]\n" + "".join(
    f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prediction: {batch_sise: 9}", "unknown key prediction.batch_sise; did you mean prediction.batch_size"),
        ("prediction: {batch_size: many}", "must be a whole number of 1 or more, not 'many'"),
        ("prediction: {batch_size: 0}", "1 or more"),
        ("prediction: {batch_size: true}", "1 or more"),
        ("prediction: {batch_size: {a: 1}}", "1 or more"),
        ("prediction: 7", "unknown key prediction"),
        ("files: {auto_cleanup: 1}", "true or false"),
        ("device: {precision: int8}", "one of auto, fp32"),
        ("a: [1\nb: 2", "line 2"),
        ("a: !!python/object:os.system [ls]", "line 1"),
        (BOMB, "aliases"),
        ("- a\n- b", "expected keys and values, found a list"),
        ("just text", "expected keys and values"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _load(tmp_path, text)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="generate-config"):
        load_configuration(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["protein_batch", "threads", "cpu_workers", "classifier_rows"])
def test_counts_below_one_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="must be 1 or more, not 0"):
        MachineSettings(**{name: 0})


def test_a_model_type_settles_classifier_and_chunk_length() -> None:
    assert AnalysisSettings(model_type="300").resolved().chunk_length == 300
    assert AnalysisSettings(model_type="300").resolved().classifier == "300_model.pth"
    assert AnalysisSettings(model_type="500", chunk_length=400).resolved().chunk_length == 400
    with pytest.raises(UsageError, match="--model-path FILE --expected-length N"):
        AnalysisSettings(model_type="custom", chunk_length=300).resolved()
