"""``virnucpro status``: what it says of every kind of run, and that it disturbs none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.cli.inputs import Stopped, Stopping, poisoned, toy_request
from tests.legacy_run import SCIENCE, make_input, predict
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout
from virnucpro.run.predict import run_prediction
from virnucpro.store.disk import HOST_NAME
from virnucpro.store.lock import LockOwner, locked

STAGES = (
    *("chunking", "translation", "splitting", "nucleotide_embeddings", "protein_embeddings"),
    *("merging", "prediction", "consensus", "output"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in ``done``, with its intermediate files; one stopped in ESM-2 in ``cut``."""
    folder = tmp_path_factory.mktemp("made")
    make_input(folder / "in.fa")
    predict(folder / "in.fa", folder / "done")
    with pytest.raises(Stopped):
        predict(folder / "in.fa", folder / "cut", Stopping("output_1_ESM.pt.done"))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def _run(call: Callable, out: Path) -> dict:
    done = call("status", out, "--json")
    assert done.code == 0, done.err
    (run,) = json.loads(done.out)["runs"]
    return run


def _stage(run: dict, name: str) -> dict:
    return next(stage for stage in run["stages"] if stage["stage"] == name)


def test_an_interrupted_run(call, folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    run = _run(call, folder / "cut")
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert (run["stem"], run["state"], run["owner"]) == ("in", "interrupted", None)
    nucleotide, esm = (_stage(run, f"{name}_embeddings") for name in ("nucleotide", "protein"))
    assert nucleotide["files_done"] == nucleotide["files"]
    # The second file, which is the heaviest, is done; the first one has features and is not finished.
    done = 25
    assert (esm["files_done"], esm["files"], esm["sequences_done"]) == (1, 3, done)
    left = esm["sequences"] - done
    # Where the files took no time that can be told, nobody knows how long the others take.
    known = pytest.approx(left * esm["seconds"] / done, abs=0.1) if esm["seconds"] else None
    assert run["seconds_left"] == known
    embedded, total = nucleotide["sequences"] + done, nucleotide["sequences"] + esm["sequences"]
    share = f"in: interrupted, {100 * embedded // total} % of the embedding is kept"
    assert share in call("status", folder / "cut").out


def test_a_run_of_which_a_sequence_failed(call, folder):
    _, sequence = next(iter(read_fasta(folder / "done/in_protein.faa")))
    with poisoned(sequence.__eq__):
        predict(folder / "in.fa", folder / "part")
    run = _run(call, folder / "part")
    assert (run["state"], [row["sequences"] for row in run["failed"]]) == ("partial", [1])
    assert "in: finished, but 1 sequence failed" in call("status", folder / "part").out
    predict(folder / "in.fa", folder / "part")
    assert _run(call, folder / "part")["state"] == "finished"


def test_before_the_split_nobody_knows_how_much_there_is(call, tmp_path):
    make_input(tmp_path / "in.fa")
    with pytest.raises(Stopped):
        predict(tmp_path / "in.fa", tmp_path / "out", Stopping("in_protein.faa"))
    run = _run(call, tmp_path / "out")
    assert (run["state"], _stage(run, "chunking")["files_done"]) == ("interrupted", 1)
    assert _stage(run, "protein_embeddings")["files"] is None


def test_what_ended_the_last_start_may_be_corrected(call, tmp_path):
    source, out = tmp_path / "in.fa", tmp_path / "out"
    predict = ("predict", source, "-o", out, "-m", "toy", "--device", "cpu", "-q")
    source.write_text(">a\nACGT\n>b\nMKLV\n")
    assert call(*predict).code == 65
    assert _run(call, out)["ended"].startswith("InputError: ")
    assert "in.fa: line 4, record 'b'" in call("status", out).out
    source.write_text(">a\nACGT\n")
    assert call(*predict).code == 0


def test_a_finished_run(call, folder):
    out = folder / "done"
    run = _run(call, out)
    assert (run["state"], [stage["stage"] for stage in run["stages"]]) == ("finished", [*STAGES])
    assert list(out.rglob("*.pt"))
    stages = []
    for _ in range(2):
        run_prediction(toy_request(folder / "in.fa", out, **SCIENCE), lambda _: None)
        assert not list(out.rglob("*.pt"))
        run = _run(call, out)
        assert run["state"] == "finished"
        stages.append(run["stages"])
    assert stages[0] == stages[1]


def test_a_process_that_is_lost_is_not_at_work(call, folder):
    """Its host does not answer, or its number is that of another process by now."""
    for host in ("lost-node", HOST_NAME):
        owner = LockOwner(host, os.getppid(), 1)
        (folder / "cut/.checkpoints/runs/in/lock").write_text(json.dumps(asdict(owner)))
        assert _run(call, folder / "cut")["state"] == "interrupted"


def test_a_run_at_work_is_named_with_its_process(call, folder):
    with locked(Layout(folder / "cut", "in").lock):
        run = _run(call, folder / "cut")
        assert (run["state"], run["owner"]["pid"]) == ("running", os.getpid())
        assert f"in: process {os.getpid()} on " in call("status", folder / "cut").out
    assert _run(call, folder / "cut")["state"] == "interrupted"


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_no_run_there(call, tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert call("status", tmp_path / name).code == 64
