"""The models that the original program ran with, as options of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.models import reference_options


@pytest.fixture(scope="session")
def options(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that make ``predict`` use the reference models, as the original run did."""
    return reference_options(reference, tmp_path_factory.mktemp("config"))
