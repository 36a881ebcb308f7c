"""Several inputs in one command: the results are those of single runs, and no sample stops another."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from tests.cli.inputs import open_bases, table, toy_request
from tests.conftest import Call
from virnucpro.cli import run
from virnucpro.contracts import Device, Session
from virnucpro.errors import InputError, OutputError, RunInterruptedError
from virnucpro.events import Event, Notice, Show, StageStarted
from virnucpro.layout import SamplesFolder
from virnucpro.run import predict as predict_module
from virnucpro.run.sample_list import Sample, mates_among, named_files, read_sample_list, samples_of
from virnucpro.run.samples import _failing, predict_samples
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.store.disk import HOST_NAME, explain_write_errors
from virnucpro.store.documents import sealed
from virnucpro.store.lock import LockOwner
from virnucpro.tables import SAMPLES

TOY = ("-m", "toy", "-t", "1", "--no-progress")
OUT, SUMMARY, OVERVIEW = map(Path, ("out", "out/samples_summary.tsv", "out/samples_overview.html"))
GOOD = ("a", "b", "c")
KINDS = ("virus", "nonvirus", "undecided", "unscored")
ENDS = ("contigs.tsv", "chunks.tsv", "virus.fna", "merged/prediction_results.txt")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three inputs, an empty one and a damaged one, in ``in``; a single run of each of the three."""
    home = tmp_path_factory.mktemp("made")
    (home / "in").mkdir()
    for number, name in enumerate(GOOD, 1):
        records = (f">r{n}\n{open_bases(200, 100 * number + n)}\n" for n in range(5 * number))
        source, single = home / f"in/{name}.fa", home / f"single_{name}"
        source.write_text("".join(records))
        assert run(["predict", str(source), "-o", str(single), *TOY]) == 0
    (home / "in/empty.fa").touch()
    (home / "in/wrong.fa").write_text(">x\nAC!GT\n")
    return home


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def predict(call: Callable[..., Call], folder: Path) -> Callable[..., Call]:
    """Predict samples into ``out``."""
    return lambda *arguments: call("predict", *arguments, "-o", "out", *TOY)


def _rows() -> dict[str, dict[str, str]]:
    return {row["sample"]: row for row in table(SUMMARY)}


def _listed(**files: str) -> Path:
    rows = (f"{sample}\tin/{file}.fa\n" for sample, file in files.items())
    Path("samples.tsv").write_text("name\tfile\n" + "".join(rows))
    return Path("samples.tsv")


def _check(**files: str) -> None:
    """Samples have the bytes of single runs of these files."""
    for sample, name in files.items():
        for end in ENDS:
            found = (OUT / sample / f"{name}_{end}").read_bytes()
            assert found == Path(f"single_{name}/{name}_{end}").read_bytes(), end


def test_a_list_with_samples_that_fail(predict):
    files = {f"s_{name}": name for name in (*GOOD, "empty", "wrong", "gone")}
    listed = _listed(**files)
    done = predict("--input-list", listed)
    assert done.code == 2
    assert [f"sample {name} failed" in done.err for name in files] == [False] * 3 + [True] * 3
    rows = _rows()
    assert list(rows) == list(files)
    found = [(row["state"], row["records"], row["regions"]) for row in rows.values()]
    finished = [("finished", records, "0") for records in ("5", "10", "15")]
    assert found == finished + [("failed", "NA", "NA")] * 3
    _check(**{f"s_{name}": name for name in GOOD})
    page = OVERVIEW.read_text()
    assert [f"<td>{name}</td>" in page for name in files] == [False] * 3 + [True] * 3
    assert '<a href="./s_a/a_report.html">s_a</a>' in page
    written = [*OUT.glob("*/*.tsv"), *OUT.glob("samples_*")]
    before = {path: path.stat().st_mtime_ns for path in written}
    table = SUMMARY.read_bytes()
    assert predict("--input-list", listed).code == 2
    assert SUMMARY.read_bytes() == table
    del before[SUMMARY]  # which is written again
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.parametrize(
    ("number", "state"), [(errno.EACCES, "failed"), (errno.ENOSPC, "unfinished")]
)
def test_a_full_disk_ends_all_samples_and_a_closed_folder_one(number, state):
    sample, path = Sample("s", "s.fa"), Path("out")
    with suppress(OutputError), _failing(sample, lambda event: None), explain_write_errors(path):
        raise OSError(number, "no")
    assert sample.state == state


def test_files_of_one_name_are_named_after_their_folders():
    """Names that differ only in case are one name: on some disks it would be one folder."""
    files = ("A/final.contigs.fa", "B/Final.contigs.fa.gz", "A/x.fa")
    assert [sample.name for sample in named_files(files)] == ["A", "B", "x"]


@pytest.mark.parametrize(
    ("files", "mates"),
    [
        (("in/g_1_R1.fq.gz", "in/g_1_R2.fq.gz"), ("g_1_R1", "g_1_R2")),
        (
            ("g_S1_L001_R2_001.fastq", "g_S1_L001_R1_001.fastq"),
            ("g_S1_L001_R1_001", "g_S1_L001_R2_001"),
        ),
        (("SRR7_1.fastq.gz", "SRR8_1.fastq.gz", "SRR7_2.fastq.gz"), ("SRR7_1", "SRR7_2")),
        (("one/s_1.fq", "two/t_2.fq", "u_1.fq"), None),
        (("contigs_1.fa", "contigs_2.fa"), None),
    ],
)
def test_mates_are_told_by_their_names(files, mates):
    assert mates_among(named_files(files)) == mates
    assert mates_among([Sample(row.name, row.file, "x.fq") for row in named_files(files)]) is None


def _predict_samples(show: Show) -> list[str]:
    """Predict the samples of ``GOOD`` into ``out``; returns their states."""
    request = toy_request(Path(), None)
    samples = [Sample(name, f"in/{name}.fa") for name in GOOD]
    predict_samples(request, samples, Path("out").absolute(), show)
    return [sample.state for sample in samples]


@pytest.mark.parametrize(("share", "most", "loads"), [(0.25, 100, 2), (0.0, 100, 6), (0.25, 2, 4)])
def test_models_are_loaded_once_for_a_group(folder, monkeypatch, share, most, loads):
    """A group ends where the features of its samples take too much of the disk, or they are many.

    Each of them has open files. What is said of a group concerns no single sample.
    """
    opened: list[str] = []
    events: list[Event] = []
    open_stage = EmbeddingStage.open

    def counted(stage: EmbeddingStage, device: Device) -> Session:
        opened.append(stage.name)
        if len(opened) == 1:
            raise ValueError("try again")
        return open_stage(stage, device)

    monkeypatch.setattr(EmbeddingStage, "open", counted)
    monkeypatch.setattr(predict_module, "GROUP_SHARE", share)
    monkeypatch.setattr(predict_module, "MOST_RUNS", most)
    assert _predict_samples(events.append) == ["finished"] * 3
    assert len(opened) == 1 + loads
    warnings = [e.message for e in events if isinstance(e, Notice) and e.level == "warning"]
    assert [text.startswith("sample") for text in warnings] == [False] * 2
    assert not list(OUT.rglob("*.pt"))
    _check(a="a", b="b", c="c")


def test_an_interrupted_list_is_continued(folder):
    def interrupt(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "protein_embeddings":
            raise RunInterruptedError(15)

    with pytest.raises(RunInterruptedError):
        _predict_samples(interrupt)
    assert [row["state"] for row in _rows().values()] == ["unfinished"] * 3
    events: list[Event] = []
    finish = predict_module.finish
    failing = Mock(side_effect=lambda *of: replace(finish(*of), failed_records=1))
    with patch.object(predict_module, "finish", failing):
        assert _predict_samples(events.append) == ["partial"] * 3
    todo = {e.stage: e.todo for e in events if isinstance(e, StageStarted) and e.on_workers}
    assert todo == {"nucleotide_embeddings": 0, "protein_embeddings": 3}
    _check(a="a", b="b", c="c")


def test_a_table_of_the_user_is_not_overwritten(predict):
    OUT.mkdir()
    for path in (SUMMARY, OVERVIEW):
        path.write_text("mine")
        assert predict("in/a.fa", "in/b.fa").code == 64
        assert path.read_text() == "mine"
    assert predict("in/a.fa", "in/b.fa", "--force").code == 0
    assert list(_rows()) == ["a", "b"]


@pytest.mark.parametrize("is_worked_on", [False, True])
def test_a_sample_of_a_newer_version_stops_no_other(call, predict, is_worked_on):
    """A sample that the newer version works on at this moment stops no other, either."""
    home = OUT / "b/.checkpoints/runs/b"
    (home / "state").mkdir(parents=True)
    (home / "state/run.json").write_bytes(sealed({"schema": 99, "producer": "virnucpro 9.9"}))
    (home / "lock").write_text(json.dumps(asdict(LockOwner(HOST_NAME, os.getppid(), 1))))
    with (home / "lock").open() as stream:
        if is_worked_on:
            fcntl.flock(stream, fcntl.LOCK_EX)
        assert predict("in/a.fa", "in/b.fa", "in/c.fa").code == 2
    rows = _rows()
    assert [row["state"] for row in rows.values()] == ["finished", "failed", "finished"]
    assert (f"{os.getppid()} on" if is_worked_on else "virnucpro 9.9") in rows["b"]["message"]
    SUMMARY.unlink()  # status tells it from the run itself
    lines = call("status", "out").out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["a:", "finished"], ["b:", "failed:"]]


def _calls(root: Path, name: str) -> Counter[str]:
    return Counter(row["call"] for row in table(root / f"{name}_contigs.tsv"))


def test_a_run_of_a_single_input_beside_samples_is_not_forgotten(call, predict):
    assert predict("in/c.fa").code == 0
    assert predict("--input-list", _listed(s_a="a", s_b="b")).code == 0
    lines = call("status", "out").out.splitlines()
    assert lines[:3] == ["s_a: finished", "s_b: finished", "c: finished"]
    document = json.loads(call("status", "out", "--json").out)
    assert [row["sample"] for row in document["samples"]] == ["s_a", "s_b"]
    assert [row["stem"] for row in document["runs"]] == ["c"]
    before = _calls(OUT, "c")
    assert call("call", "out", "--min-score", "-1").code == 0
    assert _calls(OUT, "c")["virus"] > before["virus"]
    assert list(_rows()) == ["s_a", "s_b"]


@pytest.mark.parametrize(
    "arguments",
    [
        "in/a.fa in/b.fa",  # without a folder
        "in/a.fa - -o out",
        "in/a.fa in/../in/a.fa -o out",
        "in/a.fa --input-list samples.tsv -o out",
        "--input-list none.tsv -o out",
    ],
)
def test_what_cannot_be_samples_is_refused(folder, arguments):
    assert run(["predict", *arguments.split(), *TOY]) == 64
    assert not OUT.exists()


ONE = "name\tfile\na\tin/a.fa\n"
NO_NAMES = ("../a", ".a", "-a", "a\x1b[2J", "ü" * 101, SUMMARY.name, OVERVIEW.name)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a\tin/a.fa\n", "name\tfile\n", "name\tfile\na\n", "name\tfile\na\t\n"),
        *(f"name\tfile\n{name}\tin/a.fa\n" for name in NO_NAMES),
        *(f"{ONE}{row}\n" for row in ("A\tin/b.fa", "a\tin/a.fa", "b\t-", "ss\tx.fa\nß\ty.fa")),
        *("name\tfile\tinput2\na\t1.fq\t-\n", "name\tfile\na\tin/\udcff.fa\n"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path, text):
    path = tmp_path / "samples.tsv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError):
        read_sample_list(path)


def test_a_list_may_have_blank_lines_and_other_columns(tmp_path):
    path = tmp_path / "samples.tsv"
    path.write_text("\ufeffplace\tname\tfile\n\nlake\tone\tin/a b.fa\r\n")
    assert read_sample_list(path) == [Sample("one", "in/a b.fa")]


def test_names_in_a_table_that_cannot_be_folders_do_not_count(tmp_path):
    folder = SamplesFolder(tmp_path)
    assert samples_of(tmp_path) == {}
    cells = "\tx\tfailed" + "\tNA" * (len(SAMPLES.row._fields) - 3) + "\n"
    folder.summary_table.write_text(f"{SAMPLES.header}../..{cells}a{cells}")
    assert list(samples_of(tmp_path)) == ["a"]


def _contents(root: Path) -> dict[Path, bytes]:
    """Return all files but locks and logs, which every command writes."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.name not in ("lock", "run.log")}


def test_a_second_batch_adds_its_samples_and_forgets_none(call, predict):
    assert predict("in/a.fa", "in/b.fa").code == 0
    before = _rows()
    assert predict("in/c.fa", "in/b.fa", "in/wrong.fa").code == 2
    rows = _rows()
    assert list(rows) == [*GOOD, "wrong"]
    assert {name: rows[name] for name in before} == before
    page = OVERVIEW.read_text()
    assert all(f'href="./{name}/{name}_report.html"' in page for name in GOOD)
    assert call("call", "out", "--min-score", "-1").code == 0
    after = _rows()
    assert all(int(after[name]["virus"]) > int(rows[name]["virus"]) for name in GOOD)
    for name in GOOD:
        calls = _calls(OUT / name, name)
        assert [int(after[name][kind]) for kind in KINDS] == [calls[kind] for kind in KINDS]
    assert after["wrong"] == rows["wrong"]
    assert OVERVIEW.read_text() != page
    assert predict("in/a.fa", "in/b.fa", "--force").code == 0
    again = _rows()
    assert [again[name]["virus"] == rows[name]["virus"] for name in GOOD] == [True, True, False]
    SUMMARY.unlink()
    assert call("report", "out").code == 0  # the runs are the list
    assert list(_rows()) == [*GOOD, "wrong"]


def test_a_name_stands_for_one_file(predict):
    assert predict("in/a.fa", "in/b.fa").code == 0
    before, rows = _contents(OUT / "a"), _rows()
    for options in ((), ("--force",)):
        alone = predict("--input-list", _listed(a="c"), *options)
        assert (alone.code, f"{OUT.absolute()}/a" in alone.err) == (3, True)
        assert predict("--input-list", _listed(a="c", c="c"), *options).code == 2
        assert _contents(OUT / "a") == before
    found = _rows()
    assert found.pop("c")["state"] == "finished"
    assert found == rows


@pytest.mark.parametrize("first", [True, False])
def test_a_run_of_another_file_in_the_folder_of_a_sample_is_no_sample(call, predict, first):
    """Such as that of the records that failed, which the documentation tells users to make."""
    other = Path(shutil.copy("in/c.fa", f"in/{'0' if first else 'd'}.fa"))
    assert predict("in/a.fa", "in/b.fa").code == 0
    rows = _rows()
    assert call("predict", other, "-o", "out/a", *TOY).code == 0
    assert predict("in/a.fa", "in/b.fa").code == 0
    assert call("call", "out").code == 0
    assert _rows() == rows
    assert f"{other.stem}_report.html" in OVERVIEW.read_text()


def test_a_file_that_was_refused_gives_its_name_to_another(predict):
    for file, code in (("wrong", 2), ("a", 0)):
        assert predict("--input-list", _listed(x=file)).code == code
    assert [row["file"] for row in _rows().values()] == ["in/a.fa"]


def test_a_refused_command_changes_nothing(predict):
    assert predict("in/a.fa", "in/b.fa").code == 0
    before = _contents(OUT)
    assert predict("in/a.fa", "in/b.fa", "-e", "300").code == 3
    assert _contents(OUT) == before
    assert predict("in/a.fa", "in/b.fa", "in/c.fa", "-e", "300").code == 2
    assert [row["state"] for row in _rows().values()] == ["finished"] * 3
    assert predict("in/empty.fa", "in/wrong.fa").code == 2
