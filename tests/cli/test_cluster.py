"""``predict --cluster`` where no cluster can be used: one line says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from virnucpro.cli import run
from virnucpro.layout import Layout
from virnucpro.store.lock import locked


def _predict(source: Path, *options: str) -> int:
    return run(["predict", str(source), "-o", str(source.parent / "out"), "-m", "toy", *options])


def test_without_ray_the_command_says_what_to_install(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert _predict(source, "--cluster", "auto") == 64
    assert "pip install 'virnucpro[cluster]'" in capsys.readouterr().err
    assert _predict(source, "-q") == 0  # nothing of Ray is imported


def test_a_second_command_leaves_what_the_first_one_proves_a_shared_folder_with(
    source: Path,
) -> None:
    layout = Layout(source.parent / "out", "sample", 500)
    layout.probe.parent.mkdir(parents=True)
    layout.probe.write_text("a random word")
    with locked(layout.lock):
        assert _predict(source, "-q") == 5
    assert layout.probe.read_text() == "a random word"
