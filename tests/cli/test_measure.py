"""``python -m benchmarks.gpu``, rehearsed without a GPU: it must not rot until there is one."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from pathlib import Path

import pytest

import benchmarks.gpu.__main__ as measure
from tests.forked import run_forked

ROOT = Path(__file__).parents[2]


def in_this_process(name: str, words: str, out: Path, limit: float) -> str:
    """Carry out a part in this process: to import torch in each takes seconds."""
    (out / f"{name}.log").touch()
    _, module, *more = shlex.split(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *more])
        code = importlib.import_module(module).main()
    return f"failed ({code})" if code else "done"


@pytest.mark.filterwarnings("default")  # torch warns about kernels that a CPU does not have
@pytest.mark.parametrize(
    ("command", "name", "goals"),
    [
        ("facts", "esm2", {"ESM-2 fp32, share of the matrix product", "ESM-2 bf16, times fp32"}),
        ("decisions", "peers", {"ESM-2 fp32, times transformers"}),
        pytest.param(
            "decisions", "pool", {"DNABERT-S fp32 through predict"}, marks=pytest.mark.slow
        ),
    ],
)
def test_a_rehearsal(tmp_path, monkeypatch, command, name, goals):
    monkeypatch.setattr(measure, "run_part", in_this_process)
    assert measure.main([command, str(tmp_path), "--parts", name, "--small"]) == 0
    found = json.loads((tmp_path / "goals.json").read_bytes())
    assert {row["goal"] for row in found if row["measured"] is not None} == goals


def test_the_bodies_of_the_tests_are_rehearsed():
    words = ("tests/gpu", "--on=cpu", "-q", "-p", "no:cacheprovider")
    whole_runs = ("--deselect", "tests/gpu/test_gpu_commands.py")  # which take minutes
    done = run_forked(*words, *whole_runs, module="pytest", cwd=ROOT)
    assert done.code == 0, done.out
    assert "skipped" not in done.out
