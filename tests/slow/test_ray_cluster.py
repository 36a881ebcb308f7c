"""Real Ray clusters of several nodes on this machine: nodes that are lost, join, and are left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.inputs import bases
from tests.contract.running import fastas, written
from tests.faults.processes import files_under, until
from tests.golden.conftest import reference_options
from tests.slow.nodes import ADDRESS, ENVIRONMENT, ROOT, LocalCluster, local_nodes

pytestmark = pytest.mark.slow
pytest.importorskip("ray")
IDS = [f"a{n}" for n in range(120)]
SECONDS_PER_BASE = 0.01
BYTES = ("x_contigs.tsv", "x_chunks.tsv", "x_virus.fna", "x_merged/prediction_results.txt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fastas(tmp_path, IDS, 4)
    return tmp_path


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes; none of their workers may be left when a test ends."""
    with local_nodes(tmp_path_factory.mktemp("ray"), 3) as nodes:
        yield nodes
        until(lambda: not nodes.workers)


def _start(folder: Path, seconds_per_base: float = SECONDS_PER_BASE) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.slow.program", folder, str(seconds_per_base), "3"]
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def _done(folder: Path) -> int:
    return len(files_under(folder, ".done"))


def _check(folder: Path) -> None:
    assert written(folder) == IDS


def test_a_node_that_is_killed_is_done_without(cluster: LocalCluster, folder: Path) -> None:
    program = _start(folder)
    until(lambda: _done(folder) >= 4)
    cluster.nodes[2].kill()
    output, _ = program.communicate()
    assert program.returncode == 0, output
    assert "WorkerDied" in output
    _check(folder)


def test_a_node_that_is_added_gets_work(cluster: LocalCluster, folder: Path) -> None:
    program = _start(folder, 0.03)
    until(lambda: _done(folder) >= 2)
    cluster.add()
    output, _ = program.communicate()
    assert program.returncode == 0, output
    assert "has joined" in output
    _check(folder)


def test_a_driver_that_is_killed_leaves_no_worker_and_is_resumed(
    cluster: LocalCluster, folder: Path
) -> None:
    program = _start(folder)
    until(lambda: _done(folder) >= 4)
    program.kill()
    program.communicate()
    until(lambda: not cluster.workers)
    done = _done(folder)
    assert done < len(IDS) / 4
    again = _start(folder)
    again.communicate()
    assert again.returncode == 0
    _check(folder)


def test_a_driver_that_is_asked_to_end_leaves_no_worker(
    cluster: LocalCluster, folder: Path
) -> None:
    program = _start(folder)
    until(lambda: _done(folder) >= 2)
    program.send_signal(signal.SIGTERM)
    program.communicate()
    assert program.returncode == 143
    until(lambda: not cluster.workers)


def _compare(folder: Path, text: str, *models: str) -> None:
    """Check that a cluster computes the same results from records of 2,000 bases."""
    source = folder / "x.fa"
    records = [text[n : n + 2000] for n in range(0, len(text), 2000)]
    source.write_text("".join(f">r{n}\n{record}\n" for n, record in enumerate(records)))
    for name, options in (
        ("one", ("--device", "cpu", "-t", "1")),
        ("many", ("--cluster", ADDRESS)),
    ):
        command = [sys.executable, "-m", "virnucpro", "predict", source, "-o", folder / name]
        subprocess.run([*command, "-q", *models, *options], cwd=ROOT, env=ENVIRONMENT, check=True)
    for name in BYTES:
        assert (folder / "many" / name).read_bytes() == (folder / "one" / name).read_bytes()


@pytest.mark.parametrize("model", ["toy", "lite"])
def test_results_are_those_of_one_machine(
    cluster: LocalCluster, tmp_path: Path, model: str
) -> None:
    _compare(tmp_path, bases(400_000).decode(), "-m", model)


def test_results_of_the_reference_models_are_those_of_one_machine(
    cluster: LocalCluster, tmp_path: Path, reference: Path
) -> None:
    # Without T there is no stop codon on either strand: every frame is open.
    text = bases(40_000).decode().replace("T", "G")
    _compare(tmp_path, text, *reference_options(reference, tmp_path))
