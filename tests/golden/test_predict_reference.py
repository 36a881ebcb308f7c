"""The whole program against the original's outputs on the same input and models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import RESULTS
from tests.forked import run_forked
from tests.golden.comparison import TOLERANCE, assert_same_consensus, assert_same_predictions
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import FeatureKind as Kind
from virnucpro.store.features import load_features

PREDICTIONS, CONSENSUS = RESULTS[3:]
FEATURES: list[tuple[Kind, str]] = [
    ("nucleotide", "sample_nucleotide/output_{}_DNABERT_S.pt"),
    ("protein", "sample_protein/output_{}_ESM.pt"),
    ("merged", "sample_merged/output_{}_merged.pt"),
]


@pytest.fixture(scope="session")
def source(reference: Path) -> Path:
    """The input of the original program."""
    return reference / "original_500/sample.fa"


@pytest.fixture(scope="session")
def finished_run(
    options: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Return what runs ``predict`` with arguments and its options, and returns the results."""

    def _finished(*arguments: object, output: str = "-o") -> Path:
        out = tmp_path_factory.mktemp("results of a run")
        assert run_forked("predict", *arguments, output, out, *options).code == 0
        return out

    return _finished


@pytest.fixture(scope="session")
def undisturbed(finished_run: Callable[..., Path], source: Path) -> Path:
    """Results of a run in one process, intermediate files kept."""
    return finished_run(source, "-k", "-d", "cpu")


@pytest.fixture(scope="session")
def two_workers(finished_run: Callable[..., Path], source: Path) -> Path:
    """The same on two worker processes, through --input and --output-dir."""
    return finished_run("--input", source, "-k", "--cpu-workers", 2, output="--output-dir")


@pytest.fixture(scope="session")
def without_copies(finished_run: Callable[..., Path], source: Path) -> Path:
    """The same, where identical frames are embedded once, and features are not kept."""
    out = finished_run(source, "-d", "cpu", "--dedup")
    assert json.loads((out / "sample_run.json").read_bytes())["counts"]["identical_frames"] > 0
    return out


@pytest.fixture(params=["undisturbed", "two_workers"])
def results(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def test_fasta_files_are_the_originals(results, reference):
    original = reference / "original_500"
    pairs = [
        ("sample_chunked500.fa", "sample_chunked500.fa"),
        ("sample_nucleotide.fa", "sample_identified_nucleotide.fa"),
        ("sample_protein.faa", "sample_identified_protein.faa"),
    ]
    for molecule in ("nucleotide", "protein"):
        name = f"sample_{molecule}/output_{{}}.fa"
        pairs += [(name.format(n), name.format(n)) for n in (1, 2, 3)]
        assert not (results / name.format(4)).exists()
    for ours, theirs in pairs:
        assert list(read_fasta(results / ours)) == list(read_fasta(original / theirs)), ours


@pytest.mark.parametrize(("kind", "name"), FEATURES, ids=[kind for kind, _ in FEATURES])
def test_features_are_the_originals(results, reference, kind, name):
    for number in (1, 2, 3):
        ours = load_features(results / name.format(number), kind)
        theirs = load_features(reference / "original_500" / name.format(number), kind)
        rows = [theirs.ids.index(i) for i in ours.ids]  # the original's ESM rows: batch order
        assert sorted(rows) == list(range(len(theirs.ids)))
        assert (ours.data - theirs.data[rows]).abs().max() < TOLERANCE


@pytest.mark.parametrize("run", ["undisturbed", "two_workers", "without_copies"])
def test_tables_are_the_originals(request, run, reference):
    ours, original = request.getfixturevalue(run), reference / "original_500"
    assert_same_predictions(ours / PREDICTIONS, original / PREDICTIONS)
    older = reference / "legacy_complete"
    assert_same_consensus(ours / CONSENSUS, original / CONSENSUS, older / CONSENSUS)


@pytest.mark.parametrize("where", [(), ("-d", "cpu", "-t", 1), ("-t", 5, "--cpu-workers", 2)])
def test_workers_and_threads_change_no_byte(undisturbed, two_workers, finished_run, source, where):
    other = finished_run(source, "-k", *where) if where else two_workers
    features = [name.format(number) for _, name in FEATURES for number in (1, 2, 3)]
    for name in (*RESULTS, *features):
        assert (undisturbed / name).read_bytes() == (other / name).read_bytes(), name
