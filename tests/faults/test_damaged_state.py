"""No document of the state of a run can make a result wrong, or a start fail."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.inputs import carried_out, open_bases, toy_request
from tests.faults.survival import results
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest

STATE = Path(".checkpoints/runs/in/state")


def finished_run(folder: Path) -> PredictionRequest:
    """Make a small finished run in ``folder``, with two split files, and return its request."""
    source = folder / "in.fa"
    source.write_text("".join(f">r{n}\n{open_bases(20, n)}\n" for n in range(4)))
    request = toy_request(source, folder / "out", chunk_length=200, sequences_per_file=10)
    run_prediction(request, lambda event: None)
    return request


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
def test_a_damaged_state_file_costs_one_stage_at_most(tmp_path, damage):
    request = finished_run(tmp_path)
    out = tmp_path / "out"
    expected = results(out)
    others = [request.layout.lock, out / "in_run.json"]
    request.layout.lock.write_text('{"host": "h", "pid": 7, "since": 7, "work": "w", "schema": 1}')
    for path in [*others, *sorted((out / STATE).iterdir())]:
        if path.name != "lock" and path.suffix != ".json":
            continue
        path.write_bytes(HOSTILE[damage](path.read_bytes()))
        assert len(carried_out(request).pieces) <= 1, path
        assert results(out) == expected
