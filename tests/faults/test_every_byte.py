"""No bit of the state of a run can make a result wrong, or a start fail."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.byte_sweep import STATE, finished_run, survivors
from tools.fault_sweep import results
from virnucpro.events import Event, StageStarted
from virnucpro.run.predict import run_prediction

SAMPLE = 12  # bytes per file; `make faults` takes all of them


def test_a_flipped_bit_anywhere_in_the_state_changes_no_result(tmp_path: Path) -> None:
    swept = list(survivors(tmp_path, SAMPLE))
    assert {path.name for path, _, _ in swept} >= {
        "run.json",
        "receipts.json",
        "receipts.copy.json",
    }
    assert [problem for _, _, problems in swept for problem in problems] == []


HOSTILE = {
    "1e999": lambda text: text.replace(b'"rows": ', b'"rows": 1e999, "x": '),
    "nested": lambda text: b"[" * 200_000,
    "nested objects": lambda text: b'{"a":' * 200_000,
    "twice": lambda text: text.replace(b'"schema"', b'"schema": 1, "schema"'),
    "wrong types": lambda text: json.dumps({key: [] for key in json.loads(text)}).encode(),
    "another count": lambda text: text.replace(b'"bytes": ', b'"bytes": 1'),
    "huge numbers": lambda text: re.sub(rb": \d+", b": " + b"9" * 30, text),
    "a number": lambda text: b"7",
    "not text": lambda text: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("damage", HOSTILE)
def test_a_damaged_state_file_costs_one_stage_at_most(tmp_path: Path, damage: str) -> None:
    request = finished_run(tmp_path)
    out = tmp_path / "out"
    expected = results(out)
    others = [request.layout.lock, out / "in_run.json"]
    request.layout.lock.write_text('{"host": "h", "pid": 7, "since": 7, "work": "w", "schema": 1}')
    for path in [*others, *sorted((out / STATE).iterdir())]:
        if path.name != "lock" and path.suffix != ".json":
            continue
        path.write_bytes(HOSTILE[damage](path.read_bytes()))
        events: list[Event] = []
        run_prediction(request, events.append)
        assert sum(bool(e.todo) for e in events if isinstance(e, StageStarted)) <= 1, path
        assert results(out) == expected
