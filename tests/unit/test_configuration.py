"""The configuration file, from tables of text (rows 70 to 76 of the odd inputs)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.document_tables import PAGE, documented
from virnucpro.configuration import Configuration, default_yaml, load_configuration
from virnucpro.errors import UsageError
from virnucpro.settings import AnalysisSettings

ROOT = Path(__file__).parents[2]


def _load(folder: Path, text: str | bytes) -> Configuration:
    path = folder / "c.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_configuration(path)


def test_the_example_is_the_defaults(tmp_path):
    text = (ROOT / "config/default_config.yaml").read_text()
    assert text == default_yaml(), "run python -m tools.document_tables"
    assert _load(tmp_path, text) == Configuration()


def test_the_documentation_has_every_keyword():
    text = PAGE.read_text(encoding="utf-8")
    assert documented(text) == text, "run python -m tools.document_tables"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("prediction: {num_workers: 9}", "tokenizer_threads", 9),
        ("\ufeffprediction:\n  num_workers: 7\n", "tokenizer_threads", 7),
        ("prediction: {models: {'300': a.pth}}", "classifier_300", "a.pth"),
        ("prediction: {models: {500: b.pth}}", "classifier_500", "b.pth"),
        ("prediction: {default_model_type: 300}", "model_type", "300"),
        ("prediction: {default_model_type: toy}", "model_type", "toy"),
        ("features: {esm: {toks_per_batch: 2048}}", "protein_batch", 2048),
        ("features: {esm: {toks_per_batch: auto}}", "protein_batch", None),
        ("features: {dnabert: {model_name: /models/d}}", "nucleotide_model", "/models/d"),
        ("files: {auto_cleanup: false}", "remove_intermediate", False),
        ("device: {default: cuda:1}", "device", "cuda:1"),
        ("device: {gpus: 0}", "gpus", "0"),
        ("calls: {min_score: 0}", "min_score", 0.0),
        ("logging: {default_level: WARNING}", "level", "WARNING"),
        ("parallelization: {num_workers: auto}", "max_workers", None),
        ("prediction:\n", "model_type", "500"),
        ("# nothing", "model_type", "500"),
    ],
)
def test_keys(tmp_path, text, name, value):
    loaded = _load(tmp_path, text)
    groups = (loaded.analysis, loaded.thresholds, loaded.machine, loaded.display)
    (found,) = (getattr(group, name) for group in groups if hasattr(group, name))
    assert (found, type(found)) == (value, type(value))
    assert not loaded.warnings


def test_obsolete_keys_give_one_warning(tmp_path):
    text = (
        "version: '2.0.0'\nfeatures: {dnabert: {trust_remote_code: true}, "
        "esm: {representation_layer: 36}}\nprogress: {enabled: true}\n"
        "validation: {a: {b: 1}}\ncheckpointing: {enabled: true, keep_history: 5}\n"
        "prediction: {batch_size: 9}\nfiles: {keep_files: true}\n"
    )
    (warning,) = _load(tmp_path, text).warnings
    for key in ("trust_remote_code", "prediction.batch_size", "files.keep_files"):
        assert key in warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prediction: {num_workerz: 9}", "unknown key prediction.num_workerz; did you mean prediction.num_workers"),
        ("predictoin: {min_score: 1}", "unknown key predictoin.min_score; did you mean calls.min_score?"),
        ("predictoin: {}", "unknown key predictoin; did you mean prediction?"),
        ("prediction: {num_workers: many}", "prediction.num_workers: 'many' is not accepted: Expected `int`, got `str`"),
        ("prediction: {num_workers: 0}", "0 is not accepted"),
        ("prediction: {num_workers: true}", "True is not accepted"),
        ("prediction: {num_workers: {a: 1}}", "is not accepted"),
        ("prediction: {default_model_type: 400}", "one of 300, 500, lite"),
        ("prediction: 7", "unknown key prediction"),
        ("device: {precision: int8}", "one of auto, fp32"),
        ("calls: {max_fdr: .nan}", "nan is not accepted"),
        ("parallelization: {threads: 1.5}", "1.5 is not accepted"),
        ("prediction: {num_workers: 99999999999999999999999}", "is not accepted"),
        ("a: [1\nb: 2", "line 2"),
        ("a: " + "[" * 500_000, "not plain YAML"),
        ("a: !!python/object/apply:os.system ['touch ran']", "line 1"),
        ("a: &x {validation: *x}", "aliases are not accepted"),
        ("a: &x [b, b]\nc: &y [*x, *x]\nvalidation: [*y, *y]", "aliases are not accepted"),
        ("- a\n- b", "expected keys and values, found a list"),
        (bytes(range(256)), "not plain YAML"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_refusals(tmp_path, text, message):
    with pytest.raises(UsageError) as refused:
        _load(tmp_path, text)
    assert message in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


@pytest.mark.parametrize(("name", "message"), [("none.yaml", "generate-config"), ("", "cannot be")])
def test_a_file_that_cannot_be_read(tmp_path, name, message):
    with pytest.raises(UsageError, match=message):
        load_configuration(tmp_path / name)


def test_a_model_type_settles_classifier_and_chunk_length():
    assert AnalysisSettings(model_type="300").resolved().chunk_length == 300
    assert AnalysisSettings(model_type="300").resolved().classifier == "300_model.pth"
    assert AnalysisSettings(model_type="500", chunk_length=400).resolved().chunk_length == 400
    with pytest.raises(UsageError, match="--model-path FILE --expected-length N"):
        AnalysisSettings(model_type="custom", chunk_length=300).resolved()
