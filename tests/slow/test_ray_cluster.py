"""Real Ray clusters of several nodes on this machine: nodes that are lost, join, and are left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.inputs import bases
from tests.faults.processes import files_under, until
from tests.golden.conftest import reference_options
from tests.slow.nodes import ADDRESS, ENVIRONMENT, ROOT, LocalCluster, local_nodes

pytestmark = pytest.mark.slow
pytest.importorskip("ray")
BYTES = ("x_contigs.tsv", "x_chunks.tsv", "x_virus.fna", "x_merged/prediction_results.txt")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes; none of their workers may be left when a test ends."""
    with local_nodes(tmp_path_factory.mktemp("ray"), 3) as nodes:
        yield nodes
        until(lambda: not nodes.workers)


class Run:
    """A run on the cluster, of records of 2,000 bases, and what it would give on one machine."""

    def __init__(self, folder: Path, text: str, *models: str) -> None:
        self.folder, self.models = folder, models
        pieces = [text[n : n + 2000] for n in range(0, len(text), 2000)]
        lines = (f">r{n}\n{piece}\n" for n, piece in enumerate(pieces))
        (folder / "x.fa").write_text("".join(lines))

    def start(self, out: str = "many", *options: str) -> subprocess.Popen[str]:
        """Start the command, which computes on the cluster unless ``options`` say otherwise."""
        command = [sys.executable, "-m", "virnucpro", "predict", self.folder / "x.fa"]
        where = options or ("--cluster", ADDRESS)
        return subprocess.Popen(
            [*command, "-o", self.folder / out, "--no-progress", *self.models, *where],
            cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str]) -> None:
        """Wait for its end, and compare the results with those of one machine."""
        alone = self.start("one", "--device", "cpu", "-t", "1")
        for each in (process, alone):
            output, _ = each.communicate()
            assert each.returncode == 0, output
        for name in BYTES:
            assert (self.folder / "many" / name).read_bytes() == (
                self.folder / "one" / name
            ).read_bytes()

    @property
    def done(self) -> int:
        """The number of split files of an encoder that are proved."""
        return len(files_under(self.folder / "many", "DNABERT_S.pt.done"))

    @property
    def log(self) -> str:
        """What the run on the cluster has noted."""
        return (self.folder / "many/.checkpoints/runs/x/state/run.log").read_text()


def _open_frames(length: int) -> str:
    """Random bases without T: there is no stop codon on either strand."""
    return bases(length).decode().replace("T", "G")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a thousand split files, whose features are kept to be counted."""
    config = tmp_path / "c.yaml"
    config.write_text("prediction: {sequences_per_file: 25}\n")
    return Run(tmp_path, _open_frames(2_400_000), "-m", "toy", "-c", str(config), "-k")


def test_a_node_that_is_killed_is_done_without(cluster, run):
    process = run.start()
    until(lambda: run.done >= 4)
    cluster.nodes[2].kill()
    run.finish(process)
    assert " died: " in run.log


def test_a_node_that_is_added_gets_work(cluster, run):
    process = run.start()
    until(lambda: run.done >= 2)
    cluster.add()
    run.finish(process)
    assert "has joined" in run.log


def test_a_driver_that_is_killed_leaves_no_worker_and_is_resumed(cluster, run):
    process = run.start()
    until(lambda: run.done >= 4)
    process.kill()
    process.communicate()
    until(lambda: not cluster.workers)
    run.finish(run.start())


def test_a_driver_that_is_asked_to_end_leaves_no_worker(cluster, run):
    process = run.start()
    until(lambda: run.done >= 2)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    until(lambda: not cluster.workers)


def test_results_of_lite_are_those_of_one_machine(cluster, tmp_path):
    run = Run(tmp_path, bases(400_000).decode(), "-m", "lite")
    run.finish(run.start())


def test_results_of_the_reference_models_are_those_of_one_machine(cluster, tmp_path, reference):
    run = Run(tmp_path, _open_frames(40_000), *reference_options(reference, tmp_path))
    run.finish(run.start())
