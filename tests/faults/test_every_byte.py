"""No bit of the state of a run can make a result wrong, or a start fail."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.inputs import open_bases, toy_request
from tools.fault_sweep import RESULTS, results
from virnucpro.errors import VirNucProError
from virnucpro.events import Event, StageStarted
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest

STATE = Path(".checkpoints/runs/in/state")
SEED = 5


def finished_run(folder: Path) -> PredictionRequest:
    """Make a small finished run in ``folder``, with two split files, and return its request."""
    source = folder / "in.fa"
    source.write_text("".join(f">r{n}\n{open_bases(20, n)}\n" for n in range(4)))
    request = toy_request(source, folder / "out", chunk_length=200, sequences_per_file=10)
    run_prediction(request, lambda event: None)
    return request


def problem(request: PredictionRequest, out: Path, expected: dict[str, bytes]) -> str:
    """Run again, and return what went wrong, or an empty text."""
    try:
        run_prediction(request, lambda event: None)
    except VirNucProError as error:
        return f"exit {error.exit_code}: {error}"
    found = results(out)
    return ", ".join(f"{name} differs" for name in RESULTS if found.get(name) != expected.get(name))


@pytest.mark.parametrize("most", [12, pytest.param(10**9, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_in_the_state_changes_no_result(tmp_path, most):
    """``most`` bytes of each file: a sample, or all of them."""
    request = finished_run(tmp_path)
    out, kept = tmp_path / "out", tmp_path / "kept"
    shutil.copytree(out, kept)
    expected, state = results(out), out / STATE
    files = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    names = {path.name for path in files}
    assert names >= {"run.json", "finished.done", "output.done", "consensus.done"}
    found = []
    for path, content in files.items():
        size = len(content)
        for place in random.Random(SEED + size).sample(range(size), min(most, size)):
            damaged = bytearray(content)
            damaged[place] ^= 1 << (place % 8)
            path.write_bytes(damaged)
            if what := problem(request, out, expected):
                found.append(f"byte {place} of {path.name}: {what}")
                shutil.rmtree(out)
                shutil.copytree(kept, out)
        shutil.rmtree(out)
        shutil.copytree(kept, out)
    assert found == []


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
        events: list[Event] = []
        run_prediction(request, events.append)
        assert sum(bool(e.todo) for e in events if isinstance(e, StageStarted)) <= 1, path
        assert results(out) == expected
