"""``python -m benchmarks.gpu``, rehearsed without a GPU: it must not rot until there is one."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import benchmarks.gpu.__main__ as measure
from benchmarks.gpu.__main__ import ARCHIVE, KERNELS, SUMMARY
from benchmarks.gpu.parts import SMALL, Part, parts

ROOT = Path(__file__).parents[2]
SLEEP = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(999)'])"
)
# What a machine without network gives back of a command.
MOST_FILES, LARGEST_FILE = 8, 16 << 20


def summary(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / SUMMARY).read_bytes())
    return document


def python(name: str, code: str, seconds: float = 600.0) -> Part:
    return Part(name, seconds, (sys.executable, "-c", code))


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
        ("facts", ["machine", "esm2", "breakdown-esm2", "esm2-fp8", "breakdown-dnabert-s-fp8"]),
        ("decisions", ["variants", "budgets"]),
    ],
)
def test_a_rehearsal(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    names: list[str],
) -> None:
    monkeypatch.setattr(measure, "run_part", in_this_process)
    out, work, kernels = folders(tmp_path)
    chosen = [p for p in parts(command, SMALL, work, tmp_path / "scratch") if p.name in names]
    assert measure.measure(chosen, {}, SMALL, out, work, kernels, later()) == 0
    assert "these numbers mean nothing" in capfd.readouterr().out
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
            assert figures["breakdown-esm2"][mode]["block_calls"]["uncompiled"] == 0
            assert figures["breakdown-esm2"][mode]["milliseconds_by_kind"]["matrix product"] > 0
    else:
        assert list(figures["variants"]) == ["esm2 bf16", "dnabert-s bf16"]
        for rows in figures["variants"].values():
            assert all(row["least_cosine"] > 0.999 for row in rows.values())
        assert [point["budget"] for point in figures["budgets"]["points"]] == [512, 1024]


def test_the_bodies_of_the_tests_are_rehearsed() -> None:
    command = [sys.executable, "-m", "pytest", "tests/gpu", "--on=cpu", "-q"]
    command += ["--deselect", "tests/gpu/test_gpu_commands.py"]  # whole runs take minutes
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_whatever_happens_to_a_part_the_others_follow(tmp_path: Path) -> None:
    out, work, kernels = folders(tmp_path)
    chosen = [
        python("tests", "print('1 failed'); raise SystemExit(3)"),
        python("slow", SLEEP, 2.0),
        python("fine", ""),
    ]
    assert measure.measure(chosen, {}, SMALL, out, work, kernels, later()) == 1
    # Another call, without time: what is there is kept.
    rows, late = measure.earlier_rows(out), [python("late", "")]
    assert measure.measure(late, rows, SMALL, out, work, kernels, later(0)) == 0
    states = [row["state"] for row in summary(out)["parts"]]
    assert states == ["failed (exit 3)", "ended after 2 s: its time was over", "done",
                      "not started: the time was over"]  # fmt: skip
    with zipfile.ZipFile(out / ARCHIVE) as archive:
        assert archive.read("tests.log") == b"1 failed\n"
    assert len(list(out.iterdir())) <= MOST_FILES
