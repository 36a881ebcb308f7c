"""Directories that the pre-optimization program left, finished with ``--resume``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.forked import run_forked
from tests.golden.comparison import assert_same_consensus, assert_same_predictions
from tests.golden.conftest import reference_options

PREDICTIONS = "sample_merged/prediction_results.txt"
CONSENSUS = "sample_merged/prediction_results_highestscore.csv"


@pytest.fixture
def arguments(reference: Path, tmp_path: Path) -> list[object]:
    """The command line of a user who has moved to this version, on the models of the old run."""
    source = tmp_path / "sample.fa"
    shutil.copyfile(reference / "original_500/sample.fa", source)
    chosen = reference_options(reference, tmp_path, dedup="null")
    return ["predict", "--input", source, "--resume", *chosen, "-d", "cpu", "-v"]


@pytest.mark.parametrize(("folder", "missing"), [("legacy_interrupted", 1), ("legacy_complete", 0)])
def test_only_what_is_missing_is_embedded(reference, arguments, tmp_path, folder, missing):
    # Neither modes nor times are copied: the reference may not be written to.
    out = tmp_path / "results"
    shutil.copytree(reference / folder, out, copy_function=shutil.copyfile)
    for place in filter(Path.is_dir, (out, *out.rglob("*"))):
        place.chmod(0o755)
    before = {path: path.read_bytes() for path in (*out.rglob("*_ESM.pt"), *out.rglob("*_S.pt"))}
    assert len(before) == 6 - missing
    done = run_forked(*arguments, "--output-dir", out, "-k")
    assert done.code == 0, done.err
    pieces = dict(re.findall(r"stage \d (\w+): (\d+) tasks?", done.err))
    assert (pieces["nucleotide_embeddings"], pieces["protein_embeddings"]) == ("0", str(missing))
    original, older = reference / "original_500", reference / "legacy_complete"
    assert_same_predictions(out / PREDICTIONS, original / PREDICTIONS)
    assert_same_consensus(out / CONSENSUS, original / CONSENSUS, older / CONSENSUS)
    for path, data in before.items():
        assert path.read_bytes() == data
        receipt = json.loads(path.with_name(path.name + ".done").read_text())
        assert receipt["origin"] == "legacy"
    # From here on it is a run like any other.
    again = run_forked(*arguments, "--output-dir", out, "-k")
    assert "already finished" in again.out
    assert run_forked(*arguments, "--output-dir", out).code == 0
    assert not list(out.rglob("*.pt"))
