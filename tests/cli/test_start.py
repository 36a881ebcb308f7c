"""The first second of ``predict``: what is wrong is said before torch is imported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import TOY
from tests.legacy_run import make_legacy
from virnucpro import __version__

# What is imported in a second; a list of models is shown by rich.
HEAVY = ("torch", "transformers", "huggingface_hub", "numpy", "rich", "jinja2")
WATCHED = """
import json, sys
from virnucpro.cli import run
for words, code, heavy in json.loads(sys.argv[1]):
    assert run(words.split()) == code, words
    assert not set(heavy) & set(sys.modules), words
"""


def test_what_needs_no_torch_imports_none(
    call: Callable, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where ``predict`` refuses what it is given: users wait for it."""
    assert call("predict", source, "-o", tmp_path / "out", *TOY).code == 0
    for name in ("TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    shown = [(words, 0, HEAVY) for words in ("--help", "--version", "predict --help", "status out")]
    refused = [
        (f"predict {words}", 64, ("torch", "jinja2"))
        for words in ("nofile.fa", "sample.fa -m custom -e 300 -p no.pth", "sample.fa -m 500")
    ]
    commands = json.dumps([*shown, ("models list", 0, HEAVY[:4]), *refused])
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, commands], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout
    assert "virnucpro models fetch 500" in done.stderr


def test_a_run_of_version_1_keeps_its_stem(call: Callable, tmp_path: Path) -> None:
    """Version 1 left some suffixes in the STEM; they are taken off it now."""
    stem = "in.fsa"
    source, layout = make_legacy(tmp_path, stem=stem)
    source = shutil.move(source, tmp_path / "in.fsa.gz")
    shards = tmp_path / "shards.yaml"
    shards.write_text("prediction: {sequences_per_file: 25}\n")
    arguments = ("predict", source, "-o", layout.root, *TOY, "-e", "200", "-c", shards)
    assert call(*arguments).code == 64
    done = call(*arguments, "--resume")
    assert done.code == 0, done.err
    assert (layout.root / f"{stem}_contigs.tsv").exists()
    assert not (layout.root / "in_contigs.tsv").exists()
    assert "already finished" in call(*arguments).out
    other = tmp_path / "new"
    assert call("predict", source, "-o", other, *TOY, "-e", "200", "-q").code == 0
    assert (other / "in_contigs.tsv").exists()
