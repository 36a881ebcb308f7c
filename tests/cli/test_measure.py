"""``python -m benchmarks.gpu``, rehearsed without a GPU: it must not rot until there is one."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import benchmarks.gpu.__main__ as measure
from benchmarks.gpu.__main__ import ARCHIVE, KERNELS, SUMMARY
from benchmarks.gpu.parts import SMALL, Part, parts
from tests.forked import run_forked

ROOT = Path(__file__).parents[2]
# What a machine without network gives back of a command.
LARGEST_FILE = 16 << 20


def summary(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / SUMMARY).read_bytes())
    return document


def folders(tmp_path: Path) -> list[Path]:
    """Folders for the results, for what the parts write, and for compiled code."""
    made = [tmp_path / name for name in ("out", "work", "kernels")]
    for folder in made:
        folder.mkdir(exist_ok=True)
    return made


def later(seconds: float = 600.0) -> float:
    return time.monotonic() + seconds


def in_this_process(part: Part, work: Path, *_: object) -> dict[str, Any]:
    """Carry out a part in this process: to import torch in each of twenty takes a minute."""
    module, *words = part.command[2:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *words])
        code = importlib.import_module(module).main()
    figures = json.loads((work / f"{part.name}.json").read_bytes())
    state = f"failed ({code})" if code else "done"
    return {"part": part.name, "state": state, "figures": figures}


@pytest.mark.filterwarnings("default")  # torch warns about kernels that a CPU does not have
@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("facts", ["machine", "esm2-fp8", "breakdown-dnabert-s-fp8"]),
        pytest.param("decisions", ["variants", "budgets"], marks=pytest.mark.slow),
    ],
)
def test_a_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, names: list[str]
) -> None:
    monkeypatch.setattr(measure, "run_part", in_this_process)
    out, work, kernels = folders(tmp_path)
    chosen = [p for p in parts(command, SMALL, work, tmp_path / "scratch") if p.name in names]
    assert measure.measure(chosen, {}, SMALL, out, work, kernels, later()) == 0
    found = summary(out)
    assert found["rehearsal"]
    figures = {row["part"]: row["figures"] for row in found["parts"]}
    assert set(figures) == set(names)
    files = list(out.iterdir())
    assert {path.name for path in files} == {SUMMARY, ARCHIVE, KERNELS}
    assert all(path.stat().st_size < LARGEST_FILE for path in files)
    if command == "facts":
        rows = figures["esm2-fp8"]["models"][0]["results"]
        assert [row["precision"] for row in rows] == ["fp32", "bf16"]
        for mode in ("as written", "compiled", "compiled, padded"):
            row = figures["breakdown-dnabert-s-fp8"][mode]
            assert row["block_calls"]["uncompiled"] == 0
            assert row["milliseconds_by_kind"]["matrix product"] > 0
    else:
        assert list(figures["variants"]) == ["esm2 bf16", "dnabert-s bf16"]
        for rows in figures["variants"].values():
            assert all(row["least_cosine"] > 0.999 for row in rows.values())
        assert [point["budget"] for point in figures["budgets"]["points"]] == [512, 1024]


def test_the_bodies_of_the_tests_are_rehearsed() -> None:
    words = ("tests/gpu", "--on=cpu", "-q", "-p", "no:cacheprovider")
    whole_runs = ("--deselect", "tests/gpu/test_gpu_commands.py")  # which take minutes
    done = run_forked(*words, *whole_runs, module="pytest", cwd=ROOT)
    assert done.code == 0, done.out
    assert "skipped" not in done.out
