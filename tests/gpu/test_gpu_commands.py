"""Commands on the device, with worker processes: as on the CPU, and killed and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.models import write_contigs
from benchmarks.tolerances import TOLERANCES
from tests.faults.processes import family, running, until
from virnucpro.cli.demo import EXAMPLE
from virnucpro.encoders.registry import family_named
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout
from virnucpro.precision import PRECISIONS


@pytest.fixture
def where(device) -> list[str]:
    """Options of predict: one worker process on the device."""
    return ["--gpus", "0"] if device == "cuda" else ["--cpu-workers", "1"]


def predictions(layout: Layout) -> dict[str, tuple[str, float, float]]:
    """Label and scores of each frame."""
    lines = layout.predictions.read_text().splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return {name: (label, float(others), float(virus)) for name, label, others, virus in rows}


def calls(layout: Layout) -> list[str]:
    """Record and call, in the order of the input."""
    header, *lines = (line.split("\t") for line in layout.contigs_table.read_text().splitlines())
    return [line[0] + " " + line[header.index("call")] for line in lines]


def contents(layout: Layout) -> dict[str, bytes]:
    """Features and results; not the records of times and processes."""
    paths = list(layout.root.glob("*_*/*.pt"))
    paths += [layout.predictions, layout.consensus, layout.contigs_table]
    paths += [layout.chunks_table, layout.virus_fasta]
    return {str(path.relative_to(layout.root)): path.read_bytes() for path in paths}


@pytest.fixture(scope="session")
def on_cpu(tiny: list[str], tmp_path_factory) -> Layout:
    """The example of the repository, classified in fp32 on the CPU."""
    layout = Layout(tmp_path_factory.mktemp("cpu"), EXAMPLE.stem, 500)
    command = [sys.executable, "-m", "virnucpro", "predict", str(EXAMPLE), "-o", str(layout.root)]
    subprocess.run([*command, *tiny, "--device", "cpu"], check=True, capture_output=True)
    return layout


@pytest.mark.parametrize("compile", ["never", "always"])
def test_killed_and_resumed_it_is_the_same_to_the_byte(
    tiny: list[str], device, where, tmp_path, compile
):
    # Many records: the run is still at work when its first part is there.
    records = 4000 if device == "cuda" else 800
    source = write_contigs(tmp_path / "contigs.fa", records)
    options = [*tiny, *where, "--compile", compile, "-k", "--no-progress"]
    whole, killed = (Layout(tmp_path / name, "contigs", 500) for name in ("whole", "killed"))

    def start(layout: Layout, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "virnucpro", "predict", str(source), "-o"]
        # Either run compiles for itself: it finds nothing of the other's.
        cache = {"TORCHINDUCTOR_CACHE_DIR": f"{layout.root}.cache"}
        cache["TRITON_CACHE_DIR"] = cache["TORCHINDUCTOR_CACHE_DIR"] + "/triton"
        return subprocess.Popen(
            [*command, str(layout.root), *options, *more], env=os.environ | cache,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    assert start(whole).wait(300) == 0
    run = start(killed)
    try:
        until(lambda: [*killed.root.glob("*_protein/*.pt.done")], 200)
        workers = family(run.pid)
    finally:
        run.kill()
        run.wait()
    until(lambda: not any(map(running, workers)))
    assert not killed.run_record.exists(), "it was at its end before it could be killed"
    assert start(killed, "--resume").wait(300) == 0
    assert contents(killed) == contents(whole)
    assert sum(1 for _ in read_fasta(whole.frames["protein"])) >= records


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("compile", ["never", "always"])
def test_the_calls_of_the_cpu(
    tiny: list[str], on_cpu: Layout, device, where, shell, tmp_path, precision, compile
):
    done = shell("predict", EXAMPLE, "-o", tmp_path, *tiny, *where,
                 "--precision", precision, "--compile", compile)  # fmt: skip
    assert done.code == 0, done.err
    layout = Layout(tmp_path, EXAMPLE.stem, 500)
    expected, found = predictions(on_cpu), predictions(layout)
    assert list(found) == list(expected)
    near = TOLERANCES[precision].score
    for name, (label, *scores) in found.items():
        assert scores == pytest.approx(expected[name][1:], abs=near), name
        if abs(scores[0] - scores[1]) > 2 * near:
            assert label == expected[name][0]
    if precision == "fp32":
        assert calls(layout) == calls(on_cpu)
    workers = json.loads(layout.run_record.read_bytes())["workers"]
    assert [row["stage"] for row in workers] == ["nucleotide_embeddings", "protein_embeddings"]
    instead = family_named("dnabert-s").instead.get(precision, precision)
    assert [row["precision"] for row in workers] == [instead, precision]
    for row in workers:
        assert row["compiled"] == (compile == "always"), row
        assert "compile_failed" not in row
        assert row["tasks"] > 0
        if device == "cuda":
            assert row["found"] == "measured"
            assert row["peak_memory"] > 0
