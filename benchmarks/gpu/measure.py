"""Check the GPU path and measure it, in two commands of ten minutes.

    python -m benchmarks.gpu facts OUT
    python -m benchmarks.gpu decisions OUT [--minutes 9.5] [--quick] [--parts pool-bf16,peers,...]
    python -m benchmarks.gpu facts OUT --device cpu --small     # a rehearsal, without a GPU

Each part is a process with its own time limit. Whatever fails, the tests among it, the other parts
follow, and the exit code is 1 at the end. OUT has two files: ``summary.json`` with the goals beside
what was measured, the machine, versions and commands, and ``results.zip`` with the logs and all
figures. Both are replaced while a part runs and when it has ended, so that they are complete wherever
the command is cut off. What does not fit into ``--minutes`` can be done by another call with
``--parts``: what OUT has already stays.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import (
    PARTS,
    QUICK,
    REAL,
    ROOT,
    SMALL,
    Part,
    Scale,
    environment,
    parts,
)
from benchmarks.gpu.results import OPTIONAL, REQUIRED, RUNNING, Results, gpus
from virnucpro.benchmark.machine import package_version
from virnucpro.precision import PRECISIONS

LEAST_SECONDS = 1.0  # with less, a part is not started
REFRESH_SECONDS = 3.0  # between two looks at what a part has written


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every part that was started succeeded, else 1."""
    deadline = time.monotonic()
    options = _options(arguments)
    deadline += 60 * options.minutes
    out = Path(options.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    own_environment = environment(options.wheels)
    sys.path += own_environment["PYTHONPATH"].split(os.pathsep)  # where versions are looked up
    for name in (*REQUIRED, *OPTIONAL):
        if package_version(name) is None:
            print(f"missing: {name} ({REQUIRED.get(name) or OPTIONAL[name]})", flush=True)
    scale = _scale(options)
    if options.scratch is not None:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="virnucpro-gpu-", dir=options.scratch) as folder:
        scratch = Path(folder)
        work = scratch / "results"
        work.mkdir()
        chosen_parts = _chosen(parts(options.command, scale, work, scratch), options.parts)
        return Measurements(scale, out, work, deadline, own_environment).run(chosen_parts)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=list(PARTS), help="what to measure; begin with facts")
    parser.add_argument("out", help="folder for summary.json and results.zip")
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything (default 9.5)")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--parts", help="only these, separated by commas")
    parser.add_argument("--scratch", type=Path, help="folder for models of 6 GB, for a while")
    parser.add_argument(
        "--wheels", type=Path, help="folder of wheels in plain Python, such as that of fair-esm"
    )
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
        scale = replace(scale, eighth="fp16")
    return scale


def _chosen(all_parts: list[Part], names: str | None) -> list[Part]:
    if names is None:
        return all_parts
    chosen, known = set(names.split(",")), {part.name for part in all_parts}
    if unknown := chosen - known:
        sys.exit(f"no part {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}")
    return [part for part in all_parts if part.name in chosen]


class Measurements:
    """Runs parts one after the other until the time is over, and stores what they measure."""

    def __init__(
        self,
        scale: Scale,
        out: Path,
        work: Path,
        deadline: float,
        more_environment: Mapping[str, str],
    ) -> None:
        """``work`` is where the parts write; ``deadline`` is of ``time.monotonic``."""
        self._work, self._deadline = work, deadline
        self._environment = os.environ | more_environment
        self.results = Results(out, work, scale)

    def run(self, chosen_parts: Sequence[Part]) -> int:
        """Run the parts. One that fails does not stop the others, but the exit code is 1."""
        failed = False
        for part in chosen_parts:
            if part.name == "tests" and package_version("pytest") is None:
                self.results.add({"part": part.name, "state": "not run: pytest is missing"})
                continue
            print(f"{part.name}: {shlex.join(part.command)}", flush=True)
            row = self.run_part(part)
            self.results.add(row)
            print("\n".join(self.results.text(part.name)), flush=True)
            failed |= row["state"].startswith("failed")
            if part.name == "tests" and row["state"] != "done":
                print("the tests did not pass: see tests.log in results.zip", flush=True)
                failed = True
        print("\n".join(self.results.goals_text()))
        return int(failed)

    def run_part(self, part: Part) -> dict[str, Any]:
        """Run a part within its time limit, and return its row for the summary."""
        limit = min(part.seconds, self._deadline - time.monotonic())
        row = {"part": part.name, "command": shlex.join(part.command)}
        if limit < LEAST_SECONDS:
            return row | {"state": "not started: the time was over"}
        (self._work / f"{part.name}.json").unlink(missing_ok=True)
        # It gets its own process group, so that it can be ended with everything it has started.
        group: dict[str, Any] = {"start_new_session": True}
        if sys.version_info >= (3, 11):
            group = {"process_group": 0}
        started = time.monotonic()
        with (self._work / f"{part.name}.log").open("wb") as log:
            process = subprocess.Popen(
                part.command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, **group,
            )  # fmt: skip
            state = f"ended after {limit:.0f} s: its time was over"
            try:
                while (seconds_left := started + limit - time.monotonic()) > 0:
                    try:
                        code = process.wait(min(REFRESH_SECONDS, seconds_left))
                        state = f"failed (exit {code})" if code else "done"
                        break
                    except subprocess.TimeoutExpired:
                        seconds = round(time.monotonic() - started, 1)
                        self.results.refresh(row | {"state": RUNNING, "seconds": seconds})
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
