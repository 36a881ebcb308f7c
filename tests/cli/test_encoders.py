"""Options that encoders ignore; encoders of other packages: the example, and broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.models import classifier
from tests.forked import run_forked
from virnucpro.encoders.registry import family_names, locate
from virnucpro.errors import ModelError
from virnucpro.layout import Layout

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kmer_encoder"
KMER_WIDTH, TOY_WIDTH = 256, 16


def install(folder: Path, name: str, version: str, entry_points: dict[str, str], code: str) -> None:
    """Write a package as pip would install it: one module, and its metadata."""
    module = name.replace("-", "_")
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(code)
    metadata = folder / f"{module}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key} = {value}" for key, value in entry_points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[virnucpro.encoders]", *lines, ""]))


def test_predict_with_the_example_in_a_worker(tmp_path, example):
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    entry_points = project["entry-points"]["virnucpro.encoders"]
    code = (EXAMPLE / "kmer_encoder.py").read_text()
    install(tmp_path / "site", project["name"], project["version"], entry_points, code)
    config = tmp_path / "kmer.yaml"
    config.write_text("features: {dnabert: {model_name: kmer-4}, esm: {model_name: toy}}\n")
    model = tmp_path / "classifier.safetensors"
    model.write_bytes(classifier(KMER_WIDTH + TOY_WIDTH))
    done = run_forked(
        tmp_path / "site", "predict", example, "-o", tmp_path / "out", "--config", config, "-e", 500,
        "-d", "cpu", "-m", "custom", "-p", model, "--keep-intermediate", "--cpu-workers", 1,
        module="tests.changed_package",
    )  # fmt: skip
    assert done.code == 0, done.err
    layout = Layout(tmp_path / "out", "example", 500)
    rows = torch.load(layout.features("nucleotide", 1), weights_only=True)["data"]
    assert rows.shape[1] == KMER_WIDTH
    assert torch.allclose(rows.mean(dim=1), torch.ones(len(rows)))
    record = json.loads(layout.run_record.read_bytes())
    assert record["models"]["nucleotide"]["family"] == "kmer-4"


def test_a_broken_package_is_named_and_only_where_it_is_needed(tmp_path, monkeypatch, request):
    install(tmp_path, "broken-encoder", "0.3", {"broken": "broken_encoder:FAMILY"}, "1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    request.addfinalizer(family_names.cache_clear)
    family_names.cache_clear()
    assert "broken" in family_names()
    assert locate("toy", "protein").family == "toy-protein"
    unknown = tmp_path / "unknown.bin"
    unknown.write_bytes(b"neither of the families of this package")
    for name in ("broken", str(unknown)):
        with pytest.raises(ModelError, match=r"broken_encoder:FAMILY .*ZeroDivisionError"):
            locate(name, "protein")
