"""Bad and odd inputs, options and names through the real command line.

All forms of damaged sequence files are in ``tests/unit/io``, keys of the configuration in
``tests/unit/test_configuration``, lists of GPUs in ``tests/unit/test_devices``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.inputs import (
    PLAIN,
    SEQUENCE,
    TOY,
    check_accepted,
    check_nothing_written,
    check_refused,
    predict,
    result_bytes,
    table,
)
from tests.forked import run_forked

S = SEQUENCE
READS = b"@a first\n" + S + b"\n+\n" + b"I" * 120 + b"\n@b\n" + S[7:] + b"\n+b\n" + b"!" * 113
RENAME = ("--duplicate-ids", "rename")


@pytest.mark.parametrize("data", [b">a \x1b[31mred\nMKLVE\n", b">a\nAC\n>a\nAC\n"])
def test_refused(call, tmp_path, data):
    check_refused(predict(call, tmp_path, data), 65, tmp_path / "sample.fa")
    check_nothing_written(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {"out", "sample.fa"}


SCORED = [("a", 120, "scored"), ("b", 113, "scored")]
SILENT = b">a\nAC\n>b\nNNNNNN\n>c\n" + b"TAATTAATTAA" * 9  # stops in all frames
HOSTILE = ("../../x", "\"a',[red]%s{0}")


@pytest.mark.parametrize(
    ("data", "options", "records"),
    [
        (PLAIN.replace(b">b", b">a again"), RENAME, [SCORED[0], ("a_2", 113, "scored")]),
        (
            PLAIN.replace(b">a", f">{HOSTILE[0]}".encode()).replace(
                b">b", f">{HOSTILE[1]}".encode()
            ),
            (),
            [(name, length, "scored") for name, length in zip(HOSTILE, (120, 113), strict=True)],
        ),
        (b">" + b"x" * (1 << 20) + b"\n" + S, (), [("x" * (1 << 20), 120, "scored")]),
        (SILENT, (), [("a", 2, "too_short"), ("b", 6, "ambiguous"), ("c", 99, "no_open_frame")]),
    ],
    ids=["renamed", "hostile ids", "long header", "nothing to score"],
)
def test_accepted(call, tmp_path, data, options, records):
    check_accepted(predict(call, tmp_path, data, *options))
    out = tmp_path / "out"
    rows = table(out / "sample_contigs.tsv")
    assert [(r["record"], int(r["length"]), r["status"]) for r in rows] == records
    chunks = table(out / "sample_merged/prediction_results_highestscore.csv")
    scored = [name for name, _, status in records if status == "scored"]
    assert [row["Modified_ID"] for row in chunks] == [f"{name}_chunk_1" for name in scored]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "sample.fa"}


@pytest.mark.parametrize("data", [READS, PLAIN.replace(b"T", b"U")], ids=["FASTQ", "RNA"])
def test_the_same_results(call, tmp_path, plain, data):
    done = predict(call, tmp_path, data)
    check_accepted(done)
    assert done.err.count("U: read as T") == (b"U" in data)
    sequences = {"sample_virus.fna": b""}
    assert result_bytes(tmp_path / "out") | sequences == result_bytes(plain) | sequences


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what is no file, or not to be read


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("nowhere"), Path.mkdir, os.mkfifo])
def test_no_file(call, tmp_path, make):
    path = tmp_path / "sample.fa"
    make(path)
    check_refused(call("predict", path, "-o", tmp_path / "out", *TOY), 64, path)
    assert not (tmp_path / "out").exists()


def test_standard_input(tmp_path, plain):
    command = ("predict", "-", "-o", tmp_path, *TOY)
    refused = run_forked(*command, input=">a\nACGT\n>b\nAC-T\n")
    check_refused(refused, 65, "standard input: line 4, record 'b'")
    assert ".checkpoints" not in refused.err
    assert not (tmp_path / ".checkpoints/runs/stdin/input").exists()
    check_nothing_written(tmp_path)
    check_accepted(run_forked(*command, input=PLAIN.decode()))
    assert result_bytes(tmp_path, "stdin") == result_bytes(plain)
    assert not (tmp_path / ".checkpoints/runs/stdin/input").exists()  # no copy stays
    again = run_forked(*command, "--resume", input=PLAIN.decode())
    check_accepted(again)
    assert "already finished" in again.out


# --- among the results


@pytest.mark.parametrize("name", ["sample_chunked500.fa", "sample_protein/output_1.fa"])
def test_an_input_that_the_run_would_write(call, tmp_path, name):
    check_accepted(predict(call, tmp_path, PLAIN, "-k"))
    chunks = tmp_path / "out" / name
    before = chunks.read_bytes()
    (tmp_path / "links").mkdir()
    link = tmp_path / "links/sample.fa"
    link.symlink_to(chunks)
    for files in ((link,), (tmp_path / "sample.fa", "--input2", link)):
        done = call("predict", *files, "-o", tmp_path / "out", *TOY, "--force")
        check_refused(done, 64, link, "this run would write")
    assert chunks.read_bytes() == before


# --- options and the output directory


@pytest.mark.parametrize(
    "words",
    [
        *("-d tpu", "-w -3", "-t many", "-b 99999999999999999999999", "-e 2"),
        *("--min-score 1.5", "-c no.yaml", "--gpu 0", "-m 800", "-m custom", "--input second.fa"),
    ],
)
def test_options(call, source, tmp_path, words):
    done = call("predict", source, "-o", tmp_path / "out", "-m", "toy", *words.split())
    check_refused(done, 64)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["out", "out/.checkpoints"])
def test_an_output_directory_that_is_a_file(call, source, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    done = call("predict", source, "-o", tmp_path / "out", *TOY)
    check_refused(done, 64, path, "is a file")
    assert path.read_text() == "mine"
    check_refused(call("predict", source, "-o", source / "out", *TOY), 6, f"cannot write {source}")
    check_refused(call("predict", source, *TOY, "-l", tmp_path), 6, f"cannot write {tmp_path}")


@pytest.mark.parametrize(
    ("folder", "name", "stem"),
    [
        ("x.fa", "y.fa.fa", "y.fa"),
        ("nucleotide", "nucleotide.fa", "nucleotide"),
        ("[red]'\"$HOME", "[bold]*%s{0}.fa", "[bold]*%s{0}"),
        ("-o", "-x.fa", "-x"),
        (".hidden", ".fa", ".fa"),
        ("a\nb", "c\nd.fa", "c\nd"),
    ],
)
def test_names(call, home, folder, name, stem):
    Path(name).write_bytes(PLAIN)
    check_accepted(call("predict", f"--input={name}", f"--output-dir={folder}", *TOY))
    assert [row["record"] for row in table(home / folder / f"{stem}_contigs.tsv")] == ["a", "b"]
    assert sorted(path.name for path in home.iterdir()) == sorted([folder, name])


def test_names_that_are_no_text(home):
    name = os.fsdecode(b"caf\xe9")
    (home / f"{name}.fa").write_bytes(PLAIN)
    check_accepted(run_forked("predict", f"{name}.fa", "-o", name, *TOY, "-l", home / "log", "-v"))
    assert table(home / name / f"{name}_contigs.tsv")[0]["record"] == "a"
    missing = run_forked("predict", f"{name}.fq", "-o", name, *TOY)
    check_refused(missing, 64, "caf", "No such file")


def test_names_with_control_characters_do_not_reach_the_terminal(call, home):
    stem = "a\x1b[2J\r\x07"
    name = f"{stem}.fa"
    Path(name).write_bytes(PLAIN)
    Path(f"b{name}").write_bytes(b">a\nAC-\n")
    for words, code in (
        (("predict", name, "-o", stem, *TOY, "-v"), 0),
        (("predict", name, f"b{name}", "-o", f"all{stem}", *TOY), 64),
        *(((command, stem), 0) for command in ("status", "call", "report")),
        (("utils", "validate", name), 0),
        (("utils", "validate", f"b{name}"), 65),
        (("predict", f"missing{name}"), 64),
        (("predict", name, f"--{stem}"), 64),
    ):
        done = call(*words)
        assert done.code == code, done
        assert not {"\x1b", "\r", "\x07"} & set(done.out + done.err), words


def test_a_current_folder_that_was_deleted(shell, tmp_path):
    (tmp_path / "sample.fa").write_bytes(PLAIN)
    gone = tmp_path / "gone"
    for words in (("predict", tmp_path / "sample.fa", *TOY), ("status", "out")):
        gone.mkdir()
        done = shell(*words, cwd=tmp_path, preexec_fn=lambda: (os.chdir(gone), gone.rmdir()))
        check_refused(done, 64, "current folder")


def test_no_terminal_and_the_c_locale(shell, tmp_path):
    (tmp_path / "文.fa").write_bytes(PLAIN.replace(b">a", ">pfäd_文".encode()))
    environment = {k: v for k, v in os.environ.items() if k[:3] != "LC_" and k != "LANG"}
    environment |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict", "FORCE_COLOR": ""}
    out = tmp_path / "größe"
    words = ("predict", "文.fa", "-o", out, *TOY, "-v")
    done = shell(*words, cwd=tmp_path, env=environment, errors="backslashreplace")
    check_accepted(done)
    assert not {"\x1b", "\r"} & set(done.out + done.err)
    assert table(out / "文_contigs.tsv")[0]["record"] == "pfäd_文"
