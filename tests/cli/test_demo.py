"""``virnucpro demo``, and what the shell completes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from virnucpro.cli.demo import example_fasta

pytestmark = pytest.mark.usefixtures("drawn")


def test_the_demo_classifies_its_example_as_the_documentation_shows(
    call: Callable, tmp_path: Path
) -> None:
    """Numbers may move with the model; what is said about the contigs may not."""
    folder = tmp_path / "demo"
    done = call("demo", folder, "--device", "cpu")
    assert done.code == 0
    assert (folder / "example.fa").read_text().count(">") == example_fasta().count(">") == 42
    page = (Path(__file__).parents[2] / "docs/first_sample.md").read_text()
    rows = re.findall(r"^  (?:virus|bacterium)_.*$", done.out, re.MULTILINE)
    assert len(rows) == 6
    shown = {tuple(row.split()[:3]) for row in page.splitlines() if row.startswith("  ")}
    assert {tuple(row.split()[:3]) for row in rows} <= shown
    for name in re.findall(r"^  (example_\S+)", done.out, re.MULTILINE):
        assert name in page
    again = call("demo", folder, "--device", "cpu")
    assert "Nothing to compute" in again.out
    assert call("demo", folder, "--device", "cpu", "-q").out == ""


def test_the_demo_replaces_no_file_of_the_user(call: Callable, tmp_path: Path) -> None:
    mine = tmp_path / "example.fa"
    mine.write_text("mine")
    assert call("demo", tmp_path, "--device", "cpu").code == 0
    assert (tmp_path / "example.fa.yours").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    assert call("demo", tmp_path / "file", "--device", "cpu").code == 6


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("virnucpro pre", "predict"),
        ("virnucpro rcl tr", "train"),
        ("virnucpro predict --model-t", "--model-type"),
        ("virnucpro predict --model-type l", "lite"),
    ],
)
def test_the_shell_completes_commands_options_and_values(words: str, expected: str) -> None:
    completion = {
        "_VIRNUCPRO_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    program = [sys.executable, "-X", "importtime", "-m", "virnucpro"]
    done = subprocess.run(program, env=os.environ | completion, capture_output=True, text=True)
    assert done.returncode == 0
    assert f"plain,{expected}" in done.stdout.splitlines()
    assert " torch" not in done.stderr  # a shell waits for it
