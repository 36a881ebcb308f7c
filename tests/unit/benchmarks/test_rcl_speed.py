"""``python -m benchmarks.rcl`` prints a line for each way of computing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.rcl import main
from tests.unit.rcl.made_proteins import write_tables


def test_every_way_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serpins, _ = write_tables(tmp_path)
    arguments = [str(serpins), "--proteins", "2", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.rcl", *arguments])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 proteins of ")
    assert {line.split()[0] for line in lines[2:]} == {"predict", "train"}
    assert sum("padded to 1,024" in line for line in lines) == 4
