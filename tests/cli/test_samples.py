"""Several inputs in one command: the results are those of single runs, and no sample stops another."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.cli.inputs import bases
from virnucpro.cli import run
from virnucpro.contracts import Device, Session
from virnucpro.errors import InputError, RunInterruptedError, UsageError
from virnucpro.events import Emit, Event, Notice, StageStarted
from virnucpro.layout import SamplesFolder
from virnucpro.run import samples as samples_module
from virnucpro.run.request import PredictionRequest
from virnucpro.run.sample_list import (
    Sample,
    mates_among,
    named_files,
    read_sample_list,
    samples_of,
)
from virnucpro.run.samples import predict_samples
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.store.disk import host_name
from virnucpro.store.documents import sealed
from virnucpro.store.lock import LockOwner
from virnucpro.tables import SAMPLES

TOY = ("-m", "toy", "-t", "1", "--no-progress")
GOOD = ("a", "b", "c")
ENDS = ("contigs.tsv", "chunks.tsv", "virus.fna", "merged/prediction_results.txt")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three inputs, an empty one and a damaged one, in ``in``; the current folder."""
    (tmp_path / "in").mkdir()
    for number, name in enumerate(GOOD):
        # Without T there is no stop codon on either strand: every frame is open.
        text = bases(3000 * (number + 1), seed=number).decode().replace("T", "G")
        records = [text[n : n + 600] for n in range(0, len(text), 600)]
        lines = [f">r{n}\n{record}\n" for n, record in enumerate(records)]
        (tmp_path / f"in/{name}.fa").write_text("".join(lines))
    (tmp_path / "in/empty.fa").touch()
    (tmp_path / "in/wrong.fa").write_text(">x\nAC!GT\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _predict(*arguments: object) -> int:
    """Predict samples into ``out`` and return the exit code."""
    return run(["predict", *map(str, arguments), "-o", "out", *TOY])


def _rows(root: Path) -> dict[str, dict[str, str]]:
    names = SAMPLES.names
    rows = SAMPLES.read(root / "samples_summary.tsv", *names)
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def _listed(folder: Path, *names: str) -> Path:
    path = folder / "samples.tsv"
    path.write_text("name\tfile\n" + "".join(f"s_{name}\tin/{name}.fa\n" for name in names))
    return path


def _check(folder: Path, root: Path, name: str, sample: str) -> None:
    single = folder / f"single_{name}"
    if not single.exists():
        assert run(["predict", f"in/{name}.fa", "-o", str(single), *TOY, "-q"]) == 0
    for end in ENDS:
        found = (root / sample / f"{name}_{end}").read_bytes()
        assert found == (single / f"{name}_{end}").read_bytes(), end


def _check_all(folder: Path) -> None:
    """Check the samples of ``GOOD`` in ``out``, which are named as their files."""
    for name in GOOD:
        _check(folder, folder / "out", name, name)


def test_a_list_with_samples_that_fail(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = (*GOOD, "empty", "wrong", "gone")
    listed = _listed(folder, *names)
    assert _predict("--input-list", listed) == 2
    shown = capsys.readouterr()
    assert "3 of 6 samples are finished" in shown.out
    for name, reason in (("empty", "no sequences"), ("wrong", "line 2"), ("gone", "not found")):
        assert reason in next(line for line in shown.out.splitlines() if f"s_{name} failed" in line)
        assert f"sample s_{name} failed" in shown.err
    rows = _rows(folder / "out")
    assert list(rows) == [f"s_{name}" for name in names]
    assert [row["state"] for row in rows.values()] == ["finished"] * 3 + ["failed"] * 3
    assert [rows[f"s_{name}"]["records"] for name in GOOD] == ["5", "10", "15"]
    for name in GOOD:
        _check(folder, folder / "out", name, f"s_{name}")
    page = (folder / "out/samples_overview.html").read_text()
    assert [name in page for name in names] == [True] * 3 + [False] * 3
    assert '<a href="./s_a/a_report.html">s_a</a>' in page
    assert "All samples on one page: out/samples_overview.html" in shown.out
    written = [*(folder / "out").glob("*/*.tsv"), folder / "out/samples_overview.html"]
    before = {path: path.stat().st_mtime_ns for path in written}
    table = (folder / "out/samples_summary.tsv").read_bytes()
    assert _predict("--input-list", listed) == 2
    assert "Nothing to compute" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert (folder / "out/samples_summary.tsv").read_bytes() == table


def test_status_has_a_line_per_sample(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = _listed(folder, "a", "wrong", "gone")
    _predict("--input-list", listed, "-q")
    capsys.readouterr()
    assert run(["status", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "s_a: finished"
    assert lines[1].startswith("s_wrong: failed: ")
    assert lines[2].startswith("s_gone: failed: ")
    assert lines[3].startswith("1 of 3 samples is finished")
    assert run(["status", "out", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["samples"]
    assert [row["sample"] for row in rows] == ["s_a", "s_wrong", "s_gone"]
    assert [run["state"] for run in rows[0]["runs"]] == ["finished"]
    run(["predict", "--input-list", str(listed), "-o", "out", *TOY, "-q", "-e", "300"])
    capsys.readouterr()
    run(["status", "out"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "s_a: finished"
    assert lines[3].startswith("1 of 3 samples is finished")


def test_several_files_and_patterns_are_named_after_the_files(folder: Path) -> None:
    assert _predict("in/a.fa", "in/[bc].fa", "-q") == 0
    assert list(_rows(folder / "out")) == ["a", "b", "c"]
    assert list(samples_of(folder / "out")) == list(GOOD)
    _check_all(folder)


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
def test_mates_are_told_by_their_names(
    files: tuple[str, ...], mates: tuple[str, str] | None
) -> None:
    assert mates_among(named_files(files)) == mates
    assert mates_among([Sample(row.name, row.file, "x.fq") for row in named_files(files)]) is None


def test_mates_that_are_given_as_samples_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("s_R1", "s_R2"):
        (folder / f"in/{name}.fq").write_text(f"@r\n{'ACG' * 50}\n+\n{'I' * 150}\n")
    assert _predict("in/s_R*.fq", "-e", "150") == 0
    text = capsys.readouterr().err
    assert "2 samples: " in text
    assert "warning: s_R1 and s_R2 look like the two mates of paired reads" in text
    assert "--input2" in text


def _predict_samples(emit: Emit) -> list[str]:
    """Predict the samples of ``GOOD`` into ``out``; returns their states."""
    request = PredictionRequest("", None, AnalysisSettings("toy"), MachineSettings(device="cpu"))
    samples = [Sample(name, f"in/{name}.fa") for name in GOOD]
    predict_samples(request, samples, Path("out").absolute(), emit)
    return [sample.state for sample in samples]


@pytest.mark.parametrize(("share", "most", "loads"), [(0.25, 100, 2), (0.0, 100, 6), (0.25, 2, 4)])
def test_models_are_loaded_once_for_a_group(
    folder: Path, monkeypatch: pytest.MonkeyPatch, share: float, most: int, loads: int
) -> None:
    """A group ends where the features of its samples take too much of the disk, or they are many.

    Each of them has open files.
    """
    opened: list[str] = []
    open_stage = EmbeddingStage.open

    def counted(stage: EmbeddingStage, device: Device) -> Session:
        opened.append(stage.name)
        return open_stage(stage, device)

    monkeypatch.setattr(EmbeddingStage, "open", counted)
    monkeypatch.setattr(samples_module, "GROUP_SHARE", share)
    monkeypatch.setattr(samples_module, "MOST_SAMPLES", most)
    assert _predict_samples(lambda event: None) == ["finished"] * 3
    assert len(opened) == loads
    _check_all(folder)


def test_the_time_left_counts_all_samples_of_a_group_and_says_that_there_are_others(
    folder: Path,
) -> None:
    events: list[Event] = []
    _predict_samples(events.append)
    begun = [event.message for event in events if isinstance(event, Notice)]
    assert [text for text in begun if text.startswith("sample ")] == [
        f"sample {number} of 3: {name}"
        for number, name in enumerate("cba", 1)  # the largest first
    ]
    started = {event.stage: event for event in events if isinstance(event, StageStarted)}
    ahead = started["nucleotide_embeddings"].ahead
    proteins = [item.sequences for item in ahead if item.stage == "protein_embeddings"]
    assert len(proteins) == len(GOOD)
    assert sum(filter(None, proteins)) == started["protein_embeddings"].sequences > 0
    for event in started.values():
        assert (None, None) in {(item.sequences, item.seconds) for item in event.ahead}


def test_an_interrupted_list_is_continued(folder: Path) -> None:
    root = folder / "out"

    def interrupt(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == "protein_embeddings":
            raise RunInterruptedError(15)

    with pytest.raises(RunInterruptedError):
        _predict_samples(interrupt)
    assert [row["state"] for row in _rows(root).values()] == ["unfinished"] * 3
    events: list[Event] = []
    _predict_samples(events.append)
    todo = {e.stage: e.todo for e in events if isinstance(e, StageStarted) and e.on_workers}
    assert todo == {"nucleotide_embeddings": 0, "protein_embeddings": 3}
    _check_all(folder)


def test_a_table_of_the_user_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = folder / "out/samples_summary.tsv"
    table.parent.mkdir()
    table.write_text("mine")
    assert _predict("in/a.fa", "in/b.fa", "-q") == 64
    assert "not its own: samples_summary.tsv" in capsys.readouterr().err
    assert table.read_text() == "mine"
    assert _predict("in/a.fa", "in/b.fa", "-q", "--force") == 0
    assert list(_rows(folder / "out")) == ["a", "b"]
    kept = (folder / "out/.checkpoints").glob("samples.previous*/**/samples_summary.tsv")
    assert [path.read_text() for path in kept] == ["mine"]


@pytest.mark.parametrize("is_worked_on", [False, True])
def test_a_sample_of_a_newer_version_stops_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str], is_worked_on: bool
) -> None:
    """A sample that the newer version works on at this moment stops no other, either."""
    home = folder / "out/b/.checkpoints/runs/b"
    (home / "state").mkdir(parents=True)
    (home / "state/run.json").write_bytes(sealed({"schema": 99, "producer": "virnucpro 9.9"}))
    if is_worked_on:
        owner = LockOwner(host_name(), os.getppid(), 1)  # a process that lives
        (home / "lock").write_text(json.dumps(asdict(owner)))
    assert _predict("in/a.fa", "in/b.fa", "in/c.fa", "-q") == 2
    rows = _rows(folder / "out")
    assert [row["state"] for row in rows.values()] == ["finished", "failed", "finished"]
    assert "written by a newer version of the program (virnucpro 9.9)" in rows["b"]["message"]
    capsys.readouterr()
    (folder / "out/samples_summary.tsv").unlink()  # status tells it from the run itself
    assert run(["status", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a: finished"
    assert lines[1].startswith("b: failed: ")
    assert "newer version of the program (virnucpro 9.9)" in lines[1]
    assert lines[3].startswith("2 of 3 samples are finished")


def test_report_writes_the_reports_and_the_overview_of_all_samples_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = _listed(folder, "a", "b", "wrong")
    assert _predict("--input-list", listed, "-q") == 2
    written = [folder / "out/samples_overview.html", folder / "out/s_a/a_report.html"]
    contents = [path.read_bytes() for path in written]
    for path in written:
        path.unlink()
    capsys.readouterr()
    assert run(["report", "out"]) == 0
    assert "overview: out/samples_overview.html" in capsys.readouterr().err
    assert [path.read_bytes() for path in written] == contents


def _calls(root: Path, name: str) -> Counter[str]:
    lines = (root / f"{name}_contigs.tsv").read_text().splitlines()
    place = lines[0].split("\t").index("call")
    return Counter(line.split("\t")[place] for line in lines[1:])


def test_call_takes_all_samples_and_renews_their_table_and_overview(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _predict("--input-list", _listed(folder, "a", "b", "wrong"), "-q") == 2
    before, overview = _rows(folder / "out"), folder / "out/samples_overview.html"
    page = overview.read_bytes()
    assert run(["call", "out", "--min-score", "-1"]) == 0
    text = capsys.readouterr()
    assert "left out: the run wrong in" in text.err
    assert "of 5 records are called virus" in text.out
    after = _rows(folder / "out")
    for name in ("a", "b"):
        calls, row = _calls(folder / f"out/s_{name}", name), after[f"s_{name}"]
        assert calls["virus"] > int(before[f"s_{name}"]["virus"])
        assert {call: int(row[call]) for call in ("virus", "nonvirus", "undecided")} == {
            call: calls[call] for call in ("virus", "nonvirus", "undecided")
        }
    assert after["s_wrong"] == before["s_wrong"]
    assert overview.read_bytes() != page
    assert run(["call", "out/s_a", "out/s_b", "-q"]) == 0  # the default cuts again
    assert _rows(folder / "out") == before
    assert overview.read_bytes() == page


def test_a_run_of_a_single_input_beside_samples_is_not_forgotten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _predict("in/c.fa", "-q") == 0
    assert _predict("--input-list", _listed(folder, "a", "b"), "-q") == 0
    capsys.readouterr()
    assert run(["status", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["s_a: finished", "s_b: finished", "not one of the samples:", "c: finished"]
    assert lines[-1].startswith("2 of 2 samples are finished")
    assert run(["status", "out", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["sample"] for row in document["samples"]] == ["s_a", "s_b"]
    assert [row["stem"] for row in document["runs"]] == ["c"]

    page, rows = (folder / "out/c_report.html").read_bytes(), _rows(folder / "out")
    overview = (folder / "out/samples_overview.html").read_bytes()
    (folder / "out/c_report.html").unlink()
    assert run(["report", "out"]) == 0
    assert (folder / "out/c_report.html").read_bytes() == page
    assert (folder / "out/samples_overview.html").read_bytes() == overview  # of the samples only
    assert run(["utils", "multiqc", "out", "-o", "multiqc"]) == 0
    names = {path.name.split("_")[0] for path in (folder / "multiqc").iterdir()}
    assert names == {"s", "c"}

    before = _calls(folder / "out", "c")
    assert run(["call", "out", "--min-score", "-1", "-q"]) == 0
    assert _calls(folder / "out", "c")["virus"] > before["virus"]
    assert set(_rows(folder / "out")) == set(rows)


@pytest.mark.parametrize("mine", ["samples_summary.tsv", "samples_overview.html"])
def test_call_leaves_a_file_of_the_user(
    folder: Path, capsys: pytest.CaptureFixture[str], mine: str
) -> None:
    assert _predict("in/a.fa", "in/b.fa", "-q") == 0
    (folder / "out" / mine).write_text("mine\n")
    capsys.readouterr()
    assert run(["call", "out/a", "--min-score", "-1"]) == 0
    assert mine in capsys.readouterr().err
    assert (folder / "out" / mine).read_text() == "mine\n"


def test_a_sample_whose_folder_cannot_be_written_stops_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "out/b").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "b")
    assert run(["predict", "in/a.fa", "in/b.fa", "-o", "out", *TOY, "-q"]) == 2
    rows = _rows(folder / "out")
    assert [row["state"] for row in rows.values()] == ["finished", "failed"]
    assert "cannot write into" in rows["b"]["message"]


def test_warnings_name_their_sample(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "in/a.fa", "in/b.fa", "-o", "out", *TOY, "-q", "-e", "3000"]) == 0
    lines = capsys.readouterr().err.splitlines()
    for name in ("a", "b"):
        assert any(line.startswith(f"warning: sample {name}: half of") for line in lines), lines


def test_an_overview_of_the_user_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overview = folder / "out/samples_overview.html"
    overview.parent.mkdir()
    overview.write_text("mine")
    assert _predict("in/a.fa", "in/b.fa") == 0
    shown = capsys.readouterr()
    assert "no overview was written: " in shown.err
    assert "on one page" not in shown.out
    assert overview.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("in/a.fa", "in/b.fa"), "give --output-dir DIR"),
        (("in/a.fa", "-", "-o", "out"), "standard input"),
        (("in/a.fa", "in/../in/a.fa", "-o", "out"), "have the same name a"),
        (("none/*.fa", "-o", "out"), "no file matches none/*.fa"),
        (("in/a.fa", "--input-list", "samples.tsv", "-o", "out"), "give the input in one way"),
        (("--input-list", "none.tsv", "-o", "out"), "none.tsv cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_samples_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], says: str
) -> None:
    assert run(["predict", *arguments, *TOY]) == 64
    assert says in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("a\tin/a.fa\n", "has no column 'name'"),
        ("name\tfile\n", "names no sample"),
        ("name\tfile\na\n", "line 2"),
        ("name\tfile\na\t\n", "line 2"),
        ("name\tfile\n../a\tin/a.fa\n", "cannot be the name of a folder"),
        ("name\tfile\n.a\tin/a.fa\n", "cannot be the name of a folder"),
        ("name\tfile\na\x1b[2J\tin/a.fa\n", "cannot be the name of a folder"),
        (f"name\tfile\n{'a' * 201}\tin/a.fa\n", "longer than 200 bytes"),
        ("name\tfile\na\tin/a.fa\nA\tin/b.fa\n", "have the same name A"),
        ("name\tfile\na\tin/a.fa\na\tin/a.fa\n", "in/a.fa and in/a.fa have the same name a"),
        ("name\tfile\tinput2\na\t1.fq\t2.fq\na\t1.fq\t3.fq\n", "have the same name a"),
        ("name\tfile\na\tin/a.fa\nb\t-\n", "line 3: standard input cannot be one of several"),
        ("name\tfile\tinput2\na\t1.fq\t-\n", "line 2: standard input cannot be one of several"),
        ("name\tfile\nsamples_summary.tsv\tin/a.fa\n", "have the same name"),
        ("name\tfile\nsamples_overview.html\tin/a.fa\n", "have the same name"),
        ("name\tfile\na\tin/\udcff.fa\n", "not in UTF-8"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "samples.tsv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=says):
        read_sample_list(path)


def test_a_list_may_have_blank_lines_and_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "samples.tsv"
    path.write_text("\ufeffplace\tname\tfile\n\nlake\tone\tin/a b.fa\r\n")
    assert read_sample_list(path) == [Sample("one", "in/a b.fa")]


def test_names_in_a_table_that_cannot_be_folders_do_not_count(tmp_path: Path) -> None:
    folder = SamplesFolder(tmp_path)
    assert samples_of(tmp_path) == {}
    cells = "\tx\tfailed" + "\tNA" * 7 + "\n"
    folder.summary_table.write_text(f"{SAMPLES.header}../..{cells}a{cells}b\n")
    assert list(samples_of(tmp_path)) == ["a"]
    with pytest.raises(UsageError):
        named_files(["/nowhere/*.fa"])


def _contents(root: Path) -> dict[Path, bytes]:
    """Return all files but locks and logs, which every command writes."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.name not in ("lock", "run.log")}


def test_a_second_batch_adds_its_samples_and_forgets_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _predict("in/a.fa", "in/b.fa", "-q") == 0
    before = _rows(folder / "out")
    assert _predict("in/c.fa", "in/b.fa", "in/wrong.fa", "-q") == 2
    rows = _rows(folder / "out")
    assert list(rows) == [*GOOD, "wrong"]
    assert {name: rows[name] for name in before} == before
    page = (folder / "out/samples_overview.html").read_text()
    assert all(f'href="./{name}/{name}_report.html"' in page for name in GOOD)
    capsys.readouterr()
    assert run(["status", "out"]) == 0
    assert "3 of 4 samples are finished" in capsys.readouterr().out
    assert run(["call", "out", "--min-score", "-1", "-q"]) == 0
    after = _rows(folder / "out")
    assert all(int(after[name]["virus"]) > int(rows[name]["virus"]) for name in GOOD)
    assert _predict("in/a.fa", "in/b.fa", "-q", "--force") == 0
    assert {name: row["virus"] for name, row in _rows(folder / "out").items()} == {
        **{name: rows[name]["virus"] for name in ("a", "b")},
        **{name: after[name]["virus"] for name in ("c", "wrong")},
    }
    (folder / "out/samples_summary.tsv").unlink()
    assert run(["report", "out"]) == 0  # the runs are the list
    assert list(_rows(folder / "out")) == [*GOOD, "wrong"]


def test_a_refused_command_changes_nothing_and_says_what_differs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _predict("in/a.fa", "in/b.fa", "-q") == 0
    before = _contents(folder / "out")
    capsys.readouterr()
    assert _predict("in/a.fa", "in/b.fa", "-e", "300") == 3
    shown = capsys.readouterr()
    assert "chunk length: was 500, is 300" in shown.err
    assert "called virus" not in shown.out
    assert _contents(folder / "out") == before
    assert _predict("in/a.fa", "in/b.fa", "in/c.fa", "-e", "300", "-q") == 2
    assert [row["state"] for row in _rows(folder / "out").values()] == ["finished"] * 3


def test_files_of_one_name_are_told_apart_by_their_samples(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "scaffolds.fa").write_bytes((folder / "in/a.fa").read_bytes())
    lines = "".join(f"{name}\t{name}/scaffolds.fa\n" for name in ("one", "two"))
    (folder / "samples.tsv").write_text(f"name\tfile\n{lines}")
    assert _predict("--input-list", "samples.tsv", "-q") == 0
    for number, folders in enumerate((["out"], ["out/one", "out/two"])):
        assert run(["utils", "multiqc", *folders, "-o", f"multiqc{number}"]) == 0
        for name in ("one", "two"):
            text = (folder / f"multiqc{number}/{name}_virnucpro_calls_mqc.json").read_text()
            assert list(json.loads(text)["data"]) == [name]


def test_temporary_files_of_a_killed_process_are_removed(folder: Path) -> None:
    assert _predict("in/a.fa", "in/b.fa", "-q") == 0
    names = ("samples_summary.tsv", "samples_overview.html", "a/a_run.json", "b/b_report.html")
    left = [
        path.with_name(f".{path.name}.{host_name()}.{2**22 + 1}.tmp")
        for path in (folder / "out" / name for name in names)
    ]
    for command in (["call", "out", "-q"], ["predict", "in/a.fa", "in/b.fa", "-o", "out", *TOY]):
        for path in left:
            path.touch()
        assert run(command) == 0
        assert [path for path in left if path.exists()] == []
