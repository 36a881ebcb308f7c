"""``python -m benchmarks.gpu``, rehearsed without a GPU: it must not rot until there is one."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import benchmarks.gpu.__main__ as measure
from benchmarks.gpu.__main__ import ARCHIVE, KERNELS, SUMMARY
from benchmarks.gpu.parts import REAL, SMALL, Part, parts
from tests.faults.processes import family, running, until

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
        assert figures["machine"]["operations in fp32"]["power_watts"] is None
        rows = figures["esm2-fp8"]["models"][0]["results"]
        assert [row["precision"] for row in rows] == ["fp32", "bf16"]
        breakdown = figures["breakdown-esm2"]
        assert breakdown["as written"]["encoder"]["compiled"] is False
        assert breakdown["compiled"]["block_calls"]["compiled"] > 0
        assert [len(breakdown[mode]["shapes"]) for mode in ("compiled", "compiled, padded")] == [
            1,
            3,
        ]
        for mode in ("as written", "compiled", "compiled, padded"):
            assert breakdown[mode]["block_calls"]["uncompiled"] == 0
            assert breakdown[mode]["milliseconds"] > 0
            assert breakdown[mode]["milliseconds_by_kind"]["matrix product"] > 0
        met = {row["goal"]: row["met"] for row in found["goals"]}
        assert met["ESM-2 3x64x2 fp32, share of the matrix product"] in ("yes", "no")
    else:
        blocks = figures["variants"]
        assert list(blocks) == ["esm2 bf16", "dnabert-s bf16"]
        assert "rotary without masks" not in blocks["dnabert-s bf16"]
        for rows in blocks.values():
            assert rows["as written"]["times_as_fast"] == 1
            assert all(row["least_cosine"] > 0.999 for row in rows.values())
        assert [point["budget"] for point in figures["budgets"]["points"]] == [512, 1024]


def test_a_rehearsal_of_the_pool_with_an_earlier_command(tmp_path: Path) -> None:
    """In fresh processes: the second command sees the figures and the compiled code of the first."""
    first, second = tmp_path / "facts", tmp_path / "decisions"
    small = ("--device", "cpu", "--small", "--minutes", "30")
    assert measure.main(["facts", str(first), *small, "--parts", "esm2"]) == 0
    with zipfile.ZipFile(first / KERNELS, "w") as archive:
        archive.writestr("triton/some.cubin", b"code")
    chosen = ("--parts", "pool-fp32")
    assert measure.main(["decisions", str(second), "--earlier", str(first), *small, *chosen]) == 0
    found = summary(second)
    assert [row["part"] for row in found["parts"]] == ["esm2", "pool-fp32"]
    for row in found["parts"][1]["figures"]["rates"].values():
        assert row["sequences_per_second_of_worker"] >= row["sequences_per_second_of_stage"] > 0
    met = {row["goal"]: row["met"] for row in found["goals"]}
    assert met["ESM-2 3x64x2 fp32 through the pool, share of the matrix product"] in ("yes", "no")
    with zipfile.ZipFile(second / KERNELS) as archive:
        assert archive.read("triton/some.cubin") == b"code"


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


def test_terminated_it_leaves_nothing_behind(tmp_path: Path) -> None:
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    command = [sys.executable, "-m", "benchmarks.gpu", "decisions", str(out)]
    command += ["--device", "cpu", "--small", "--parts", "pool-fp32"]
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch)}
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment)
    try:
        until(lambda: list(scratch.glob("*/models")), 200)
        children = family(run.pid)
        run.send_signal(signal.SIGTERM)
        assert run.wait(200) == 128 + signal.SIGTERM
    finally:
        run.kill()
    until(lambda: not any(map(running, children)), 200)
    assert not list(scratch.iterdir())


def test_what_makes_no_sense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["--device", "cpu"], ["--small"], ["--parts", "x", "--device", "cpu", "--small"]):
        with pytest.raises(SystemExit):
            measure.main(["facts", str(tmp_path), *words])
    monkeypatch.setattr(measure, "visible_gpus", lambda: [])
    with pytest.raises(SystemExit, match="no usable NVIDIA GPU"):
        measure.main(["facts", str(tmp_path)])


def saved(rate: float, eight: float) -> dict[str, Any]:
    """What a part with encoders saves, as far as goals read it."""
    rows = [
        {"implementation": name, "precision": precision, "sequences_per_second": some,
         "tokens_per_second": 150 * some, "share_of_matmul": some / 800}
        for name, precision, some in [("transformers", "bf16", 1.0), ("virnucpro", "bf16", rate),
                                      ("virnucpro", "fp8", eight)]
    ]  # fmt: skip
    return {"models": [{"results": rows}]}


def test_goals() -> None:
    stage = {"sequences_per_second_of_worker": 500, "tokens_per_second_of_worker": 60_000}
    rows = {
        "esm2": {"figures": saved(640, 800)},
        "esm2-fp8": {"figures": saved(600, 750)},
        "pool-bf16": {"figures": {"rates": {"protein_embeddings": stage}}},
    }
    goals = measure.compare_with_goals(rows, REAL)
    found = {row["goal"]: (row["measured"], row["met"]) for row in goals}
    name = "ESM-2 esm2_t36_3B_UR50D"
    assert found[f"{name} bf16, share of the matrix product"] == (0.8, "yes")
    assert found[f"{name} bf16, sequences of 168 tokens per second"][1] == "no"
    assert found[f"{name} fp8, times bf16"] == (1.25, "no")
    # 60,000 tokens per second of the 96,000 that reach a share of 0.8.
    assert found[f"{name} bf16 through the pool, share of the matrix product"] == (0.5, "no")
    assert found[f"{name} fp8 through the pool, times bf16"] == (None, "not measured")
    assert found["DNABERT-S bf16, sequences per second"] == (None, "not measured")
