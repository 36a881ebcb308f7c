"""Eight workers share uneven work; the bounds leave room for a machine that is busy four times over.

``benchmarks/scheduling.py`` measures the same with more work, and prints it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scheduling import measure_scheduling, uneven_files


@pytest.mark.parametrize(
    ("counts", "seconds", "least"),
    [([10_000], 24, 6.0), (uneven_files(), 40, 5.5)],
    ids=["one", "200"],
)
def test_eight_workers_are_seldom_idle(
    tmp_path: Path, counts: list[int], seconds: float, least: float
) -> None:
    figures = measure_scheduling(tmp_path, counts, 8, 250, seconds)
    assert figures.busy >= seconds
    assert figures.gain >= least
