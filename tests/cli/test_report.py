"""The report at the end of predict, ``virnucpro report`` and ``virnucpro plot``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Call
from tests.report_data import Shown, mixed, write_run

Calling = Callable[..., Call]
TOY = ("-m", "toy", "--device", "cpu", "--threads", "1")
UNSCORED = "stroke: #5b6472"  # of the chunks without a score in a picture


@pytest.fixture
def finished(call: Calling, tmp_path: Path) -> Path:
    """A finished run of two records; its report is ``out/in_report.html``."""
    (tmp_path / "in.fa").write_text(f">a\n{'GCTGAA' * 150}\n>b\nAC\n")
    done = call("predict", tmp_path / "in.fa", "-o", tmp_path / "out", *TOY)
    assert done.code == 0
    assert re.search(r"open the first file first:\n  in_report.html +all of this", done.out)
    return tmp_path / "out"


def test_a_run_has_a_report_and_a_finished_one_keeps_it(call: Calling, finished: Path) -> None:
    report = finished / "in_report.html"
    content, written = report.read_bytes(), report.stat().st_mtime_ns
    assert b"of 2 records" in content
    again = ("predict", finished.parent / "in.fa", "-o", finished, *TOY)
    assert call(*again).code == 0
    assert (report.read_bytes(), report.stat().st_mtime_ns) == (content, written)
    for damaged in (content.replace(b"of 2 records", b"of 3 records"), content[:-20], None):
        if damaged is None:
            report.unlink()
        else:
            report.write_bytes(damaged)
        assert call(*again).code == 0
        assert report.read_bytes() == content


def test_a_file_of_the_user_in_place_of_the_report_stays(call: Calling, finished: Path) -> None:
    report = finished / "in_report.html"
    report.write_text("mine")
    again = call("predict", finished.parent / "in.fa", "-o", finished, *TOY)
    assert again.code == 0
    assert "in_report.html is not a report of this program: move it away" in again.err
    refused = call("report", finished)
    assert (refused.code, report.read_text()) == (64, "mine")
    report.unlink()
    report.symlink_to(finished / "in_run.json")
    assert call("report", finished).code == 64
    assert report.is_symlink()


def test_other_cuts_give_another_report(call: Calling, finished: Path) -> None:
    report = finished / "in_report.html"
    assert call("call", finished, "--min-score", "-1").code == 0
    text = report.read_text()
    assert "virus score above -1" in text
    assert "The tables were written again by:" in text


def test_reports_of_several_runs_have_an_overview(call: Calling, tmp_path: Path) -> None:
    write_run(tmp_path / "a", mixed(), "one")
    write_run(tmp_path / "b", [Shown("x", "virus", [0.9] * 4)], "two<b>")
    overview = tmp_path / "overview.html"
    done = call("report", tmp_path / "a", tmp_path / "b", "-o", overview)
    assert done.code == 0, done.err
    text = overview.read_text()
    assert '<a href="./a/one_report.html">one</a>' in text
    assert '<a href="./b/two%3Cb%3E_report.html">two&lt;b&gt;</a>' in text
    assert (tmp_path / "b/two<b>_report.html").exists()
    row = text[text.index(">one<") :].split("</tr>")[0]
    assert re.findall(r'<td class="n">(\d+)</td>', row) == ["83", "40", "1", "41", "1", "1"]
    assert 'aria-label="virus 48.2 %, undecided 1.2 %, nonvirus 49.4 %, not judged 1.2 %"' in row
    overview.write_text("mine")
    assert call("report", tmp_path / "a", tmp_path / "b", "-o", overview).code == 64
    assert overview.read_text() == "mine"
    assert call("report", tmp_path / "a", "-o", overview).code == 64


def test_a_picture_has_the_format_of_its_name(call: Calling, tmp_path: Path) -> None:
    write_run(tmp_path, mixed())
    command = ("plot", tmp_path, "--record", "host", "-o")
    assert call(*command, tmp_path / "named.svg").code == 0
    assert "<svg" in (tmp_path / "named.svg").read_text()
    assert call(*command, tmp_path / "named.PNG").code == 0
    assert (tmp_path / "named.PNG").read_bytes().startswith(b"\x89PNG")
    for name, options, ends in (
        ("named.jpg", (), ".png or .svg"),
        ("other.png", ("--format", "svg"), ".svg"),
    ):
        refused = call(*command, tmp_path / name, *options)
        assert refused.code == 64
        assert f"{name}: the name of the picture must end in {ends}" in refused.err
        assert not (tmp_path / name).exists()


def test_the_track_of_a_record_is_a_picture(call: Calling, tmp_path: Path) -> None:
    write_run(tmp_path, [*mixed(), Shown("../up", "virus", [0.9] * 4)])
    assert call("plot", tmp_path, "--record", "host").code == 0
    picture = tmp_path / "s_plots/host.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert call("plot", tmp_path, "--record", "host", "--format", "svg").code == 0
    text = picture.with_suffix(".svg").read_text()
    assert "viral region" in text
    assert "not scored" in text
    assert UNSCORED in text  # the strokes of the chunks themselves
    scored = tmp_path / "scored.svg"
    command = ("plot", tmp_path, "--record", "../up", "--format", "svg", "-o", scored)
    assert call(*command).code == 0
    assert UNSCORED not in scored.read_text()
    assert call("plot", tmp_path, "--record", "../up").code == 0
    assert (tmp_path / "s_plots/%2E.%2Fup.png").exists() or len(
        list((tmp_path / "s_plots").iterdir())
    ) == 3
    picture.write_text("mine")
    assert call("plot", tmp_path, "--record", "host").code == 64
    assert picture.read_text() == "mine"
    refused = call("plot", tmp_path, "--record", "host", "-o", picture)
    assert "choose another --output," in refused.err
    missing = call("plot", tmp_path, "--record", "hos")
    assert missing.code == 64
    assert "has no record 'hos'" in missing.err


def test_a_page_that_was_changed_is_moved_aside(call: Calling, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, mixed(), name)
    command = ("report", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "all.html")
    assert call(*command).code == 0
    pages = [tmp_path / "all.html", tmp_path / "a/a_report.html"]
    written = [page.read_text() for page in pages]
    for page, text in zip(pages, written, strict=True):
        page.write_text(text.replace("</body>", "my words</body>"))
    assert call(*command).code == 0
    assert [page.read_text() for page in pages] == written
    for page in pages:
        kept = page.parent / f".checkpoints/{page.name}.previous.1/{page.name}"
        assert "my words" in kept.read_text()


def test_a_note_about_a_page_is_no_page(call: Calling, tmp_path: Path) -> None:
    write_run(tmp_path / "a", mixed(), "a")
    write_run(tmp_path / "b", mixed(), "b")
    note = tmp_path / "note.md"
    note.write_text("# Mine\n<!-- made from the minutes of Monday -->\n")
    content = note.read_bytes()
    assert call("report", tmp_path / "a", tmp_path / "b", "-o", note).code == 64
    assert note.read_bytes() == content


def test_an_input_whose_name_is_not_text_has_a_report(call: Calling, tmp_path: Path) -> None:
    """Also in the overview, which leads to it."""
    sources = [tmp_path / os.fsdecode(name) for name in (b"x\xff.fa", b"y.fa")]
    for source in sources:
        source.write_text(f">a\n{'GCTGAA' * 150}\n")
        done = call("predict", source, "-o", tmp_path / "out", *TOY)
        assert done.code == 0
        assert "no report" not in done.err
    report = next((tmp_path / "out").glob("x*_report.html"))
    assert "x\\udcff" in report.read_text("utf-8")
    overview = tmp_path / "all.html"
    assert call("report", tmp_path / "out", "-o", overview).code == 0
    assert "x%FF_report.html" in overview.read_text("utf-8")
