"""Shared by all unit tests."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """A test may change the number of threads of torch, which is of the whole process."""
    before = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    yield
    if before is not None:
        sys.modules["torch"].set_num_threads(before)
