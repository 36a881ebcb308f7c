"""``virnucpro utils multiqc``: what MultiQC reads; and MultiQC itself, where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import report_data
from tests.unit.test_results import write_run


def test_every_run_has_its_files(call: Callable, tmp_path: Path) -> None:
    assert call("utils", "multiqc", tmp_path, "-o", tmp_path).code == 64
    write_run(tmp_path, "a")
    out = tmp_path / "out"
    for _ in range(2):  # the second time over its own files
        assert call("utils", "multiqc", tmp_path, "-o", out).code == 0
    general, bars = (out / f"a_virnucpro_{kind}_mqc.json" for kind in ("general", "calls"))
    shown = json.loads(general.read_text())
    counts = {"virus_records": 1, "virus_share": 100.0, "records": 2, "unscored": 1}
    assert shown["data"] == {"a": counts}
    assert set(shown["headers"]) == set(counts)
    calls = {"virus": 1, "undecided": 0, "nonvirus": 0, "unscored": 1}
    assert json.loads(bars.read_text())["data"] == {"a": calls}
    records = [
        report_data.Shown("v", "virus", [0.9] * 3),
        report_data.Shown("n", "nonvirus", [0.1]),
    ]
    report_data.write_run(tmp_path / "b", records, "b")
    assert call("utils", "multiqc", tmp_path / "b", "-o", out).code == 0
    shown = json.loads((out / "b_virnucpro_general_mqc.json").read_text())
    assert shown["data"]["b"]["virus_share"] == 75, "of the bases, not of the records"
    assert call("utils", "multiqc", tmp_path, tmp_path, "-o", tmp_path / "twice").code == 64
    assert not (tmp_path / "twice").exists()
    general.write_text("mine")
    assert call("utils", "multiqc", tmp_path, "-o", out).code == 64
    assert general.read_text() == "mine"


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
