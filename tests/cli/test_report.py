"""``virnucpro report``, ``virnucpro plot``, and what MultiQC shows of runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report_data import Shown, mixed, write_run
from virnucpro.layout import Layout
from virnucpro.report.plots import COLOURS
from virnucpro.store.lock import locked

TOY = ("-m", "toy", "--device", "cpu", "--threads", "1")


@pytest.fixture
def finished(call: Callable, tmp_path: Path) -> Path:
    """A finished run of two records; its report is ``out/in_report.html``."""
    (tmp_path / "in.fa").write_text(f">a\n{'GCTGAA' * 150}\n>b\nAC\n")
    assert call("predict", tmp_path / "in.fa", "-o", tmp_path / "out", *TOY).code == 0
    return tmp_path / "out"


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of two runs, one of them with an odd name."""
    write_run(tmp_path / "a", mixed(), "one")
    write_run(tmp_path / "b", [Shown("x", "virus", [0.9] * 4)], "two<b>")
    return tmp_path / "a", tmp_path / "b"


def test_a_run_has_a_report_and_a_finished_one_keeps_it(call, finished):
    report = finished / "in_report.html"
    content, written = report.read_bytes(), report.stat().st_mtime_ns
    assert b"of 2 records" in content
    again = ("predict", finished.parent / "in.fa", "-o", finished, *TOY)
    assert call(*again).code == 0
    assert (report.read_bytes(), report.stat().st_mtime_ns) == (content, written)
    report.write_bytes(content[:-20])
    assert call("report", finished).code == 0
    assert report.read_bytes() == content
    for command in (again, ("report", finished)):
        report.unlink()
        report.symlink_to(finished / "in_run.json")
        assert call(*command).code == 0
        assert (report.read_bytes(), report.is_symlink()) == (content, False)


def test_reports_of_several_runs_have_an_overview(call, two_runs, tmp_path):
    overview = tmp_path / "overview.html"
    assert call("report", *two_runs, "-o", overview).code == 0
    text = overview.read_text()
    assert '<a href="./a/one_report.html">one</a>' in text
    assert '<a href="./b/two%3Cb%3E_report.html">two&lt;b&gt;</a>' in text
    assert (tmp_path / "b/two<b>_report.html").exists()
    row = text[text.index(">one<") :].split("</tr>")[0]
    assert re.findall(r'<td class="n">([^<]*)</td>', row) == [
        *("83", "40", "40 / 0 / 0", "7.0 %", "1", "41", "1"),  # by tier, and what is wrong
        *("1", "1", "0 / 1 / 0", "5,000"),  # records with regions, regions, tiers and bases
    ]
    pages = {page: page.read_text() for page in (overview, two_runs[0] / "one_report.html")}
    for page, text in pages.items():
        page.write_text(text.replace("</body>", "my words</body>"))
    assert call("report", *two_runs, "-o", overview).code == 64
    assert "my words" in overview.read_text()
    assert call("report", *two_runs, "-o", overview, "--force").code == 0
    for page, text in pages.items():
        assert page.read_text() == text


def test_the_track_of_a_record_is_a_picture(call, tmp_path):
    write_run(tmp_path, [*mixed(), Shown("../up", "virus", [0.9] * 4)])
    plots = tmp_path / "s_plots"
    plot = ("plot", tmp_path, "--record")
    for record, options, code, name in (
        ("host", (), 0, plots / "host.png"),
        ("host", ("-o", tmp_path / "named.svg"), 0, tmp_path / "named.svg"),
        ("../up", ("-o", tmp_path / "up.svg"), 0, tmp_path / "up.svg"),
        ("host", ("-o", tmp_path / "named.jpg"), 64, tmp_path / "named.jpg"),
        ("hos", (), 64, plots / "hos.png"),
    ):
        assert call(*plot, record, *options).code == code
        assert name.exists() == (code == 0)
    assert (plots / "host.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "named.svg").read_text()
    assert "viral region" in text
    # the strokes of the chunks themselves
    assert COLOURS["unscored"] in text
    assert COLOURS["unscored"] not in (tmp_path / "up.svg").read_text()
    assert call(*plot, "../up").code == 0
    assert len(list(plots.iterdir())) == 2
    for options, code in (((), 64), (("--force",), 0)):
        (tmp_path / "named.svg").write_text("mine")
        assert call(*plot, "host", "-o", tmp_path / "named.svg", *options).code == code
        assert ((tmp_path / "named.svg").read_text() == "mine") == (code == 64)


@pytest.fixture
def two_samples(call: Callable, tmp_path: Path) -> Path:
    """The output directory of two samples, whose files have one name."""
    for name, sequence in (("one", "GCTGAA" * 150), ("two", "GAAGCTC" * 150)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "in.fa").write_text(f">a\n{sequence}\n>b\n{'TTAA' * 75}\n")
    files = [tmp_path / name / "in.fa" for name in ("one", "two")]
    assert call("predict", *files, "-o", tmp_path / "out", *TOY, "--min-score", "-1").code == 0
    return tmp_path / "out"


def test_a_report_is_not_made_beside_another_command(call, finished):
    with locked(Layout(finished, "in").lock):
        assert call("report", finished).code == 5
    assert call("report", finished).code == 0


def test_a_row_for_multiqc_is_never_a_comment(call, tmp_path):
    (tmp_path / "#1.fa").write_text(f">a\n{'GCTGAA' * 150}\n")
    assert call("predict", tmp_path / "#1.fa", "-o", tmp_path / "out", *TOY).code == 0
    lines = (tmp_path / "out/#1_mqc.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines if line[0] != "#"] == ["Sample", "_#1"]


def test_a_run_writes_its_row_for_multiqc(call, two_samples):
    def row(name: str) -> list[str]:
        head, cells = (two_samples / name / "in_mqc.tsv").read_text().splitlines()[-2:]
        assert head.split("\t") == ["Sample", "virus", "virus_share", "records", "unscored"]
        return cells.split("\t")

    # 75 % of the bases, not of the records
    assert [row(name) for name in ("one", "two")] == [
        ["one", "1", "75.0000", "2", "1"],
        ["two", "1", "77.7778", "2", "1"],
    ]
    assert call("call", two_samples, "--min-score", "1").code == 0
    assert row("one") == ["one", "0", "0.0000", "2", "1"]


def test_a_track_is_drawn_from_the_folder_of_several_samples(call, two_samples):
    plot = ("plot", two_samples, "--record", "a")
    for names in ((), ("--stem", "three"), ("--stem", "in")):  # the last one is that of both runs
        assert call(*plot, *names).code == 64
    assert call(*plot, "--stem", "two").code == 0
    assert call("plot", two_samples / "one", "--record", "a").code == 0
    pictures = [two_samples / name / "in_plots/a.png" for name in ("one", "two")]
    assert sorted(two_samples.rglob("*.png")) == pictures


@pytest.mark.slow
def test_multiqc_itself_shows_them(two_samples, tmp_path):
    pytest.importorskip("multiqc")
    command = [sys.executable, "-m", "multiqc", "out", "-o", "page", "--strict", "--no-ansi"]
    subprocess.run(command, cwd=tmp_path, check=True)
    general = (tmp_path / "page/multiqc_data/multiqc_general_stats.txt").read_text().splitlines()
    assert [line.split("\t")[:4] for line in general[1:]] == [
        ["one", "1", "75.0", "2"],
        ["two", "1", "77.7778", "2"],
    ]
    assert "% virus" in (tmp_path / "page/multiqc_report.html").read_text()
