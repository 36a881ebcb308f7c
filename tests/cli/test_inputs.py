"""Bad and odd inputs through the real command line: the sequences (rows 1 to 53).

Rows 54 to 76 are in ``test_inputs_command``, 77 to 85 in ``test_inputs_models``; the GPU lists of
54 and 57, which need GPUs, in ``tests/unit/test_devices``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors import safe_open

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
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.errors import InputError, UsageError, VirNucProError
from virnucpro.io.input_summary import summarise_input
from virnucpro.io.pairs import InputFiles
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import TOY_CLASSIFIER, AnalysisSettings, MachineSettings
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


def _swapped() -> bytes:
    """The toy classifier with its two classes swapped: what was nonvirus is virus."""
    with safe_open(TOY_CLASSIFIER, "pt") as file:
        state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    for key in ("output_layer.weight", "output_layer.bias"):
        state[key] = state[key].flip(0)
    return classifier_to_bytes(state, encoders=[], chunk_lengths=[], extra={})


@pytest.mark.parametrize("duplicates", ["error", "rename"])
def test_16_headers_of_viral_records_are_unchanged(
    call: Callable, tmp_path: Path, duplicates: str
) -> None:
    case = Case("16", PLAIN.replace(b">", b">  ").replace(b"b", b"a b"))
    if duplicates == "error":
        case = Case("16", PLAIN.replace(b">", b">  "))
    swapped = tmp_path / "swapped.safetensors"
    swapped.write_bytes(_swapped())
    check_accepted(predict(call, tmp_path, case, "--duplicate-ids", duplicates, "-p", swapped))
    text = (tmp_path / "out/sample_virus.fna").read_text()
    headers = [line for line in text.splitlines() if line.startswith(">")]
    assert headers == [">  a first", ">  a_2 b" if duplicates == "rename" else ">  b"]


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


@pytest.mark.parametrize("name", [".", ".."])
def test_4_a_folder_after_which_nothing_can_be_named(
    call: Callable, tmp_path: Path, name: str
) -> None:
    done = call("predict", name, "-o", tmp_path / "out", *TOY)
    check_refused(done, 64, (f"input {name} is a folder",), "name a FASTA or FASTQ file")


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


def test_6_mistakes_in_standard_input_name_no_file(tmp_path: Path) -> None:
    done = run_forked("predict", "-", "-o", tmp_path / "out", *TOY, input=">a\nACGT\n>b\nAC-T\n")
    check_refused(done, 65, ("standard input: line 4, record 'b'",), "remove gaps")
    assert ".checkpoints" not in done.err
    odd = run_forked(
        "predict", "-", "--interleaved", "-o", tmp_path / "odd", *TOY, input=">a\nACGT\n>b\nAC\n"
    )
    check_refused(odd, 64, ("standard input",), "--interleaved")
    assert ".checkpoints" not in odd.err


def test_6_standard_input(tmp_path: Path, plain: dict[str, bytes]) -> None:
    done = run_forked("predict", "-", "-o", tmp_path, *TOY, input=PLAIN.decode())
    check_accepted(done)
    assert result_bytes(tmp_path, "stdin") == plain
    assert not (tmp_path / ".checkpoints/runs/stdin/input").exists()  # no copy stays


def test_6_standard_input_that_is_closed(shell: Callable, tmp_path: Path) -> None:
    done = shell("predict", "-", "-o", tmp_path, *TOY, preexec_fn=lambda: os.close(0))
    check_refused(done, 64, ("standard input is closed",), "name a file, or pipe one in")
    check_nothing_written(tmp_path)


def test_6_bad_standard_input(tmp_path: Path) -> None:
    done = run_forked("predict", "-", "-o", tmp_path, *TOY, input=">a\nACGT\n>\nAC\n")
    check_refused(done, 65, ("line 3", "no id"), "write one after the '>'")
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


def test_49_gzip_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    bomb = tmp_path / "sample.fa.gz"
    bomb.write_bytes(packed(b">a\n" + b"A" * 20_000_000))
    with pytest.raises(InputError, match="expands to more than the 1,000,000 bytes"):
        summarise_input(InputFiles(bomb), limit=1_000_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.getuid() != 0:
        pytest.skip("only root can mount a small file system")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False)
    if made.returncode:
        pytest.skip("this machine does not let root mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_49_gzip_bomb_stops_at_the_free_space(call: Callable, small_disk: Path) -> None:
    source = small_disk / "sample.fa.gz"
    source.write_bytes(packed(b">a\n" + b"A" * 20_000_000))
    done = call("predict", source, "-o", small_disk / "out", *TOY)
    check_refused(
        done,
        65,
        (str(source), "expands to more than"),
        "choose another output directory",
    )
    check_nothing_written(small_disk / "out")


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
    "bases more": (lambda path: _append(path, b"ACGT"), 65),
    "half a record": (lambda path: os.truncate(path, 60), 65),
    "other bases": (lambda path: path.write_bytes(PLAIN.replace(b"GG", b"CC")), 65),
    "removed": (lambda path: path.unlink(), 64),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("at", ["run.json", "chunked500", "ESM", "prediction_results", "contigs"])
def test_52_changed_while_running(tmp_path: Path, at: str, change: str) -> None:
    source, out = _source(tmp_path), tmp_path / "out"
    act, code = CHANGES[change]
    os.utime(source, (1, 1))  # long ago: any write shows in the time
    disk = Meddling(at, lambda: act(source))
    with pytest.raises(VirNucProError) as caught:
        _execute(source, out, disk)
    assert disk.done
    assert caught.value.exit_code == code
    assert isinstance(caught.value, InputError if code == 65 else UsageError)
    assert str(source) in str(caught.value)
    assert not (out / "sample_run.json").exists()
    if at == "chunked500":
        assert written(out) == []
    if change == "a record more":
        assert "run the same command again when it is whole, with --force" in str(caught.value)


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


@pytest.mark.parametrize(
    "name", ["sample_failed_sequences.fa", "sample_chunked500.fa", "failed_files.fa", "sample.fa"]
)
def test_53_input_in_the_output_directory(call: Callable, tmp_path: Path, name: str) -> None:
    """The second run of each, ``--force``, must leave its own input alone too."""
    source = tmp_path / name
    source.write_bytes(PLAIN)
    for options in ((), ("--force",)):
        check_accepted(call("predict", source, "-o", tmp_path, *TOY, *options))
        assert source.read_bytes() == PLAIN


# --- afterwards


@pytest.mark.parametrize("options", [(), ("--resume",), ("--force",)], ids=str)
def test_a_refused_input_can_be_corrected(
    call: Callable, tmp_path: Path, plain: dict[str, bytes], options: tuple[str, ...]
) -> None:
    assert predict(call, tmp_path, Case("bad", PLAIN + b">\n")).code == 65
    check_accepted(predict(call, tmp_path, Case("corrected"), *options))
    assert result_bytes(tmp_path / "out") == plain
