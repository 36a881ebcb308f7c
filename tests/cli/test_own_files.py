"""What is not the program's own is never overwritten, deleted, followed or moved without leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.inputs import PLAIN, SEQUENCE, TOY, check_accepted, check_refused, result_bytes
from tests.forked import run_forked
from virnucpro.configuration import default_yaml
from virnucpro.layout import Layout

USERS_FILES = (
    *("sample_run.json", "sample_nucleotide.fa", "sample_chunked500.fa", "sample_report.html"),
    *("sample_protein/output_1.fa", "sample_virus.fastq.gz", "sample_merged/output_1_merged.pt"),
    "failed_files.txt",
)


@pytest.mark.parametrize("name", USERS_FILES)
def test_users_files_under_names_of_ours_are_refused_before_the_first_start(
    call, source, plain, tmp_path, name
):
    mine, out = tmp_path / "out" / name, tmp_path / "out"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    arguments = ("predict", source, "-o", out, *TOY)
    for options in ((), ("--resume",)):
        refused = call(*arguments, *options)
        check_refused(refused, 64, str(mine))
        assert [path for path in out.rglob("*") if path.is_file()] == [mine]
        assert mine.read_text() == "mine"
    check_accepted(call(*arguments, "--force"))
    assert result_bytes(out) == result_bytes(plain)


def test_results_that_were_edited_are_made_again(call, source, plain, tmp_path):
    out = Path(shutil.copytree(plain, tmp_path / "out"))
    for name in ("sample_contigs.tsv", "sample_virus.fna"):
        (out / name).write_text("edited")
    (out / "sample_protein").mkdir(exist_ok=True)
    (out / "sample_protein/output_notes.txt").write_text("mine")
    for options in ((), ("--force",)):
        check_accepted(call("predict", source, "-o", out, *TOY, *options))
        assert result_bytes(out) == result_bytes(plain)
        assert (out / "sample_protein/output_notes.txt").read_text() == "mine"


def test_chunks_of_another_length_are_somebody_elses(call, source, tmp_path):
    """``a_chunked300.fa`` is an input of its own beside ``a.fa``."""
    other = tmp_path / "sample_chunked300.fa"
    other.write_bytes(PLAIN)
    arguments = ("predict", source, "-o", tmp_path, *TOY)
    for options in ((), (), ("--force",)):
        check_accepted(call(*arguments, *options))
    check_accepted(call("predict", other, "-o", tmp_path, *TOY))
    results = result_bytes(tmp_path, "sample_chunked300")
    check_accepted(call(*arguments, "--force"))
    assert other.read_bytes() == PLAIN
    assert result_bytes(tmp_path, "sample_chunked300") == results


@pytest.mark.parametrize("name", ["state", "x_chunked500"])
def test_names_do_not_collide(call, tmp_path, name):
    out, stems = tmp_path / "out", ["x", name]
    for stem in stems:
        (tmp_path / f"{stem}.fa").write_bytes(PLAIN)
        check_accepted(call("predict", tmp_path / f"{stem}.fa", "-o", out, *TOY))
    results = [result_bytes(out, stem) for stem in stems]
    for stem in stems:
        check_accepted(call("predict", tmp_path / f"{stem}.fa", "-o", out, *TOY, "--force"))
        assert [result_bytes(out, each) for each in stems] == results
        rows = json.loads(call("status", out, "--json").out)["runs"]
        assert {row["stem"]: row["state"] for row in rows} == dict.fromkeys(stems, "finished")


@pytest.mark.parametrize("name", ["..fa", f"{'n' * 245}.fa", f"{'ü' * 115}.fa"])
def test_names_that_no_result_can_have(call, tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(PLAIN)
    check_refused(call("predict", name, *TOY, "-o", "out"), 64, "has a name")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def _spooled(out: Path) -> list[bytes]:
    return [path.read_bytes() for path in (out / ".checkpoints").rglob("input*")]


def test_other_standard_input_does_not_replace_that_of_the_run(tmp_path):
    arguments = ("predict", "-", "-o", tmp_path, *TOY, "--keep-intermediate")
    check_accepted(run_forked(*arguments, input=PLAIN.decode()))
    results = result_bytes(tmp_path, "stdin")
    assert _spooled(tmp_path) == [PLAIN]
    for options in ((), ("--resume",)):
        refused = run_forked(*arguments, *options, input=f">a\n{SEQUENCE.decode()}\n")
        check_refused(refused, 3, "input: was sha256")
        assert _spooled(tmp_path) == [PLAIN]
    (tmp_path / "stdin_contigs.tsv").unlink()
    check_accepted(run_forked(*arguments, input=PLAIN.decode()))
    assert result_bytes(tmp_path, "stdin") == results
    assert _spooled(tmp_path) == [PLAIN]


LAYOUT = Layout(Path(), "sample", 500)
FOLDERS = (LAYOUT.root, LAYOUT.state, LAYOUT.home, LAYOUT.runs, LAYOUT.checkpoints)
FOLDERS += (LAYOUT.folders["protein"], LAYOUT.merged_folder)
FILES = (LAYOUT.lock, LAYOUT.log, LAYOUT.failed_lock, LAYOUT.failed_table, LAYOUT.contigs_table)
FILES += (LAYOUT.frames["protein"],)


@pytest.mark.parametrize("finished", [False, True], ids=["new", "finished"])
@pytest.mark.parametrize("place", [*FOLDERS, *FILES], ids=str)
def test_nothing_is_lost_behind_a_link(call, source, plain, tmp_path, place, finished):
    link, elsewhere = tmp_path / "out" / place, tmp_path / "elsewhere"
    if finished:
        shutil.copytree(plain, tmp_path / "out")
        shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if place in FOLDERS:
        elsewhere.mkdir()
    mine = elsewhere / "output_1.fa" if place in FOLDERS else elsewhere
    mine.write_text("mine")
    link.symlink_to(elsewhere)
    done = call("predict", source, "-o", tmp_path / "out", *TOY)
    assert "Traceback" not in done.err
    # 0: the link itself was replaced, or nothing had to be written there
    assert done.code in (0, 3, 6, 64), done.err
    kept = elsewhere.iterdir() if elsewhere.is_dir() else [elsewhere]
    assert "mine" in [path.read_text() for path in kept if path.is_file()]


def test_commands_with_a_single_file(call, tmp_path):
    path = tmp_path / "notes"
    path.write_text("mine")
    assert call("utils", "generate-config").out == default_yaml()
    assert call("utils", "generate-config", "-o", path).code == 64
    assert path.read_text() == "mine"
    assert call("utils", "generate-config", "-o", path, "--force").code == 0
    assert path.read_text() == default_yaml()
