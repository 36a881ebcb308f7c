"""The contract of the pools is kept with the processes that users get: spawned ones."""

from __future__ import annotations

import multiprocessing

import pytest


@pytest.fixture(autouse=True)
def spawned_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what ``tests/conftest.py`` does for speed."""
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr("virnucpro.workers.processes.START", spawn)
