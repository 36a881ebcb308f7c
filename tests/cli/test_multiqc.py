"""``virnucpro utils multiqc``: what MultiQC reads; and MultiQC itself, where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.test_results import write_run


def test_every_run_has_its_files(call: Callable, tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    (tmp_path / "more").mkdir()
    write_run(tmp_path / "more", "b")
    out = tmp_path / "out"
    for _ in range(2):  # the second time over its own files
        done = call("utils", "multiqc", tmp_path, tmp_path / "more", "-o", out)
        assert done.code == 0, done.err
    assert sorted(path.name for path in out.iterdir()) == [
        f"{stem}_virnucpro_{kind}_mqc.json" for stem in "ab" for kind in ("calls", "general")
    ]
    general = json.loads((out / "a_virnucpro_general_mqc.json").read_text())
    assert general["data"]["a"] == {
        "virus_records": 1,
        "virus_share": 100.0,
        "records": 2,
        "unscored": 1,
    }
    assert set(general["headers"]) == set(general["data"]["a"])
    bars = json.loads((out / "b_virnucpro_calls_mqc.json").read_text())
    assert bars["data"]["b"] == {"virus": 1, "undecided": 0, "nonvirus": 0, "unscored": 1}


def test_what_cannot_be_written_is_named(call: Callable, tmp_path: Path) -> None:
    assert "no finished run" in call("utils", "multiqc", tmp_path, "-o", tmp_path).err
    write_run(tmp_path, "a")
    twice = call("utils", "multiqc", tmp_path, tmp_path, "-o", tmp_path / "out")
    assert (twice.code, "two runs with the name 'a'" in twice.err) == (64, True)
    mine = tmp_path / "a_virnucpro_general_mqc.json"
    mine.write_text("mine")
    done = call("utils", "multiqc", tmp_path, "-o", tmp_path)
    assert done.code == 64
    assert mine.read_text() == "mine"


@pytest.mark.slow
def test_multiqc_itself_shows_them(call: Callable, tmp_path: Path) -> None:
    pytest.importorskip("multiqc")
    for stem in ("first", "second"):
        write_run(tmp_path, stem)
    assert call("utils", "multiqc", tmp_path, "-o", tmp_path / "in").code == 0
    command = [sys.executable, "-m", "multiqc", "in", "-o", "report", "--strict", "--no-ansi"]
    subprocess.run(command, cwd=tmp_path, check=True)
    data = tmp_path / "report/multiqc_data"
    general = (data / "multiqc_general_stats.txt").read_text()
    assert [line.split("\t")[0] for line in general.splitlines()] == ["Sample", "first", "second"]
    assert "virus_records" in general
    report = (tmp_path / "report/multiqc_report.html").read_text()
    assert "Records by call." in report
    assert "virnucpro_calls_plot" in report
