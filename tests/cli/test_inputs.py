"""Bad and odd inputs, options and names through the real command line.

All forms of damaged sequence files are in ``tests/unit/io``, keys of the configuration in
``tests/unit/test_configuration``, lists of GPUs in ``tests/unit/test_devices``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import (
    PLAIN,
    SEQUENCE,
    TOY,
    check_accepted,
    check_nothing_written,
    check_refused,
    packed,
    predict,
    result_bytes,
    table,
    toy_request,
    written,
)
from tests.forked import run_forked
from virnucpro.errors import VirNucProError
from virnucpro.run.predict import run_prediction
from virnucpro.store.disk import Disk

S = SEQUENCE
READS = b"@a first\n" + S + b"\n+\n" + b"I" * 120 + b"\n@b\n" + S[7:] + b"\n+b\n" + b"!" * 113
RENAME = ("--duplicate-ids", "rename")


@pytest.mark.parametrize(
    "data",
    [b">a\nAC\nMKLVE\n", b">a \x1b[31mred\nAC\n", packed(PLAIN)[:-5], b">a\nAC\n>a\nAC\n"],
    ids=["protein", "terminal escape", "truncated gzip", "duplicate ids"],
)
def test_refused(call: Callable, tmp_path: Path, data: bytes) -> None:
    check_refused(predict(call, tmp_path, data), 65, tmp_path / "sample.fa")
    check_nothing_written(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {"out", "sample.fa"}


SCORED = [("a", 120, "scored"), ("b", 113, "scored")]
SILENT = b">a\nAC\n>b\nNNNNNN\n>c\n" + b"TAATTAATTAA" * 9  # stops in all frames


@pytest.mark.parametrize(
    ("data", "options", "records"),
    [
        (PLAIN.replace(b">", b">  "), (), SCORED),
        (PLAIN.replace(b">b", b">a again"), RENAME, [SCORED[0], ("a_2", 113, "scored")]),
        (
            PLAIN.replace(b">a", b">../../x").replace(b">b", b">\"a',[red]%s{0}"),
            (),
            [("../../x", 120, "scored"), ("\"a',[red]%s{0}", 113, "scored")],
        ),
        (b">" + b"x" * (1 << 20) + b"\n" + S, (), [("x" * (1 << 20), 120, "scored")]),
        (SILENT, (), [("a", 2, "too_short"), ("b", 6, "ambiguous"), ("c", 99, "no_open_frame")]),
    ],
    ids=["blank before the id", "renamed", "hostile ids", "long header", "nothing to score"],
)
def test_accepted(
    call: Callable,
    tmp_path: Path,
    data: bytes,
    options: tuple[str, ...],
    records: list[tuple[str, int, str]],
) -> None:
    check_accepted(predict(call, tmp_path, data, *options))
    out = tmp_path / "out"
    rows = table(out / "sample_contigs.tsv")
    assert [(r["record"], int(r["length"]), r["status"]) for r in rows] == records
    chunks = table(out / "sample_merged/prediction_results_highestscore.csv")
    scored = [name for name, _, status in records if status == "scored"]
    assert [row["Modified_ID"] for row in chunks] == [f"{name}_chunk_1" for name in scored]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "sample.fa"}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (READS, "sample.fa"),
        (PLAIN.replace(b"T", b"U"), "sample.fa"),
        (packed(PLAIN[:50]) + packed(PLAIN[50:]), "sample.fa.gz"),
        (PLAIN, "sample.fasta.gz"),
    ],
    ids=["FASTQ", "RNA", "gzip of two members", "gz that is plain"],
)
def test_the_same_results(
    call: Callable, tmp_path: Path, plain: Path, data: bytes, name: str
) -> None:
    done = predict(call, tmp_path, data, name=name)
    check_accepted(done)
    assert done.err.count("U: read as T") == (b"U" in data)
    sequences = {"sample_virus.fna": b""}
    assert result_bytes(tmp_path / "out") | sequences == result_bytes(plain) | sequences


# --- what is no file, or not to be read


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("nowhere"), Path.mkdir, os.mkfifo])
def test_no_file(call: Callable, tmp_path: Path, make: Callable) -> None:
    path = tmp_path / "sample.fa"
    make(path)
    check_refused(call("predict", path, "-o", tmp_path / "out", *TOY), 64, path)
    assert not (tmp_path / "out").exists()


def test_standard_input(tmp_path: Path, plain: Path) -> None:
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


# --- changed while it is used, or among the results


class Meddling(Disk):
    """Does something to the input when the file of chunks is opened."""

    def __init__(self, root: Path, change: Callable[[], object]) -> None:
        super().__init__(root)
        self.change, self.done = change, False

    def open_new(self, path: Path):  # type: ignore[no-untyped-def]
        if "chunked500" in path.name and not self.done:
            self.done = True
            self.change()
        return super().open_new(path)


CHANGES = {
    "a record more": (lambda path: path.write_bytes(PLAIN + b">c\n" + SEQUENCE), 65),
    "half a record": (lambda path: os.truncate(path, 60), 65),
    "other bases": (lambda path: path.write_bytes(PLAIN.replace(b"GG", b"CC")), 65),
    "removed": (lambda path: path.unlink(), 64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_input_that_changes_meanwhile(source: Path, tmp_path: Path, change: str) -> None:
    """While it is cut; ``tests/faults/test_changed_world.py`` has changes at other moments."""
    act, code = CHANGES[change]
    os.utime(source, (1, 1))  # long ago: any write shows in the time
    out = tmp_path / "out"
    disk = Meddling(out, lambda: act(source))
    with pytest.raises(VirNucProError) as caught:
        run_prediction(toy_request(source, out), lambda _: None, disk)
    assert disk.done
    assert caught.value.exit_code == code
    assert str(source) in str(caught.value)
    assert not (out / "sample_run.json").exists()
    assert written(out) == []


@pytest.mark.parametrize("name", ["sample_chunked500.fa", "sample_protein/output_1.fa"])
def test_an_input_that_the_run_would_write(call: Callable, tmp_path: Path, name: str) -> None:
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
def test_options(call: Callable, source: Path, tmp_path: Path, words: str) -> None:
    done = call("predict", source, "-o", tmp_path / "out", "-m", "toy", *words.split())
    check_refused(done, 64)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["out", "out/.checkpoints"])
def test_an_output_directory_that_is_a_file(
    call: Callable, source: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    done = call("predict", source, "-o", tmp_path / "out", *TOY)
    check_refused(done, 64, path, "is a file")
    assert path.read_text() == "mine"
    check_refused(call("predict", source, "-o", source / "out", *TOY), 6, f"cannot write {source}")
    check_refused(call("predict", source, *TOY, "-l", tmp_path), 6, f"cannot write {tmp_path}")


def test_files_of_the_future(call: Callable, source: Path, tmp_path: Path) -> None:
    """Of a clock that was wrong, here or on a file server."""
    arguments = ("predict", source, "-o", tmp_path / "out", *TOY)
    check_accepted(call(*arguments))
    results = result_bytes(tmp_path / "out")
    for path in [source, *(tmp_path / "out").rglob("*")]:
        os.utime(path, (4e9, 4e9))  # 2096: now looks like long before
    again = call(*arguments)
    check_accepted(again)
    assert "Nothing to compute" in again.out
    assert result_bytes(tmp_path / "out") == results


@pytest.mark.parametrize(
    ("folder", "name", "stem"),
    [
        ("x.fa", "y.fa.fa", "y.fa"),
        ("nucleotide", "nucleotide.fa", "nucleotide"),
        ("Ergebnisse für 文", "größe.fq.fa", "größe.fq"),
        ("[red]'\"$HOME", "[bold]*%s{0}.fa", "[bold]*%s{0}"),
        ("-o", "-x.fa", "-x"),
        (".hidden", ".fa", ".fa"),
        ("a\nb", "c\nd.fa", "c\nd"),
    ],
)
def test_names(
    call: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    name: str,
    stem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(PLAIN)
    check_accepted(call("predict", f"--input={name}", f"--output-dir={folder}", *TOY))
    assert [row["record"] for row in table(tmp_path / folder / f"{stem}_contigs.tsv")] == ["a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([folder, name])


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / f"{name}.fa").write_bytes(PLAIN)
    log = tmp_path / "log"
    done = run_forked("predict", f"{name}.fa", "-o", name, *TOY, "-l", log, "-v", cwd=tmp_path)
    check_accepted(done)
    assert table(tmp_path / name / f"{name}_contigs.tsv")[0]["record"] == "a"
    missing = run_forked("predict", f"{name}.fq", "-o", name, *TOY, cwd=tmp_path)
    check_refused(missing, 64, "caf", "No such file")


def test_names_with_control_characters_do_not_reach_the_terminal(
    call: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stem = "a\x1b[2J\r\x07"
    name = f"{stem}.fa"
    Path(name).write_bytes(PLAIN)
    (tmp_path / f"b{name}").write_bytes(b">a\nAC-\n")
    for words, code in (
        (("predict", name, "-o", stem, *TOY, "-v"), 0),
        (("predict", name, f"b{name}", "-o", f"all{stem}", *TOY), 64),
        (("status", stem), 0),
        (("call", stem), 0),
        (("report", stem), 0),
        (("utils", "validate", name), 0),
        (("utils", "validate", f"b{name}"), 65),
        (("utils", "generate-config", "-o", f"{stem}.yaml"), 0),
        (("predict", f"missing{name}"), 64),
        (("predict", name, "-m", stem), 64),
        (("predict", name, f"--{stem}"), 64),
    ):
        done = call(*words)
        assert done.code == code, done
        assert not {"\x1b", "\r", "\x07"} & set(done.out + done.err), words


def test_a_current_folder_that_was_deleted(shell: Callable, tmp_path: Path) -> None:
    (tmp_path / "sample.fa").write_bytes(PLAIN)
    gone = tmp_path / "gone"
    for words in (("predict", tmp_path / "sample.fa", *TOY), ("status", "out")):
        gone.mkdir()
        done = shell(*words, cwd=tmp_path, preexec_fn=lambda: (os.chdir(gone), gone.rmdir()))
        check_refused(done, 64, "current folder")


def test_no_terminal_and_the_c_locale(shell: Callable, tmp_path: Path) -> None:
    (tmp_path / "文.fa").write_bytes(PLAIN.replace(b">a", ">pfäd_文".encode()))
    environment = {k: v for k, v in os.environ.items() if k[:3] != "LC_" and k != "LANG"}
    environment |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict", "FORCE_COLOR": ""}
    out = tmp_path / "größe"
    words = ("predict", "文.fa", "-o", out, *TOY, "-v")
    done = shell(*words, cwd=tmp_path, env=environment, errors="backslashreplace")
    check_accepted(done)
    assert not {"\x1b", "\r"} & set(done.out + done.err)
    assert table(out / "文_contigs.tsv")[0]["record"] == "pfäd_文"
