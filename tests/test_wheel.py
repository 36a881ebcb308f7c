"""The built package: the wheel works on its own, and the source distribution is whole."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*words: object, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.slow
def test_the_wheel_works_without_the_source_and_the_source_distribution_is_whole(tmp_path):
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    for folder in ("dist", "again"):
        run("-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=tmp_path)
    (wheel,), (source,) = (list((tmp_path / "dist").glob(f"*{end}")) for end in (".whl", ".gz"))
    for built in (wheel, source):
        assert (tmp_path / "again" / built.name).read_bytes() == built.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    assert not [name for name in names if not name.startswith("virnucpro")]
    assert "virnucpro/py.typed" in names
    assert "Project-URL: Paper, https://doi.org/" in metadata
    assert "](docs/" not in metadata
    with tarfile.open(source) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        *("CHANGELOG.md", "CITATION.cff", "docs/usage.md", "docs/workflows/nextflow/main.nf"),
        *("examples/python_api.ipynb", "tests/cli/inputs.py", "Makefile"),
    } <= kept
    place = tmp_path / "place"
    run("-m", "pip", "install", "--no-deps", "--target", place, wheel, folder=tmp_path)
    there = {"PYTHONPATH": str(place)}
    code = "import virnucpro; print(virnucpro.__file__)"
    assert str(place) in run("-c", code, folder=tmp_path, **there)
    printed = run("-m", "virnucpro", "demo", "demo", "-d", "cpu", folder=tmp_path, **there)
    assert "virus_NC_002362.1" in printed
    code = "import virnucpro; print(len(list(virnucpro.open_run('demo/results').contigs())))"
    assert run("-c", code, folder=tmp_path, **there).strip() == "42"
    completion = {"_VIRNUCPRO_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    words = {"COMP_WORDS": "virnucpro dem"}
    found = run("-m", "virnucpro", folder=tmp_path, **there, **completion, **words)
    assert "plain,demo" in found
