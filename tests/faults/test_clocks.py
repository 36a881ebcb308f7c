"""The clock of the machine jumps by decades between a run and its resume, and all the time."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_status import Stopped, Stopping
from tests.conftest import Call
from tests.legacy_run import make_input, predict
from tools.fault_sweep import RESULTS

YEARS = (1971, 1999, 2026, 2068, 2099)


def _seconds(year: int) -> float:
    return (year - 1970) * 365.25 * 86_400


def _set_times(folder: Path, year: Callable[[], int]) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (_seconds(year()), _seconds(year())))


@pytest.mark.parametrize("years", [(2099, 1971), (1971, 2099), None])
def test_the_clock_decides_nothing(
    tmp_path: Path,
    call: Callable[..., Call],
    monkeypatch: pytest.MonkeyPatch,
    years: tuple[int, int] | None,
) -> None:
    """``years``: of the run and of its resume; None for another one whenever the clock is read."""
    source, out, quiet = tmp_path / "in.fa", tmp_path / "out", tmp_path / "quiet"
    make_input(source)
    predict(source, quiet)
    rng = random.Random(1)

    def year(start: int) -> int:
        return years[start] if years else rng.choice(YEARS)

    for start, stop_at in enumerate(("output_3_ESM.pt.done", "")):
        monkeypatch.setattr(time, "time", lambda start=start: _seconds(year(start)))
        if stop_at:
            with pytest.raises(Stopped):
                predict(source, out, Stopping(stop_at))
        else:
            predict(source, out)
        _set_times(tmp_path, lambda start=start: year(start))
        said = call("status", out, "--json")
        assert said.code == 0, said.err
        (run,) = json.loads(said.out)["runs"]
        assert run["state"] == ("interrupted" if stop_at else "finished")
        assert 0 <= run["resume"]["seconds"] < 600  # it takes one
    assert {name: (out / name).read_bytes() for name in RESULTS} == {
        name: (quiet / name).read_bytes() for name in RESULTS
    }
    assert predict(source, out).pieces.total() == 0
