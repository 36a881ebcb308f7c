"""``virnucpro demo``, and what the shell completes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from virnucpro.cli.demo import EXAMPLE


def test_the_demo_classifies_its_example_as_the_documentation_shows(call, tmp_path, monkeypatch):
    """``tests/golden/test_lite.py`` says which calls are right."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "virnucpro_demo"
    done = call("demo", "--device", "cpu")
    assert done.code == 0
    assert (folder / "example.fa").read_bytes() == EXAMPLE.read_bytes()
    page = (Path(__file__).parents[2] / "docs/first_sample.md").read_text()
    assert page.partition("```text\n")[2].partition("```")[0] == done.out
    assert "Nothing to compute" in call("demo", folder, "--device", "cpu").out
    assert call("demo", folder, "--device", "cpu", "-q").out == ""


def test_the_demo_replaces_no_file_of_the_user(call, tmp_path):
    mine = tmp_path / "example.fa"
    mine.write_text("mine")
    assert call("demo", tmp_path, "--device", "cpu").code == 64
    assert mine.read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    assert call("demo", tmp_path / "file", "--device", "cpu").code == 6


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("virnucpro rcl tr", "train"),
        ("virnucpro predict --model-t", "--model-type"),
        ("virnucpro predict --model-type l", "lite"),
    ],
)
def test_the_shell_completes_commands_options_and_values(words, expected):
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
