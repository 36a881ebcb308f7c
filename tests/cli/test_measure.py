"""``python -m benchmarks.gpu``, rehearsed without a GPU: it must not rot until there is one."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import click
import pytest

from benchmarks.gpu import breakdown, measure, variants
from benchmarks.gpu.goals import compare_with_goals
from benchmarks.gpu.measure import Measurements
from benchmarks.gpu.parts import QUICK, REAL, SMALL, Part, environment, parts
from benchmarks.gpu.results import ARCHIVE, SUMMARY, Results, outcomes
from tests.faults.processes import family, running, until
from virnucpro.cli import run as run_virnucpro
from virnucpro.cli.app import app
from virnucpro.cli.benchmark import benchmark
from virnucpro.cli.profile import profile

ROOT = Path(__file__).parents[2]
NAP = f"time.sleep({99 + os.getpid() / 1e8:.8f})"  # so that no other run of these tests has it
SLEEP = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; {NAP}'])"
# What a machine without network gives back of a command.
MOST_FILES, LARGEST_FILE = 8, 16 << 20


def summary(out: Path) -> dict:
    return json.loads((out / "summary.json").read_bytes())


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give rehearsals more time: the limits are for a GPU, and this machine may be busy."""

    def patient_parts(*arguments) -> list[Part]:
        return [replace(part, seconds=20 * part.seconds) for part in parts(*arguments)]

    monkeypatch.setattr(measure, "parts", patient_parts)


def python(name: str, code: str, seconds: float = 600.0) -> Part:
    return Part(name, seconds, (sys.executable, "-c", code))


def measurements(out: Path, seconds: float = 600.0) -> Measurements:
    work = out / "work"
    work.mkdir(exist_ok=True)
    return Measurements(SMALL, out, work, time.monotonic() + seconds, {})


class InThisProcess(Measurements):
    """Carries out the parts in this process: to import torch in each of twenty takes a minute."""

    def run_part(self, part: Part) -> dict[str, object]:
        module, *words = part.command[2:]
        if module == "virnucpro":
            code = run_virnucpro(words)
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", [module, *words])
                code = importlib.import_module(module).main()
        return {"part": part.name, "state": f"failed ({code})" if code else "done", "seconds": 0.1}


@pytest.mark.filterwarnings("default")  # torch warns about kernels that a CPU does not have
@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("facts", "machine esm2 breakdown-esm2 breakdown-dnabert-s-fp8 esm2-fp8"),
        ("decisions", "variants budgets labels"),
    ],
)
def test_a_rehearsal(tmp_path, capfd, monkeypatch, command, names):
    monkeypatch.delenv("VIRNUCPRO_REFERENCE", raising=False)
    # One way to change a block; tests/unit/compute/test_variants.py compiles each of them.
    one = dict(list(variants.BLOCK_VARIANTS.items())[:1])
    monkeypatch.setattr(variants, "BLOCK_VARIANTS", one)
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    work.mkdir()
    rehearsal = InThisProcess(SMALL, out, work, time.monotonic() + 600, {})
    chosen = [
        p for p in parts(command, SMALL, work, tmp_path / "scratch") if p.name in names.split()
    ]
    assert rehearsal.run(chosen) == 0
    said = capfd.readouterr().out
    assert "these numbers mean nothing" in said
    found = summary(out)
    assert found["rehearsal"]
    rows = {row["part"]: row for row in found["parts"]}
    assert set(rows) == set(names.split())
    assert {row["state"] for row in rows.values()} == {"done"}
    files = list(out.iterdir())
    assert {path.name for path in files} == {SUMMARY, ARCHIVE}
    assert all(path.stat().st_size < LARGEST_FILE for path in files)
    if command == "facts":
        assert rows["machine"]["products"]["fp32"]["power_watts"] is None
        assert [row["precision"] for row in rows["esm2-fp8"]["rows"]] == ["fp32", "bf16"]
        modes = rows["breakdown-esm2"]["modes"]
        assert modes["as written"]["encoder"]["compiled"] is False
        assert modes["compiled"]["graphs"]["stats"]["unique_graphs"] == 2
        assert modes["compiled"]["block_calls"]["compiled"] > 0
        assert modes["compiled"]["block_calls"]["uncompiled"] == 0
        for mode in modes.values():
            assert mode["kernels"][0]["milliseconds"] > 0
            assert mode["milliseconds_by_kind"]["matrix product"] > 0
        met = {row["goal"]: row["met"] for row in found["goals"]}
        assert met["ESM-2 3x64x2 fp32, share of the matrix product"] in ("yes", "no")
        assert met["3x48x2 fp32 through the pool, sequences per second"] == "not measured"
        with zipfile.ZipFile(out / ARCHIVE) as archive:
            assert "breakdown-esm2.compiled.trace.json.gz" in archive.namelist()
    else:
        block = rows["variants"]["groups"]["block of esm2 bf16"]
        assert block["as written"]["times_as_fast"] == 1
        assert all(row["least_cosine"] > 0.999 for row in block.values())
        assert "failed" in rows["variants"]["groups"]["attention"]["cuDNN"]
        assert [point["budget"] for point in rows["budgets"]["points"]] == [512, 1024]
        assert rows["labels"]["accuracy"]["precisions"][0]["labels"]["chunks"] > 0.9


@pytest.mark.filterwarnings("default")
def test_calls_that_are_not_compiled_are_reported(tmp_path, capfd, monkeypatch):
    """A setting that changes after compiling: torch runs the block as written, and says nothing."""
    file = tmp_path / "breakdown.json"
    words = [
        "esm2:3x64x2",
        "--precision",
        "fp32",
        "--device",
        "cpu",
        "--budget",
        "512",
        "--rounds",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", ["breakdown", *words, "--change-setting", "--json", str(file)])
    assert breakdown.main() == 0
    calls = {
        mode: row["block_calls"] for mode, row in json.loads(file.read_text())["modes"].items()
    }
    assert calls["compiled"]["uncompiled"] == 0
    changed = calls["after a change of settings"]
    assert changed["uncompiled"] > 0
    assert changed["reason"]
    said = capfd.readouterr().out
    assert f"{changed['uncompiled']} CALLS WERE NOT COMPILED: {changed['reason']}" in said


def test_a_rehearsal_of_the_pool(tmp_path, capfd):
    arguments = ["decisions", str(tmp_path), "--device", "cpu", "--small", "--minutes", "30"]
    assert measure.main([*arguments, "--parts", "pool-shared"]) == 0
    assert "frames/s" not in capfd.readouterr().out
    found = summary(tmp_path)
    assert found["machine"]["packages"]["torch"]
    (pool,) = found["parts"]
    assert set(pool["rates"]) == {"nucleotide_embeddings", "protein_embeddings"}
    for row in pool["rates"].values():
        assert row["sequences_per_second_of_worker"] >= row["sequences_per_second_of_stage"] > 0


def test_the_tests_can_be_rehearsed():
    """All modules are imported, and some of the tests run."""
    some = "finds or (those and 64 and fp32)"
    command = [sys.executable, "-m", "pytest", "tests/gpu", "--on=cpu", "-q", "-k", some]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_where_a_test_fails_the_rest_is_measured_and_the_exit_code_says_so(tmp_path, capsys):
    chosen = [python("tests", "print('1 failed'); raise SystemExit(1)"), python("later", "")]
    assert measurements(tmp_path).run(chosen) == 1
    tests, later = summary(tmp_path)["parts"]
    assert (tests["state"], later["state"]) == ("failed (exit 1)", "done")
    said = capsys.readouterr().out
    assert "the tests did not pass" in said
    assert "| 1 failed" in said


def test_where_the_tests_are_too_slow_the_rest_is_measured_all_the_same(tmp_path, capsys):
    chosen = [python("tests", SLEEP, 1.0), python("later", "", 600)]
    assert measurements(tmp_path).run(chosen) == 1
    assert [row["state"].split()[0] for row in summary(tmp_path)["parts"]] == ["ended", "done"]
    assert "the tests did not pass" in capsys.readouterr().out


def test_a_part_that_fails_does_not_keep_the_others_from_running(tmp_path):
    chosen = [python("a", "raise SystemExit(3)"), python("b", ""), python("c", SLEEP, 60.0)]
    assert measurements(tmp_path).run(chosen[:2]) == 1
    # Another call, without time: what is there is kept.
    assert measurements(tmp_path, 0).run(chosen[2:]) == 0
    states = [row["state"] for row in summary(tmp_path)["parts"]]
    assert states == ["failed (exit 3)", "done", "not started: the time was over"]


def test_a_part_ends_with_its_time_and_takes_its_processes_along(tmp_path):
    row = measurements(tmp_path).run_part(python("slow", SLEEP, 2.0))
    assert row["state"] == "ended after 2 s: its time was over"
    until(lambda: not commands_with(NAP), 200)


def test_killed_at_any_moment_what_was_measured_is_there(tmp_path):
    """The parts save 30 figures each, and the process that runs them is killed eight times."""
    command = [sys.executable, str(ROOT / "tests/cli/killed_measurements.py"), str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    left = json.loads(done.stdout.splitlines()[-1])
    assert max(parts for parts, _ in left) > 1


def test_a_running_part_has_its_figures_in_the_summary(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "REFRESH_SECONDS", 0.02)
    figures = json.dumps({"points": [{"budget": 8, "tokens_per_second": 3.0}]})
    path = tmp_path / "work" / "curve.json"
    code = f"import pathlib, time; pathlib.Path({str(path)!r}).write_text({figures!r}); {NAP}"
    stored = []
    running_measurements = measurements(tmp_path)
    refresh = running_measurements.results.refresh

    def watched(row):
        refresh(row)
        stored.extend(row.get("points", []) for row in summary(tmp_path)["parts"])

    monkeypatch.setattr(running_measurements.results, "refresh", watched)
    row = running_measurements.run_part(python("curve", code, 3.0))
    assert row["state"].startswith("ended")
    assert stored[-1] == [{"budget": 8, "tokens_per_second": 3.0}]


def test_the_archive_stays_below_the_limit_and_keeps_figures_first(tmp_path):
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    work.mkdir()
    noise = random.Random(0)
    for number in range(3):
        (work / f"t{number}.trace.json.gz").write_bytes(noise.randbytes((6 + number) << 20))
    (work / "a.log").write_bytes(b"x" * (40 << 20) + b"the end")
    (work / "a.json").write_text(json.dumps({"points": []}))
    Results(out, work, SMALL).add({"part": "a", "state": "done"})
    files = list(out.iterdir())
    assert len(files) == 2 <= MOST_FILES
    assert all(path.stat().st_size < LARGEST_FILE for path in files)
    assert summary(out)["not_in_archive"] == ["t1.trace.json.gz", "t2.trace.json.gz"][-1:]
    with zipfile.ZipFile(out / ARCHIVE) as archive:
        assert archive.namelist()[:2] == ["a.json", "a.log"]
        assert archive.read("a.log").endswith(b"the end")
    # Another call has what this one has measured.
    again = tmp_path / "again"
    again.mkdir()
    Results(out, again, SMALL).add({"part": "b", "state": "done"})
    assert (again / "a.json").exists()
    assert [row["part"] for row in summary(out)["parts"]] == ["a", "b"]


def test_outcomes_of_tests_that_were_cut_off(tmp_path):
    path = tmp_path / "tests.jsonl"
    rows = [
        {"test": "t.py::test_a", "outcome": "passed", "seconds": 1.0},
        {"test": "t.py::test_killed_and_resumed_x", "outcome": "failed", "seconds": 1.0},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + '\n{"test": "t.py::test')
    assert outcomes(path) == {
        "outcomes": {"passed": 1, "failed": 1},
        "failed_tests": ["t.py::test_killed_and_resumed_x"],
        "killed_and_resumed": {"t.py::test_killed_and_resumed_x": "failed"},
    }
    assert outcomes(tmp_path / "missing") == {}


def test_packages_are_imported_from_wheels(tmp_path):
    with zipfile.ZipFile(tmp_path / "fair_esm-9.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried_package.py", "NUMBER = 5\n")
        metadata = "Metadata-Version: 2.1\nName: carried-package\nVersion: 9.0\n"
        wheel.writestr("carried_package-9.0.dist-info/METADATA", metadata)
    code = "import carried_package as c, importlib.metadata as m; "
    code += "print(c.NUMBER, m.version('carried-package'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment(tmp_path),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["5", "9.0"]


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
    command = [sys.executable, "-m", "benchmarks.gpu", "decisions", str(out)]
    command += ["--device", "cpu", "--small"]
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
        measure.main(["facts", str(tmp_path), *arguments])
    assert message in capsys.readouterr().err


def test_a_part_that_there_is_not(tmp_path):
    with pytest.raises(SystemExit, match=r"no part x: there are .*esm2"):
        measure.main(["facts", str(tmp_path), "--parts", "x", "--device", "cpu", "--small"])


def test_without_a_gpu_or_fp8(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "gpus", lambda: [])
    with pytest.raises(SystemExit, match="no usable NVIDIA GPU"):
        measure.main(["facts", str(tmp_path)])
    older = [{"name": "A100", "capability": [8, 0]}]
    monkeypatch.setattr(measure, "gpus", lambda: older)
    assert measure.main(["facts", str(tmp_path), "--minutes", "0"]) == 1  # no part is run
    assert "A100 has no fp8" in capsys.readouterr().out
    rows = summary(tmp_path)["parts"]
    assert [row["part"] for row in rows[:2]] == ["machine", "tests"]
    assert {row["state"] for row in rows} == {"not started: the time was over"}


@pytest.mark.parametrize("scale", [REAL, QUICK, SMALL])
def test_commands_are_those_that_the_program_has(tmp_path, scale):
    facts, decisions = (
        parts(command, scale, tmp_path, tmp_path) for command in ("facts", "decisions")
    )
    for part in (*facts, *decisions):
        module, *words = part.command[2:]
        if module == "virnucpro":
            command = {"benchmark": benchmark, "profile": profile}[words.pop(0)]
            command.make_context("command", words, parent=click.Context(app))
        if part.name != "tests":
            assert str(tmp_path / f"{part.name}.json") in part.command
    assert [part.name for part in facts[:4]] == ["machine", "tests", "esm2", "breakdown-esm2"]
    assert decisions[0].name == f"pool-{scale.half}"
    names = [part.name for part in (*facts, *decisions)]
    assert len(set(names)) == len(names)


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
    (tmp_path / "esm2-fp8.json").write_text(saved(600, 750))
    (tmp_path / "dnabert-s.json").write_text("{ half")
    stage = {"sequences_per_second_of_worker": 500, "tokens_per_second_of_worker": 60_000}
    (tmp_path / "pool-bf16.json").write_text(json.dumps({"rates": {"protein_embeddings": stage}}))
    found = {g.name: (g.measured, g.met) for g in compare_with_goals(tmp_path, REAL)}
    name = "ESM-2 esm2_t36_3B_UR50D"
    assert found[f"{name} bf16, share of the matrix product"] == (0.8, "yes")
    assert found[f"{name} bf16, sequences of 168 tokens per second"][1] == "no"
    assert found[f"{name} fp8, times bf16"] == (1.25, "no")
    # 60,000 tokens of 1e13 operations each, of 8e17.
    assert found[f"{name} bf16 through the pool, share of the matrix product"] == (0.75, "yes")
    assert found[f"{name} fp8 through the pool, times bf16"] == (None, "not measured")
    assert found["DNABERT-S bf16, sequences per second"] == (None, "not measured")
