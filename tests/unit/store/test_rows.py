"""The rows of an unfinished span prove themselves, or are not used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from virnucpro.errors import OutputError, RunInterruptedError
from virnucpro.store.disk import Disk
from virnucpro.store.rows import FinishedRows

BATCHES = {(0, 3): torch.arange(6.0).view(2, 3), (1,): torch.ones(1, 3)}


def _rows(path: Path, identity: str = "work", seconds: float = 0.0) -> FinishedRows:
    return FinishedRows(path, Disk(), 3, lambda: identity, seconds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a span of which two batches are finished."""
    rows = _rows(tmp_path / "span.rows")
    for batch, values in BATCHES.items():
        rows.add(batch, values)
    return tmp_path / "span.rows"


def test_finished_batches_are_known_to_the_next_run(path: Path) -> None:
    rows = _rows(path)
    for batch, values in BATCHES.items():
        known = rows.rows(batch)
        assert known is not None
        assert torch.equal(known, values)
    assert rows.rows((0,)) is None  # in another batch it may have other last bits
    rows.add((2,), torch.zeros(1, 3))
    assert all(_rows(path).rows(batch) is not None for batch in [*BATCHES, (2,)])
    rows.remove()
    assert not path.exists()


def test_nothing_is_written_before_its_time_except_at_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "span.rows"
    with _rows(path, seconds=1000) as rows:
        rows.add((0,), torch.ones(1, 3))
    assert not path.exists()
    with pytest.raises(RunInterruptedError), rows:
        raise RunInterruptedError(2)
    assert _rows(path).rows((0,)) is not None


def test_after_an_error_nothing_is_kept(path: Path) -> None:
    with pytest.raises(OutputError), _rows(path):
        raise OutputError("the disk is full")
    assert not path.exists()


def test_rows_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "span.rows"
    _rows(path).add((0,), torch.full((1, 3), torch.nan))
    assert not path.exists()


def test_rows_of_other_work_are_not_used(path: Path) -> None:
    assert _rows(path, "other").rows((1,)) is None


def test_every_damaged_byte_is_found(path: Path) -> None:
    """Either the batch is not known any more, or its rows are right."""
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        rows = _rows(path)
        for batch, values in BATCHES.items():
            known = rows.rows(batch)
            assert known is None or torch.equal(known, values), position
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        assert _rows(path).rows((1,)) is None
