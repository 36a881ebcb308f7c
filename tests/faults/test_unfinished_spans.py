"""A run that ends in the middle of a span computes only the rest of it the next time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.processes import until
from tests.faults.slow_span import BATCH, SEQUENCES
from tests.forked import ForkedCommand

BATCHES = SEQUENCES // BATCH


def _computed(folder: Path) -> int:
    path = folder / "computed"
    return path.read_text().count("batch") if path.exists() else 0


def _features(folder: Path) -> bytes:
    (path,) = folder.glob("in_nucleotide/*.pt")
    return path.read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    process = ForkedCommand("tests.faults.slow_span", folder, 0)
    assert process.wait(200) == 0, process.err
    process.close()
    return folder


@pytest.mark.parametrize(
    ("number", "code", "lost"), [(signal.SIGKILL, -9, 2), (signal.SIGINT, 130, 1)]
)
def test_only_the_rest_of_a_span_is_computed(
    undisturbed: Path,
    start: Callable[..., ForkedCommand],
    tmp_path: Path,
    number: int,
    code: int,
    lost: int,
) -> None:
    """A batch may be lost that was being computed; and, by SIGKILL, one that was being saved."""
    batches = _computed(undisturbed)
    assert batches >= BATCHES
    for stop in (5, 11):
        process = start("tests.faults.slow_span", tmp_path, 0.05)
        until(lambda stop=stop: _computed(tmp_path) >= stop)  # type: ignore[misc]
        process.send_signal(number)
        assert process.wait(200) == code
        assert len(list(tmp_path.glob("in_nucleotide/*.parts/*.rows"))) == 1
    assert _computed(tmp_path) < batches
    assert start("tests.faults.slow_span", tmp_path, 0).wait(200) == 0
    assert batches <= _computed(tmp_path) <= batches + 2 * lost
    assert _features(tmp_path) == _features(undisturbed)
    assert not list(tmp_path.rglob("*.rows"))
