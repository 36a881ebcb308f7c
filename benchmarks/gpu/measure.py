"""Check the GPU path and measure it, in two commands of ten minutes.

    python -m benchmarks.gpu facts OUT
    python -m benchmarks.gpu decisions OUT --earlier FACTS [--minutes 9.5] [--parts peers,...]
    python -m benchmarks.gpu facts OUT --device cpu --small     # a rehearsal, without a GPU

Each part is a process with its own time limit. Whatever fails, the tests among it, the other parts
follow, and the exit code is 1 at the end. OUT has three files: ``summary.json`` with the goals beside
what was measured, the machine, and the commands with all their figures; ``results.zip`` with logs and
traces; and ``kernels.zip`` with compiled code. The first two are replaced whenever a part has ended.
FACTS is the folder of an earlier command, whose figures count for the goals and whose compiled code is
used; without ``--earlier``, that is OUT itself.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.gpu.goals import compare_with_goals
from benchmarks.gpu.parts import REAL, SMALL, Part, Scale, parts
from virnucpro.benchmark.machine import package_version
from virnucpro.devices import visible_gpus
from virnucpro.precision import PRECISIONS

ROOT = Path(__file__).parents[2]
SUMMARY, ARCHIVE, KERNELS = "summary.json", "results.zip", "kernels.zip"
LEAST_SECONDS = 1.0  # with less, a part is not started
PACKING_SECONDS = 15.0  # are kept at the end for the compiled code
LARGEST_ARCHIVE = 15 << 20  # bytes; a machine may give back no larger file than 16 MiB
LAST_LINES = 40  # of the log of a part, which are printed
# Always the same place: what Triton stores names the files by their whole paths.
COMPILED = Path.home() / ".cache" / "virnucpro-gpu"
PACKAGES = (
    "torch", "triton", "numpy", "tokenizers", "transformers", "fair-esm", "nvidia-ml-py", "pytest",
    "pytest-xdist",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every part that was started succeeded, else 1."""
    started = time.monotonic()
    options = _options(arguments)
    scale = _scale(options)
    out, earlier = options.out.absolute(), options.earlier or options.out
    out.mkdir(parents=True, exist_ok=True)
    if options.scratch is not None:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="virnucpro-gpu-", dir=options.scratch) as folder:
        scratch = Path(folder)
        work, kernels = scratch / "results", scratch / "kernels" if options.small else COMPILED
        work.mkdir()
        kernels.mkdir(parents=True, exist_ok=True)
        if (earlier / KERNELS).exists():
            with zipfile.ZipFile(earlier / KERNELS) as archive:
                archive.extractall(kernels)
        measurements = Measurements(scale, out, work, kernels)
        for folder_of_results in (earlier, out):
            measurements.add_earlier(folder_of_results)
        chosen = _chosen(parts(options.command, scale, work, scratch), options.parts)
        return measurements.run(chosen, started + 60 * options.minutes - PACKING_SECONDS)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("facts", "decisions"), help="begin with facts")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--earlier", type=Path, help="folder of results of an earlier command")
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything (default 9.5)")
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
    gpus = visible_gpus()
    if not gpus:
        sys.exit("no usable NVIDIA GPU: see nvidia-smi, or rehearse with --device cpu --small")
    if gpus[0].capability < PRECISIONS["fp8"].capability:
        print(f"{gpus[0].name} has no fp8: fp16 is measured in its place", flush=True)
        return replace(REAL, eighth="fp16")
    return REAL


def _chosen(all_parts: list[Part], names: str | None) -> list[Part]:
    if names is None:
        return all_parts
    chosen, known = set(names.split(",")), {part.name for part in all_parts}
    if unknown := chosen - known:
        sys.exit(f"no part {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}")
    return [part for part in all_parts if part.name in chosen]


@dataclass
class Measurements:
    """Parts that run one after the other, and what they and earlier ones measured.

    Attributes:
        out: the folder for the results.
        work: the folder in which the parts write.
        kernels: the folder for compiled code.
        rows: what is known of each part, by its name.
    """

    scale: Scale
    out: Path
    work: Path
    kernels: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_earlier(self, folder: Path) -> None:
        """Add the parts of an earlier command, if the folder has its summary."""
        rows = read_json(folder / SUMMARY).get("parts", ())
        self.rows |= {row["part"]: row for row in rows}

    def run(self, chosen: Sequence[Part], deadline: float) -> int:
        """Run the parts until ``deadline`` (of ``time.monotonic``); return 1 where one failed."""
        failed = False
        try:
            for part in chosen:
                print(f"{part.name}: {shlex.join(part.command)}", flush=True)
                row = self.run_part(part, deadline)
                failed |= row["state"].startswith("failed")
                self.rows[part.name] = row
                self._save()
                log = self.work / f"{part.name}.log"
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                print(*lines[-LAST_LINES:], f"{part.name}: {row['state']}", sep="\n", flush=True)
        finally:
            _pack(self.kernels, self.out / KERNELS)
        for goal in compare_with_goals(self._figures(), self.scale):
            measured = "-" if goal["measured"] is None else f"{goal['measured']:,.2f}"
            print(f"{goal['goal']:78} {goal['required']:9,.2f} {measured:>9}  {goal['met']}")
        if self.scale.device == "cpu":
            print("This is a rehearsal with tiny models: these numbers mean nothing.")
        return int(failed)

    def run_part(self, part: Part, deadline: float) -> dict[str, Any]:
        """Run a part in a process of its own; return its state and its figures."""
        started = time.monotonic()
        limit = min(part.seconds, deadline - started)
        row: dict[str, Any] = {"part": part.name, "command": shlex.join(part.command)}
        if limit < LEAST_SECONDS:
            return row | {"state": "not started: the time was over"}
        # It gets its own process group, so that it can be ended with everything it has started.
        group: dict[str, Any] = {"start_new_session": True}
        if sys.version_info >= (3, 11):
            group = {"process_group": 0}
        with (self.work / f"{part.name}.log").open("wb") as log:
            process = subprocess.Popen(
                part.command, cwd=ROOT, env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, **group,
            )  # fmt: skip
            try:
                code = process.wait(limit)
                state = f"failed (exit {code})" if code else "done"
            except subprocess.TimeoutExpired:
                state = f"ended after {limit:.0f} s: its time was over"
            finally:
                with suppress(ProcessLookupError):  # all of them have ended
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = round(time.monotonic() - started, 1)
        figures = read_json(self.work / f"{part.name}.json")
        return row | {"state": state, "seconds": seconds, "figures": figures}

    def _environment(self) -> dict[str, str]:
        """Return an environment with the folders for compiled code."""
        places = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(places),
            "TORCHINDUCTOR_CACHE_DIR": str(self.kernels / "inductor"),
            "TRITON_CACHE_DIR": str(self.kernels / "triton"),
        }

    def _figures(self) -> dict[str, Mapping[str, Any]]:
        return {name: row.get("figures", {}) for name, row in self.rows.items()}

    def _save(self) -> None:
        """Replace the summary and the archive, so that either is complete at any moment."""
        document = {
            "command": shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]]),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "rehearsal": self.scale.device == "cpu",
            "gpus": [f"{gpu.name}, {gpu.memory} bytes" for gpu in visible_gpus()],
            "python": platform.python_version(),
            "packages": {name: package_version(name) for name in PACKAGES},
            "goals": compare_with_goals(self._figures(), self.scale),
            "parts": list(self.rows.values()),
        }
        new = self.out / f"{SUMMARY}.new"
        new.write_text(json.dumps(document, indent=1) + "\n")
        new.replace(self.out / SUMMARY)
        _pack(self.work, self.out / ARCHIVE)


def _pack(folder: Path, archive: Path) -> None:
    """Write the files of a folder into an archive, as far as it stays small: small files first."""
    new = archive.with_name(f"{archive.name}.new")
    files = sorted((p.stat().st_size, p) for p in folder.rglob("*") if p.is_file())
    left_out = 0
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as packed:
        for size, path in files:
            # Its compressed size is not known before; code and logs shrink to a fourth and less.
            if new.stat().st_size + size / 4 > LARGEST_ARCHIVE:
                left_out += 1
            else:
                packed.write(path, path.relative_to(folder))
    new.replace(archive)
    if left_out:
        print(f"{archive.name}: {left_out} files were left out, it would be too large", flush=True)


def read_json(path: Path) -> dict[str, Any]:
    """Return what a part has saved, or nothing where its file is missing or incomplete."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document


def stop_on_sigterm(*_: object) -> None:
    """Handle SIGTERM as Ctrl-C: end the part that is running and remove the scratch files."""
    sys.exit(128 + signal.SIGTERM)
