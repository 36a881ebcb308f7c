"""Check the GPU path and measure it, in two commands of ten minutes.

    python -m benchmarks.gpu facts OUT
    python -m benchmarks.gpu decisions OUT [--parts peers,...]
    python -m benchmarks.gpu facts OUT --small     # a rehearsal: tiny models, on the CPU

Each part is a process with its own time limit. Whatever fails, the tests among it, the other parts
follow, and the exit code is 1 at the end. OUT has the log and the figures of each part, and
``goals.json``: what was measured, by the last parts in OUT, beside what is required.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from virnucpro.devices import visible_gpus
from virnucpro.precision import PRECISIONS

ROOT = Path(__file__).parents[2]
LAST_LINES = 40  # of the log of a part, which are printed
# The device and the amount of work: models as ``benchmarks.encoders`` takes them; precisions of 16
# and 8 bits, or what a CPU has in their place; sequences per call of ESM-2, of DNABERT-S, and beside
# slow programs; frames of a whole run; seconds for each implementation. On a GPU, a call of ESM-2
# 3B is some two seconds, of DNABERT-S one and a half.
Scale = dict[str, str | int | float]
REAL: Scale = {
    **{"device": "cuda", "esm": "esm2_t36_3B_UR50D", "dnabert": "DNABERT-S"},
    **{"half": "bf16", "eighth": "fp8", "many": 1024, "more": 16384, "few": 256},
    **{"frames": 20_000, "seconds": 3.0},
}
SMALL: Scale = {
    **{"device": "cpu", "esm": "esm2:3x64x2", "dnabert": "dnabert-s:3x48x2"},
    **{"half": "fp32", "eighth": "bf16", "many": 8, "more": 16, "few": 6},
    **{"frames": 60, "seconds": 0.0},
}
ENCODERS = "-m benchmarks.encoders --device {device} --seconds {seconds} --json {out}/{name}.json"
POOL = "-m benchmarks.gpu.pool {scratch} {out}/{name}.json {device} {half} {esm} {dnabert} {frames}"
TESTS = (
    "-m pytest tests/gpu --on={device} -v --basetemp={scratch}/tests -p no:cacheprovider "
    "-p no:benchmark -W default"
)
# The seconds that each part may take, and what Python is called with.
PARTS = {
    "facts": {
        "esm2": (150, ENCODERS + " {esm} --no-peers --precision {half},{eighth} --sequences {many}"),
        "dnabert-s": (60, ENCODERS + " {dnabert} --no-peers --precision {half} --sequences {more}"),
        "tests": (330, TESTS),
    },
    "decisions": {
        "pool": (150, POOL),
        "peers": (200, ENCODERS + " {esm} {dnabert} --precision {half} --sequences {few}"),
    },
}  # fmt: skip
# More for the tests: most of their time is compiling, and a rehearsal leaves out whole runs.
IN_PARALLEL = " -n 8 --dist worksteal"
REHEARSED = " --deselect tests/gpu/test_gpu_commands.py"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts; return 0 where every part that was started succeeded, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=list(PARTS), help="begin with facts")
    parser.add_argument("out", type=Path, help="folder for the results of both commands")
    parser.add_argument("--parts", help="only these, separated by commas")
    parser.add_argument("--small", action="store_true", help="tiny models, on the CPU")
    options = parser.parse_args(arguments)
    scale = SMALL if options.small else _scale_of_gpu()
    known = PARTS[options.command]
    names = options.parts.split(",") if options.parts else list(known)
    if not known.keys() >= set(names):
        parser.error(f"not all of {options.parts} are parts of {options.command}")
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    states = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            seconds, words = known[name]
            if name == "tests" and options.small:
                words += REHEARSED
            elif name == "tests" and find_spec("xdist"):
                words += IN_PARALLEL
            words = words.format(**scale, name=name, out=out, scratch=scratch)
            print(f"{name}: {words}", flush=True)
            states.append(run_part(name, words, out, seconds))
            goals = compare_with_goals(out, scale)
            (out / "goals.json").write_text(json.dumps(goals, indent=1) + "\n")
            log = (out / f"{name}.log").read_text(errors="replace").splitlines()
            print(*log[-LAST_LINES:], f"{name}: {states[-1]}", sep="\n", flush=True)
    for goal in goals:
        measured, required = goal["measured"], goal["required"]
        met = "not measured" if measured is None else f"{measured:,.2f}"
        met += "" if measured is None or measured >= required else ": not met"
        print(f"{goal['goal']:60} {required:9,.2f}  {met}")
    if options.small:
        print("This is a rehearsal with tiny models: these numbers mean nothing.")
    return int(any(state.startswith("failed") for state in states))


def _scale_of_gpu() -> Scale:
    gpus = visible_gpus()
    if not gpus:
        sys.exit("no usable NVIDIA GPU: see nvidia-smi, or rehearse with --small")
    fp8, bf16 = (gpus[0].capability >= PRECISIONS[name].capability for name in ("fp8", "bf16"))
    half, eighth = "bf16" if bf16 else "fp16", "fp8" if fp8 else "fp16" if bf16 else "fp32"
    print(f"{gpus[0].name}: measured are {half} and {eighth}", flush=True)
    return {**REAL, "half": half, "eighth": eighth}


def run_part(name: str, words: str, out: Path, limit: int) -> str:
    """Run a part for at most ``limit`` seconds; return how it ended."""
    (out / f"{name}.json").unlink(missing_ok=True)  # figures of an earlier time
    log = out / f"{name}.log"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    if name == "tests":  # they run beside each other
        environment["OMP_NUM_THREADS"] = "2"
    with log.open("wb") as stream:
        # In a session of its own, it can be ended with everything it has started.
        process = subprocess.Popen(
            [sys.executable, *shlex.split(words)], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit)
            return f"failed (exit {code})" if code else "done"
        except subprocess.TimeoutExpired:
            return f"ended after {limit} s: its time was over"
        finally:
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def compare_with_goals(out: Path, scale: Scale) -> list[dict[str, Any]]:
    """Return the goals of the models alone, and of the same models in a whole run."""
    half, eighth = str(scale["half"]), str(scale["eighth"])
    figures: dict[str, Any] = {}
    for name in ("esm2", "dnabert-s", "pool", "peers"):
        with suppress(OSError, ValueError):  # it has saved nothing, or was ended as it did
            figures[name] = json.loads((out / f"{name}.json").read_bytes())
    rate, tokens, matmul = "sequences_per_second", "tokens_per_second", "share_of_matmul"

    def own(part: str, precision: str, key: str) -> float:
        """Return a figure of this program, or NaN where it was not measured."""
        for model in figures.get(part, {}).get("models", ()):
            for row in model["results"]:
                if row["implementation"] == "virnucpro" and row["precision"] == precision:
                    found = row.get(key)
                    return math.nan if found is None else float(found)
        return math.nan

    def pool(stage: str, key: str) -> float:
        rates = figures.get("pool", {}).get("rates", {}).get(f"{stage}_embeddings", {})
        return float(rates.get(f"{key}_of_worker", math.nan))

    share = own("esm2", half, matmul)
    in_pool = pool("protein", tokens) / own("esm2", half, tokens)
    fp8 = own("esm2", eighth, rate) / own("esm2", half, rate)
    goals = (
        (f"ESM-2 {half}, share of the matrix product", 0.82, share),
        (f"ESM-2 {half} through predict, share of the product", 0.80, share * in_pool),
        (f"ESM-2 {eighth}, times {half}", 1.40, fp8),
        (f"ESM-2 {half}, times transformers", 1.6, own("peers", half, "ratio_to_transformers")),
        (f"DNABERT-S {half}, sequences per second", 11_000, own("dnabert-s", half, rate)),
        (f"DNABERT-S {half} through predict", 9_000, pool("nucleotide", rate)),
    )
    return [
        {"goal": name, "required": required, "measured": None if math.isnan(found) else found}
        for name, required, found in goals
    ]


if __name__ == "__main__":
    # As Ctrl-C: the part that is running is ended, and the scratch files are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
