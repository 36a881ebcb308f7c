"""Features and scores of the original program, with the small models it ran with."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
import torch

from benchmarks.tolerances import TOLERANCES
from tests.golden.comparison import TOLERANCE, same_label
from virnucpro.classifier.files import inspect_classifier
from virnucpro.encoders.registry import locate, open_encoder
from virnucpro.io.fasta import read_fasta
from virnucpro.precision import PRECISIONS
from virnucpro.store.features import load_features

MODELS = {"nucleotide": "dnabert-s-tiny", "protein": "esm2_t3_tiny_UR50D.pt"}


@cache  # two tests look at the same rows
def rows_of(reference: Path, molecule, precision):
    """Of each file of frames."""
    source = locate(str(reference / "models" / MODELS[molecule]), molecule)
    opened = open_encoder(source, "cpu", precision, budget=None, truncation=1024)
    files = sorted((reference / "original_500" / f"sample_{molecule}").glob("output_*.fa"))
    assert len(files) == 3
    return {
        path: opened.encode([text for _, text in read_fasta(path)], lambda n, t: None)
        for path in files
    }


@pytest.mark.parametrize("molecule", ["nucleotide", "protein"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_features(reference, molecule, precision):
    suffix = "DNABERT_S" if molecule == "nucleotide" else "ESM"
    for path, rows in rows_of(reference, molecule, precision).items():
        records = dict(read_fasta(path))
        wanted = load_features(path.with_name(f"{path.stem}_{suffix}.pt"), molecule)
        assert set(wanted.ids) == set(records)
        expected = wanted.data[[wanted.ids.index(name) for name in records]]
        assert float((rows - expected).abs().max()) < TOLERANCES[precision].difference


def scores(path: Path) -> dict[str, tuple[str, float, float]]:
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return {name: (call, float(first), float(second)) for name, call, first, second in rows}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_frames_that_keep_their_label(reference, precision):
    """67 in fp32 and fp16, 66 in bf16, 63 in fp8 at least; the released models average more."""
    classifier = inspect_classifier(reference / "models" / "mlp_160_24.pth").model
    folder = reference / "original_500"
    wanted = scores(folder / "sample_merged" / "prediction_results.txt")
    found = {}
    for number in (1, 2, 3):
        parts = []
        for molecule in ("nucleotide", "protein"):
            path = folder / f"sample_{molecule}" / f"output_{number}.fa"
            parts.append(rows_of(reference, molecule, precision)[path])
        rows = classifier.scores(torch.cat(parts, dim=1)).tolist()
        calls = ["virus" if virus > others else "others" for others, virus in rows]
        found |= dict(zip(dict(read_fasta(path)), calls, strict=True))
    same = [name for name, call in found.items() if same_label(call, *wanted[name])]
    print(precision, len(same), "of", len(wanted))
    assert len(found) == len(wanted) == 67
    assert len(same) >= TOLERANCES[precision].same_calls * 67


@pytest.mark.parametrize("run", ["orfs", "fixed500"])
def test_scores_of_the_released_classifier(reference, run):
    models = os.environ.get("VIRNUCPRO_MODELS")
    if not models or not (Path(models) / "500_model.pth").exists():
        pytest.skip("500_model.pth is not in VIRNUCPRO_MODELS")
    folder = reference / "released_weights" / run
    classifier = inspect_classifier(Path(models) / "500_model.pth").model
    wanted = scores(folder / "prediction_results.txt")
    content = torch.load(folder / "output_1_merged.pt", weights_only=True)
    rows = classifier.scores(content["data"]).tolist()
    for name, (others, virus) in zip(content["ids"], rows, strict=True):
        call, first, second = wanted[name]
        assert (others, virus) == pytest.approx((first, second), abs=TOLERANCE)
        assert same_label("virus" if virus > others else "others", call, others, virus)
