"""Ray nodes that really do not see the output directory: each has a file system without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.inputs import bases
from tests.contract.running import fasta
from tests.faults.processes import files_under, until
from tests.golden.models import reference_options
from tests.slow.nodes import ADDRESS, ENVIRONMENT, ROOT, LocalCluster, local_nodes

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a folder from a process"),
]
IDS = [f"a{n}" for n in range(60)]
BYTES = (
    "x_contigs.tsv",
    "x_chunks.tsv",
    "x_virus.fna",
    "x_merged/prediction_results.txt",
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that nodes do not see; tests write below it."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture
def folder(shared: Path, request: pytest.FixtureRequest) -> Path:
    """A folder for one test."""
    path = shared / request.node.name.replace("[", "_").replace("]", "")
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def cluster(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that do not see the folder."""
    with local_nodes(tmp_path_factory.mktemp("ray"), 3, shared) as nodes:
        yield nodes


def _predict(source: Path, out: Path, *options: str) -> list[str | Path]:
    command: list[str | Path] = [sys.executable, "-m", "virnucpro", "predict", source, "-o", out]
    return [*command, "-k", "-q", *options]


def _run(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def _source(folder: Path, records: int) -> Path:
    text = bases(2000 * records).decode()
    path = folder / "x.fa"
    path.write_text("".join(f">r{n}\n{text[2000 * n : 2000 * n + 2000]}\n" for n in range(records)))
    return path


def _same(one: Path, other: Path) -> bool:
    """Whether results and features are the same to the byte."""
    features = [path.relative_to(one) for path in sorted(one.glob("x_*/output_*.pt"))]
    assert features
    names = [*features, *BYTES]
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_without_a_shared_folder_the_nodes_are_named_with_what_to_do(
    cluster: LocalCluster, folder: Path
) -> None:
    done = _run(_predict(_source(folder, 2), folder / "out", "-m", "toy", "--cluster", ADDRESS))
    assert done.returncode == 64
    assert "cannot read" in done.stderr
    assert "--cluster-files transfer" in done.stderr
    assert not files_under(folder / "out", ".probe")


def _compare(source: Path, folder: Path, *models: str) -> None:
    """Check that the cluster writes the same results and features."""
    many = ("--cluster", ADDRESS, "--cluster-files", "transfer")
    for name, options in (("one", ("--device", "cpu", "-t", "1")), ("many", many)):
        done = _run(_predict(source, folder / name, *models, *options))
        assert done.returncode == 0, done.stderr
    assert _same(folder / "one", folder / "many")


@pytest.mark.parametrize("model", ["toy", "lite"])
def test_results_and_features_are_those_of_one_machine(
    cluster: LocalCluster, folder: Path, model: str
) -> None:
    _compare(_source(folder, 200), folder, "-m", model)
    until(lambda: not cluster.workers)


def test_results_and_features_of_the_reference_models_are_those_of_one_machine(
    cluster: LocalCluster, folder: Path, reference: Path
) -> None:
    source = _source(folder, 20)
    text = source.read_text().replace("T", "G")  # no stop codon: every frame is open
    source.write_text(text)
    _compare(source, folder, *reference_options(reference, folder))
    until(lambda: not cluster.workers)


@pytest.mark.parametrize("first", ["transfer", "one machine"])
def test_a_run_is_begun_with_transfer_and_ended_without_or_the_other_way_round(
    cluster: LocalCluster, folder: Path, first: str
) -> None:
    source = _source(folder, 1500)
    there = ("--cluster", ADDRESS, "--cluster-files", "transfer")
    here = ("--device", "cpu")
    ways = (there, here) if first == "transfer" else (here, there)
    begun = subprocess.Popen(
        _predict(source, folder / "out", "-m", "lite", *ways[0]), cwd=ROOT, env=ENVIRONMENT
    )
    until(lambda: files_under(folder / "out", ".pt.done"))
    begun.send_signal(signal.SIGTERM)
    begun.communicate()
    assert begun.returncode == 143
    receipts = {path: path.read_bytes() for path in files_under(folder / "out", ".pt.done")}
    done = _run(_predict(source, folder / "out", "-m", "lite", *ways[1]))
    assert done.returncode == 0, done.stderr
    kept = [path for path in receipts if path.exists()]
    assert all(path.read_bytes() == receipts[path] for path in kept)
    done = _run(_predict(source, folder / "whole", "-m", "lite", *here))
    assert done.returncode == 0, done.stderr
    assert _same(folder / "out", folder / "whole")
    until(lambda: not cluster.workers)


def test_a_node_that_is_killed_is_done_without(
    shared: Path, folder: Path, cluster: LocalCluster
) -> None:
    fasta(folder, "f.fa", IDS)
    command = [sys.executable, "-m", "tests.slow.program", folder, "0.03", "3", "transfer"]
    program = subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    until(lambda: len(files_under(folder, ".txt.done")) >= 4)
    cluster.nodes[2].kill()
    output, _ = program.communicate()
    assert program.returncode == 0, output
    assert "WorkerDied" in output
    written = (folder / "f.txt").read_text().splitlines()
    assert written == [f"{name} {5 + n}" for n, name in enumerate(IDS)]
