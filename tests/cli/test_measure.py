"""``python -m benchmarks.gpu``, rehearsed without a GPU: it must not rot until there is one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from benchmarks.gpu import measure
from benchmarks.gpu.goals import goals
from benchmarks.gpu.parts import QUICK, REAL, SMALL, Part, parts
from tests.faults.processes import family, running, until
from virnucpro.cli.app import app
from virnucpro.cli.benchmark import benchmark

ROOT = Path(__file__).parents[2]
NAP = f"time.sleep({99 + os.getpid() / 1e8:.8f})"  # so that no other run of these tests has it
SLEEP = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; {NAP}'])"


def summary(out: Path) -> dict:
    return json.loads((out / "summary.json").read_bytes())


def python(name: str, code: str, seconds: float = 600.0) -> Part:
    return Part(name, seconds, (sys.executable, "-c", code))


def test_a_rehearsal(tmp_path, capfd):
    arguments = [str(tmp_path), "--device", "cpu", "--small", "--minutes", "30"]
    assert measure.main([*arguments, "--parts", "stages,pool-fp32,dnabert-s"]) == 0
    said = capfd.readouterr().out
    assert "frames/s" in said
    assert "tokens/s" in said
    found = summary(tmp_path)
    assert found["rehearsal"]
    assert found["machine"]["packages"]["torch"]
    states = {row["part"]: row["state"] for row in found["parts"]}
    assert states == {"dnabert-s": "done", "pool-fp32": "done", "stages": "done"}
    encoders, pool, _ = found["parts"]
    assert [row["precision"] for row in encoders["rows"]] == ["fp32", "bf16"]
    assert encoders["rows"][0]["sequences/s"] > 0
    assert set(pool["rates"]) == {"nucleotide_embeddings", "protein_embeddings"}
    for row in pool["rates"].values():
        assert row["sequences_per_second_of_worker"] >= row["sequences_per_second_of_stage"] > 0
    met = {row["goal"]: row["met"] for row in found["goals"]}
    assert met["3x48x2 fp32 through the pool, sequences per second"] in ("yes", "no")
    assert met["ESM-2 3x64x2 fp32, share of the matrix product"] == "not measured"
    assert "these numbers mean nothing" in said


def test_the_tests_can_be_rehearsed():
    """All modules are imported, and some of the tests run."""
    some = "finds or (those and 64 and fp32)"
    command = [sys.executable, "-m", "pytest", "tests/gpu", "--on=cpu", "-q", "-k", some]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_where_a_test_fails_the_rest_is_measured_and_the_exit_code_says_so(tmp_path, capsys):
    parts = [python("tests", "print('1 failed'); raise SystemExit(1)"), python("later", "")]
    assert measure._measure(parts, SMALL, tmp_path, time.monotonic() + 600) == 1
    tests, later = summary(tmp_path)["parts"]
    assert (tests["state"], tests["last_line"]) == ("failed (exit 1)", "1 failed")
    assert later["state"] == "done"
    said = capsys.readouterr().out
    assert "the tests did not pass" in said
    assert "| 1 failed" in said


def test_where_the_tests_are_too_slow_the_rest_is_measured_all_the_same(tmp_path, capsys):
    parts = [python("tests", SLEEP, 1.0), python("later", "", 600)]
    assert measure._measure(parts, SMALL, tmp_path, time.monotonic() + 600) == 1
    assert [row["state"].split()[0] for row in summary(tmp_path)["parts"]] == ["ended", "done"]
    assert "the tests did not pass" in capsys.readouterr().out


def test_a_part_that_fails_does_not_keep_the_others_from_running(tmp_path):
    parts = [python("a", "raise SystemExit(3)"), python("b", ""), python("c", SLEEP, 60.0)]
    assert measure._measure(parts[:2], SMALL, tmp_path, time.monotonic() + 600) == 1
    # Another call, without time: what is there is kept.
    assert measure._measure(parts[2:], SMALL, tmp_path, time.monotonic()) == 0
    states = [row["state"] for row in summary(tmp_path)["parts"]]
    assert states == ["failed (exit 3)", "done", "not started: the time was over"]


def test_a_part_ends_with_its_time_and_takes_its_processes_along(tmp_path):
    began = time.monotonic()
    row = measure._run_part(python("slow", SLEEP, 2.0), tmp_path, began + 100)
    assert row["state"] == "ended after 2 s: its time was over"
    until(lambda: not commands_with(NAP), 200)


def commands_with(text: str) -> list[str]:
    """Command lines of processes at work that hold ``text``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and running(int(path.parent.name)):
            found.append(line)
    return found


def test_terminated_it_leaves_nothing_behind(tmp_path):
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    command = [sys.executable, "-m", "benchmarks.gpu", str(out), "--device", "cpu", "--small"]
    command += ["--parts", "pool-fp32", "--scratch", str(scratch)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        until(lambda: list(scratch.glob("*/models")), 200)
        children = family(run.pid)
        run.send_signal(signal.SIGTERM)
        assert run.wait(200) == 128 + signal.SIGTERM
    finally:
        run.kill()
    until(lambda: not any(map(running, children)), 200)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--device", "cpu"], "go together"), (["--small"], "go together")],
)
def test_what_makes_no_sense_is_said(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit):
        measure.main([str(tmp_path), *arguments])
    assert message in capsys.readouterr().err


def test_a_part_that_there_is_not(tmp_path):
    with pytest.raises(SystemExit, match=r"no part x: there are .*esm2"):
        measure.main([str(tmp_path), "--parts", "x", "--device", "cpu", "--small"])


def test_without_a_gpu_or_fp8(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "gpus", lambda: [])
    with pytest.raises(SystemExit, match="no usable NVIDIA GPU"):
        measure.main([str(tmp_path)])
    older = [{"name": "A100", "capability": [8, 0]}]
    monkeypatch.setattr(measure, "gpus", lambda: older)
    assert measure.main([str(tmp_path), "--minutes", "0"]) == 1  # not even the tests are run
    assert "A100 has no fp8" in capsys.readouterr().out
    rows = summary(tmp_path)["parts"]
    assert rows[0]["part"] == "tests"
    assert {row["state"] for row in rows} == {"not started: the time was over"}


@pytest.mark.parametrize("scale", [REAL, QUICK, SMALL])
def test_commands_are_those_that_the_program_has(tmp_path, scale):
    names = []
    for part in parts(scale, tmp_path, tmp_path):
        names.append(part.name)
        module, *words = part.command[2:]
        if module == "virnucpro":
            assert words.pop(0) == "benchmark"
            benchmark.make_context("benchmark", words, parent=click.Context(app))
            assert str(tmp_path / f"{part.name}.json") in part.command
    assert names[:2] == ["tests", "esm2"]
    assert len(set(names)) == len(names) == 11


def saved(rate: float, eight: float) -> str:
    """What ``virnucpro benchmark`` saves, as far as goals read it."""
    rows = [
        {"implementation": name, "precision": precision, "sequences_per_second": some,
         "tokens_per_second": 150 * some, "share_of_matmul": some / 800}
        for name, precision, some in [("transformers", "bf16", 1.0), ("virnucpro", "bf16", rate),
                                      ("virnucpro", "fp8", eight)]
    ]  # fmt: skip
    model = {"flops": 3e15, "tokens": 300, "matmul_flops_per_second": {"bf16": 8e17}}
    return json.dumps({"models": [model | {"results": rows}]})


def test_goals(tmp_path):
    (tmp_path / "esm2.json").write_text(saved(640, 800))
    (tmp_path / "dnabert-s.json").write_text("{ half")
    stage = {"sequences_per_second_of_worker": 500, "tokens_per_second_of_worker": 60_000}
    (tmp_path / "pool-bf16.json").write_text(json.dumps({"rates": {"protein_embeddings": stage}}))
    found = {g.name: (g.measured, g.met) for g in goals(tmp_path, REAL)}
    name = "ESM-2 esm2_t36_3B_UR50D"
    assert found[f"{name} bf16, share of the matrix product"] == (0.8, "yes")
    assert found[f"{name} bf16, sequences of 168 tokens per second"][1] == "no"
    assert found[f"{name} fp8, times bf16"] == (1.25, "no")
    # 60,000 tokens of 1e13 operations each, of 8e17.
    assert found[f"{name} bf16 through the pool, share of the matrix product"] == (0.75, "yes")
    assert found[f"{name} fp8 through the pool, times bf16"] == (None, "not measured")
    assert found["DNABERT-S bf16, sequences per second"] == (None, "not measured")
