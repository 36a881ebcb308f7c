"""``virnucpro demo``, and what the shell completes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from virnucpro.cli.demo import example_fasta
from virnucpro.results import open_run


def test_the_demo_classifies_its_example_as_the_documentation_shows(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "virnucpro_demo"
    done = call("demo", "--device", "cpu")
    assert done.code == 0
    assert (folder / "example.fa").read_text().count(">") == example_fasta().count(">") == 42
    page = (Path(__file__).parents[2] / "docs/first_sample.md").read_text()
    assert page.partition("```text\n")[2].partition("```")[0] == done.out
    rows = open_run(folder / "results").contigs()
    found, kinds = Counter[str](), Counter[str]()
    for row in rows:
        kind = "reads" if row.record.endswith("_virus") else row.record.partition("_")[0]
        kind = "bacteria" if "bacterium" in row.record else kind
        kinds[kind] += 1
        found[kind] += row.call == "virus"
    expected = [(found[kind], kinds[kind]) for kind in ("virus", "reads", "bacteria")]
    (said,) = [line for line in done.out.splitlines() if "Of what the example holds" in line]
    assert [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+)", said)] == expected
    again = call("demo", folder, "--device", "cpu")
    assert "Nothing to compute" in again.out
    assert call("demo", folder, "--device", "cpu", "-q").out == ""


def test_the_demo_replaces_no_file_of_the_user(call, tmp_path):
    mine = tmp_path / "example.fa"
    mine.write_text("mine")
    assert call("demo", tmp_path, "--device", "cpu").code == 0
    assert (tmp_path / "example.fa.yours").read_text() == "mine"
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
