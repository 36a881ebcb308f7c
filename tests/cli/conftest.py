"""Shared by the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inputs import PLAIN, toy_request
from virnucpro.run.predict import run_prediction


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two records."""
    path = tmp_path / "sample.fa"
    path.write_bytes(PLAIN)
    return path


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of a finished run of these two records. Not to be changed."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "sample.fa").write_bytes(PLAIN)
    run_prediction(toy_request(folder / "sample.fa", folder / "out"), lambda _: None)
    return folder / "out"
