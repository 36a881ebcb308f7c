"""Check the GPU path and measure it, with the most important parts first.

    python -m benchmarks.gpu OUT [--minutes 9] [--quick] [--parts tests,esm2,...]
    python -m benchmarks.gpu OUT --device cpu --small     # a rehearsal, without a GPU

The tests in tests/gpu run first, and the measurements follow even if some fail; the exit code is 1
then. Each part is a process with a log, ``OUT/PART.log``, its own time limit and, where it measures,
``OUT/PART.json``; the tests write ``OUT/tests.xml`` (JUnit). ``OUT/summary.json`` is written anew
after each of them: the goals beside what was measured, the machine, versions and commands. What does
not fit into ``--minutes`` can be done by another call with ``--parts``: OUT keeps its files.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import QUICK, REAL, SMALL, Part, Scale, parts, version
from benchmarks.gpu.summary import OPTIONAL, REQUIRED, Summary, gpus
from virnucpro.precision import PRECISIONS

ROOT = Path(__file__).parents[2]
LEAST_SECONDS = 1.0  # with less, a part is not started


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every part that was started succeeded, else 1."""
    options = _options(arguments)
    out = Path(options.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    for name in (*REQUIRED, *OPTIONAL):
        if version(name) is None:
            print(f"missing: {name} ({REQUIRED.get(name) or OPTIONAL[name]})", flush=True)
    scale = _scale(options)
    deadline = time.monotonic() + 60 * options.minutes
    if options.scratch is not None:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="virnucpro-gpu-", dir=options.scratch) as scratch:
        chosen_parts = _chosen(parts(scale, out, Path(scratch)), options.parts)
        return _measure(chosen_parts, scale, out, deadline)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="folder for logs and figures")
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything (default 9)")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--parts", help="only these, separated by commas")
    parser.add_argument("--scratch", type=Path, help="folder for models of 6 GB, for a while")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models: with --device cpu")
    options = parser.parse_args(arguments)
    if options.small != (options.device == "cpu"):
        parser.error("--device cpu and --small go together")
    return options


def _scale(options: argparse.Namespace) -> Scale:
    """Return the requested scale, as far as the first GPU supports it."""
    if options.small:
        return SMALL
    scale, usable_gpus = QUICK if options.quick else REAL, gpus()
    if not usable_gpus:
        sys.exit("no usable NVIDIA GPU: see nvidia-smi, or rehearse with --device cpu --small")
    if tuple(usable_gpus[0]["capability"]) < PRECISIONS["fp8"].capability:
        print(f"{usable_gpus[0]['name']} has no fp8: fp16 is measured in its place", flush=True)
        scale = replace(scale, lower="fp16")
    return scale


def _chosen(all_parts: list[Part], names: str | None) -> list[Part]:
    if names is None:
        return all_parts
    chosen, known = set(names.split(",")), {part.name for part in all_parts}
    if unknown := chosen - known:
        sys.exit(f"no part {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}")
    return [part for part in all_parts if part.name in chosen]


def _measure(chosen_parts: Sequence[Part], scale: Scale, out: Path, deadline: float) -> int:
    """Run one part after the other until the time is over.

    A part that fails, the tests among them, does not stop the others, but the exit code is 1.
    """
    summary = Summary(out, scale)
    failed = False
    for part in chosen_parts:
        if part.name == "tests" and version("pytest") is None:
            summary.add({"part": part.name, "state": "not run: pytest is missing"})
            continue
        print(f"{part.name}: {shlex.join(part.command)}", flush=True)
        row = _run_part(part, out, deadline)
        summary.add(row)
        print("\n".join(summary.text(part.name)), flush=True)
        failed |= row["state"].startswith("failed")
        if part.name == "tests" and row["state"] != "done":
            print(f"the tests did not pass: see {out / 'tests.log'}", flush=True)
            failed = True
    print("\n".join(summary.goals_text()))
    return int(failed)


def _run_part(part: Part, out: Path, deadline: float) -> dict[str, Any]:
    """Run a part within its time limit, and return its row for the summary."""
    limit = min(part.seconds, deadline - time.monotonic())
    row = {"part": part.name, "command": shlex.join(part.command)}
    if limit < LEAST_SECONDS:
        return row | {"state": "not started: the time was over"}
    (out / f"{part.name}.json").unlink(missing_ok=True)
    # It gets its own process group, so that it can be ended with everything that it has started.
    own: dict[str, Any] = {"start_new_session": True}
    if sys.version_info >= (3, 11):
        own = {"process_group": 0}
    started = time.monotonic()
    with (out / f"{part.name}.log").open("wb") as log:
        process = subprocess.Popen(
            part.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **own
        )
        try:
            code = process.wait(limit)
            state = f"failed (exit {code})" if code else "done"
        except subprocess.TimeoutExpired:
            state = f"ended after {limit:.0f} s: its time was over"
        finally:
            _end(process)
    return row | {"state": state, "seconds": round(time.monotonic() - started, 1)}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its whole group."""
    with suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stop_on_sigterm(*_: object) -> None:
    """Handle SIGTERM as Ctrl-C: end the part that is running and remove the scratch files."""
    sys.exit(128 + signal.SIGTERM)
