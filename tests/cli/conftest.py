"""Shared by the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inputs import PLAIN


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two records."""
    path = tmp_path / "sample.fa"
    path.write_bytes(PLAIN)
    return path
