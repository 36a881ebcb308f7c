"""The first second of ``predict``: what is wrong is said before torch is imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import TOY
from tests.legacy_run import make_legacy

WATCHED = """
import sys
from virnucpro.cli import run
code = run(sys.argv[1:])
print(sys.modules.keys() & {"torch", "jinja2"})
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("nofile.fa",), "nofile.fa"),
        (("sample.fa", "-m", "custom", "-e", "300", "-p", "no.pth"), "no.pth"),
        (("sample.fa", "-m", "500"), "virnucpro models fetch 500"),
    ],
)
def test_refusals_need_no_torch(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    says: str,
) -> None:
    for name in ("TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "predict", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64, done.stderr
    assert says in done.stderr
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("suffix", [".fas", ".fsa.gz", ".ffn"])
def test_a_run_of_version_1_keeps_its_stem(call: Callable, tmp_path: Path, suffix: str) -> None:
    """Version 1 left these suffixes in the STEM; they are taken off it now."""
    stem = f"in{suffix.removesuffix('.gz')}"
    source, layout = make_legacy(tmp_path, stem=stem)
    source = shutil.move(source, tmp_path / f"in{suffix}")
    arguments = ("predict", source, "-o", layout.root, *TOY, "-e", "200", "-c", _shards(tmp_path))
    assert call(*arguments).code == 64
    done = call(*arguments, "--resume")
    assert done.code == 0, done.err
    assert (layout.root / f"{stem}_contigs.tsv").exists()
    assert not (layout.root / "in_contigs.tsv").exists()
    assert "already finished" in call(*arguments).out
    other = tmp_path / "new"
    assert call("predict", source, "-o", other, *TOY, "-e", "200", "-q").code == 0
    assert (other / "in_contigs.tsv").exists()


def _shards(folder: Path) -> Path:
    path = folder / "shards.yaml"
    path.write_text("prediction: {sequences_per_file: 25}\n")
    return path
