"""Bad and odd inputs through the real command line: the sequences (rows 1 to 53).

Rows 54 to 76 are in ``test_inputs_command``, 77 to 85 in ``test_inputs_models``; the GPU lists of
54 and 57, which need GPUs, in ``tests/unit/test_devices``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import (
    PLAIN,
    SEQUENCE,
    TOY,
    Case,
    bases,
    check_accepted,
    check_nothing_written,
    check_refused,
    ordinary_user,
    packed,
    predict,
    public_folder,
    result_bytes,
    table,
    written,
)
from tests.cli.inputs_sequences import ACCEPTED, CHUNKED, REFUSED
from tests.forked import run_forked
from virnucpro.errors import VirNucProError
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.store.disk import Disk


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Results of the plain input that most odd ones stand for."""
    folder = tmp_path_factory.mktemp("plain")
    _execute(_source(folder), folder / "out")
    return result_bytes(folder / "out")


def _source(folder: Path, data: bytes = PLAIN) -> Path:
    path = folder / "sample.fa"
    path.write_bytes(data)
    return path


def _execute(source: Path, out: Path, disk: Disk | None = None) -> None:
    request = PredictionRequest(
        str(source), out, AnalysisSettings(model_type="toy"), MachineSettings(device="cpu")
    )
    run_prediction(request, lambda event: None, disk)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refused(call: Callable, tmp_path: Path, case: Case) -> None:
    done = predict(call, tmp_path, case)
    file = str(tmp_path / case.name)
    check_refused(done, case.code, tuple(s.replace("FILE", file) for s in case.says), case.advice)
    check_nothing_written(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", case.name]


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_accepted(call: Callable, tmp_path: Path, plain: dict[str, bytes], case: Case) -> None:
    done = predict(call, tmp_path, case)
    check_accepted(done)
    out = tmp_path / "out"
    assert all(text in done.out for text in case.says)
    assert ("U: read as T" in done.err) == case.row.startswith("30")
    assert done.err.count("U: read as T") <= 1
    if case.same:
        assert result_bytes(out) | {"sample_virus.fna": b""} == plain | {"sample_virus.fna": b""}
        return
    rows = table(out / "sample_contigs.tsv")
    found = tuple((r["record"], int(r["length"]), r["status"]) for r in rows)
    assert found == case.records
    scored = [name for name, _, status in case.records if status == "scored"]
    chunks = table(out / "sample_merged/prediction_results_highestscore.csv")
    assert [row["Modified_ID"] for row in chunks] == [f"{name}_chunk_1" for name in scored]
    frames = table(out / "sample_merged/prediction_results.txt")
    assert {row["Sequence_ID"][:-2] for row in frames} == {row["Modified_ID"] for row in chunks}
    assert {path.name for path in tmp_path.iterdir()} == {"out", case.name}


def test_16_headers_of_viral_records_are_unchanged(call: Callable, tmp_path: Path) -> None:
    case = Case("16", PLAIN.replace(b">", b">  ").replace(b"b", b"a b"))
    options = ("--duplicate-ids", "rename", "--min-score", "-1")  # above which both records are
    check_accepted(predict(call, tmp_path, case, *options))
    text = (tmp_path / "out/sample_virus.fna").read_text()
    headers = [line for line in text.splitlines() if line.startswith(">")]
    assert sorted(headers) == [">  a first", ">  a_2 b"]


@pytest.mark.parametrize(("row", "sequence", "spans"), CHUNKED, ids=[row for row, _, _ in CHUNKED])
def test_chunks(
    call: Callable, tmp_path: Path, row: str, sequence: bytes, spans: list[tuple[str, str]]
) -> None:
    check_accepted(predict(call, tmp_path, Case(row, b">a\n" + sequence)))
    rows = table(tmp_path / "out/sample_chunks.tsv")
    assert [(r["start"], r["end"]) for r in rows] == spans


# --- what is no file, or not to be read


@pytest.mark.parametrize(
    ("row", "make", "says"),
    [
        ("3 missing", lambda path: None, "not found: check its path"),
        ("3 behind a file", lambda path: path.parent.write_text("x"), "not found: check its path"),
        ("3 dangling link", lambda path: path.symlink_to("nowhere"), "not found: check its path"),
        ("3 name too long", lambda path: None, "bytes too long to name the results after it"),
        ("4 a folder", lambda path: path.mkdir(), "is a folder: name a FASTA or FASTQ file"),
        ("6 a named pipe", os.mkfifo, "is not a regular file, and it is read more than once: pipe it to --input -"),
    ],
)  # fmt: skip
def test_no_file(call: Callable, tmp_path: Path, row: str, make: Callable, says: str) -> None:
    names = {"3 behind a file": "a/sample.fa", "3 name too long": "x" * 300}
    path = tmp_path / names.get(row, "sample.fa")
    make(path)
    done = call("predict", path, "-o", tmp_path / "out", *TOY)
    check_refused(done, 64, (str(path),), says)
    assert not (tmp_path / "out").exists()


def test_4_a_folder_after_which_nothing_can_be_named(call: Callable, tmp_path: Path) -> None:
    done = call("predict", "..", "-o", tmp_path / "out", *TOY)
    check_refused(done, 64, ("input .. is a folder",), "name a FASTA or FASTQ file")


@pytest.mark.parametrize("where", ["file", "folder"])
def test_5_unreadable(call: Callable, tmp_path: Path, plain: object, where: str) -> None:
    with public_folder() as folder:
        (folder / "in").mkdir()
        source = _source(folder / "in")
        (source if where == "file" else source.parent).chmod(0)
        with ordinary_user():
            done = call("predict", source, "-o", folder / "out", *TOY)
        check_refused(
            done, 64, (str(source), "Permission denied"), "check its path and permissions"
        )
        assert not (folder / "out").exists()
        source.parent.chmod(0o700)


@pytest.mark.parametrize(
    ("text", "options", "code", "advice"),
    [
        (">a\nACGT\n>b\nAC-T\n", (), 65, "line 4, record 'b'"),
        (">a\nACGT\n>\nAC\n", (), 65, "line 3"),
        (">a\nACGT\n>b\nAC\n", ("--interleaved",), 64, "--interleaved"),
    ],
)
def test_6_mistakes_in_standard_input_name_no_file(
    tmp_path: Path, text: str, options: tuple[str, ...], code: int, advice: str
) -> None:
    done = run_forked("predict", "-", "-o", tmp_path, *TOY, *options, input=text)
    check_refused(done, code, ("standard input",), advice)
    assert ".checkpoints" not in done.err
    check_nothing_written(tmp_path)


def test_6_standard_input(tmp_path: Path, plain: dict[str, bytes]) -> None:
    command = ("predict", "-", "-o", tmp_path, *TOY)
    check_accepted(run_forked(*command, input=PLAIN.decode()))
    assert result_bytes(tmp_path, "stdin") == plain
    assert not (tmp_path / ".checkpoints/runs/stdin/input").exists()  # no copy stays
    again = run_forked(*command, "--resume", input=PLAIN.decode())
    check_accepted(again)
    assert "already finished" in again.out


def test_6_standard_input_that_is_closed(shell: Callable, tmp_path: Path) -> None:
    done = shell("predict", "-", "-o", tmp_path, *TOY, preexec_fn=lambda: os.close(0))
    check_refused(done, 64, ("standard input is closed",), "name a file, or pipe one in")
    check_nothing_written(tmp_path)


# --- large ones, made smaller unless the whole size is asked for

FULL = pytest.mark.skipif(
    "VIRNUCPRO_FULL_SIZE" not in os.environ, reason="minutes: set VIRNUCPRO_FULL_SIZE to run it"
)


@pytest.mark.parametrize("size", [3_000_000, pytest.param(300_000_000, marks=FULL)])
def test_43_a_long_record(call: Callable, tmp_path: Path, size: int) -> None:
    check_accepted(predict(call, tmp_path, Case("43", b">a\n" + bases(size))))
    assert len(table(tmp_path / "out/sample_chunks.tsv")) == size // 500


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=FULL)])
def test_44_many_short_reads(call: Callable, tmp_path: Path, count: int) -> None:
    data = bases(15 * count + 100, seed=1)
    reads = b"".join(b">%d\n%b\n" % (i, data[i * 15 : i * 15 + 100]) for i in range(count))
    check_accepted(predict(call, tmp_path, Case("44", reads)))
    rows = table(tmp_path / "out/sample_contigs.tsv")
    assert [row["record"] for row in rows] == [str(i) for i in range(count)]


# --- gzip bomb


def test_49_gzip_bomb_stops_at_the_free_space(
    call: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=4 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    case = Case("49", packed(b">a\n" + b"A" * 20_000_000), name="sample.fa.gz")
    done = predict(call, tmp_path, case)
    says = (str(tmp_path / case.name), "expands to more than")
    check_refused(done, 65, says, "choose another output directory")
    check_nothing_written(tmp_path / "out")


# --- changed while it is used


class Meddling(Disk):
    """Does something to the input when a file whose name has ``at`` in it is opened."""

    def __init__(self, at: str, change: Callable[[], object]) -> None:
        self.at, self.change, self.done = at, change, False

    def open_new(self, path: Path):  # type: ignore[no-untyped-def]
        if self.at in path.name and not self.done:
            self.done = True
            self.change()
        return super().open_new(path)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


CHANGES = {
    "a record more": (lambda path: _append(path, b">c\n" + SEQUENCE), 65),
    "half a record": (lambda path: os.truncate(path, 60), 65),
    "other bases": (lambda path: path.write_bytes(PLAIN.replace(b"GG", b"CC")), 65),
    "removed": (lambda path: path.unlink(), 64),
}
MOMENTS = ("run.json", "chunked500", "ESM", "prediction_results", "contigs")


@pytest.mark.parametrize(
    ("change", "at"),
    [*((change, "chunked500") for change in CHANGES), *(("other bases", at) for at in MOMENTS)],
)
def test_52_changed_while_running(tmp_path: Path, at: str, change: str) -> None:
    source, out = _source(tmp_path), tmp_path / "out"
    act, code = CHANGES[change]
    os.utime(source, (1, 1))  # long ago: any write shows in the time
    disk = Meddling(at, lambda: act(source))
    with pytest.raises(VirNucProError) as caught:
        _execute(source, out, disk)
    assert disk.done
    assert caught.value.exit_code == code
    assert str(source) in str(caught.value)
    assert not (out / "sample_run.json").exists()
    assert at != "chunked500" or written(out) == []


# --- an input among the results


def test_53_input_that_the_run_would_write(call: Callable, tmp_path: Path) -> None:
    check_accepted(predict(call, tmp_path, Case("53"), "-k"))
    chunks = tmp_path / "out/sample_chunked500.fa"
    before = chunks.read_bytes()
    (tmp_path / "links").mkdir()
    link = tmp_path / "links/sample.fa"
    link.symlink_to(chunks)
    done = call("predict", link, "-o", tmp_path / "out", *TOY, "--force")
    check_refused(done, 64, (str(link), "this run would write"), "choose another --output-dir")
    assert chunks.read_bytes() == before


@pytest.mark.parametrize("name", ["sample_chunked500.fa", "failed_files.fa", "sample.fa"])
def test_53_input_in_the_output_directory(call: Callable, tmp_path: Path, name: str) -> None:
    """The second run of each, ``--force``, must leave its own input alone too."""
    source = tmp_path / name
    source.write_bytes(PLAIN)
    for options in ((), ("--force",)):
        check_accepted(call("predict", source, "-o", tmp_path, *TOY, *options))
        assert source.read_bytes() == PLAIN


# --- afterwards


def test_a_refused_input_can_be_corrected(
    call: Callable, tmp_path: Path, plain: dict[str, bytes]
) -> None:
    assert predict(call, tmp_path, Case("bad", PLAIN + b">\n")).code == 65
    check_accepted(predict(call, tmp_path, Case("corrected")))
    assert result_bytes(tmp_path / "out") == plain
