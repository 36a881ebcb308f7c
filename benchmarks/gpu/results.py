"""Store what was measured: ``summary.json`` and one archive with everything else.

The parts write into a work folder. OUT has two files alone, which are replaced while a part runs and
whenever one has ended: where the whole command is cut off, they hold what was measured until then,
and they are few and small enough to be brought back from a machine that gives back little.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import Any

from benchmarks.gpu.goals import benchmark_rows, compare_with_goals, read_json, text_lines
from benchmarks.gpu.parts import Scale
from virnucpro.benchmark.machine import package_version

SCHEMA = 2
SUMMARY, ARCHIVE = "summary.json", "results.zip"
LARGEST_ARCHIVE = 15 << 20  # bytes; the limit of such a machine is 16 MiB per file
LARGEST_LOG = 256 << 10  # bytes of the end of a log
LAST_LINES = 30  # of the log of a part that failed
RUNNING = "running"
# Figures of a part that the summary shows as they are.
COPIED_KEYS = (
    "rates", "stages", "workers", "points", "accuracy", "groups", "products", "copying",
    "compiling", "compilers",
)  # fmt: skip
KERNELS = 12  # of a breakdown that the summary shows
# The packages that the program needs, and those without which something is left out, with the
# purpose of each.
REQUIRED = {
    "torch": "everything",
    "numpy": "everything",
    "tokenizers": "DNABERT-S",
    "safetensors": "weights",
    "click": "the command line",
    "PyYAML": "configurations, so the pool",
    "rich": "tables and the dashboard",
    "huggingface_hub": "finding models",
    "nvidia-ml-py": "finding GPUs",
}
OPTIONAL = {
    "pytest": "the tests",
    "pytest-xdist": "tests side by side",
    "fair-esm": "the original's ESM-2 to compare with",
    "transformers": "EsmModel to compare with",
    "triton": "compiling for a GPU",
}


class Results:
    """The files in ``out``. The parts of an earlier call stay until they are repeated."""

    def __init__(self, out: Path, work: Path, scale: Scale) -> None:
        self._out, self._work, self._scale = out, work, scale
        if zipfile.is_zipfile(out / ARCHIVE):
            with zipfile.ZipFile(out / ARCHIVE) as archive:
                archive.extractall(work)
        earlier = read_json(out / SUMMARY).get("parts", ())
        self._parts: dict[str, dict[str, Any]] = {row["part"]: row for row in earlier}
        self._machine = machine()
        self._stored: object = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a part that runs or has ended, with the results in its file, and store everything."""
        name = row["part"]
        document = read_json(self._work / f"{name}.json")
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._parts[name] = {**row, "time": now, **_digest(document)}
        if name == "tests":
            self._parts[name] |= outcomes(self._work / "tests.jsonl")
        left_out = self._store_archive()
        document = {
            "schema": SCHEMA,
            "command": shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]]),
            "rehearsal": self._scale.device == "cpu",
            "machine": self._machine,
            "goals": [goal.row() for goal in compare_with_goals(self._work, self._scale)],
            "not_in_archive": left_out,
            "parts": list(self._parts.values()),
        }
        _replace(self._out / SUMMARY, (json.dumps(document, indent=1) + "\n").encode())

    def refresh(self, row: Mapping[str, Any]) -> None:
        """Do as :meth:`add` where the files of the work folder have changed since the last time."""
        state = sorted((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in self._files())
        if state != self._stored:
            self._stored = state
            self.add(row)

    def _files(self) -> list[Path]:
        return [path for path in self._work.iterdir() if path.is_file()]

    def _store_archive(self) -> list[str]:
        """Store the archive, the figures first and traces last; return what did not fit."""
        order = (".json", ".jsonl", ".xml", ".log")

        def importance(path: Path) -> tuple[int, int]:
            rank = order.index(path.suffix) if path.suffix in order else len(order)
            return rank, path.stat().st_size

        buffer, left_out = BytesIO(), []
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(self._files(), key=importance):
                content = path.read_bytes()
                if path.suffix == ".log":
                    content = content[-LARGEST_LOG:]
                # Its compressed size is not known before; it is hardly ever larger than the file.
                if buffer.tell() + _compressed_size(content) > LARGEST_ARCHIVE:
                    left_out.append(path.name)
                    continue
                archive.writestr(path.name, content)
        _replace(self._out / ARCHIVE, buffer.getvalue())
        return left_out

    def text(self, name: str) -> list[str]:
        """Return a part as lines of text."""
        row = self._parts[name]
        head = f"    {row['state']}, {row.get('seconds', 0.0):.1f} s"
        counts = (f"{number} {outcome}" for outcome, number in row.get("outcomes", {}).items())
        lines = [", ".join([head, *counts]), *text_lines(row)]
        if row["state"].startswith("failed"):
            log = self._work / f"{name}.log"
            end = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []
            lines += [f"    | {line}" for line in end]
        return lines

    def goals_text(self) -> list[str]:
        """Return the goals as lines of text."""
        goals = compare_with_goals(self._work, self._scale)
        width = max(len(goal.name) for goal in goals)
        rows = [f"{'goal':{width}}  {'required':>10}  {'measured':>10}  met"]
        for goal in goals:
            measured = "-" if goal.measured is None else f"{goal.measured:,.2f}"
            rows.append(f"{goal.name:{width}}  {goal.required:10,.2f}  {measured:>10}  {goal.met}")
        if self._scale.device == "cpu":
            rows.append("This is a rehearsal with tiny models: these numbers mean nothing.")
        return rows


def _digest(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a document that the summary shows."""
    digest: dict[str, Any] = {}
    if document.get("models"):
        digest["rows"] = benchmark_rows(document)
        digest["matrix_products"] = {
            model["model"]: {
                precision: {"flops_per_second": rate, **model["matmul_clocks"].get(precision, {})}
                for precision, rate in model["matmul_flops_per_second"].items()
            }
            for model in document["models"]
        }
    if document.get("modes"):
        digest["modes"] = {
            mode: breakdown | {"kernels": breakdown["kernels"][:KERNELS], "autotuned": None}
            for mode, breakdown in document["modes"].items()
        }
    return digest | {key: document[key] for key in COPIED_KEYS if document.get(key)}


def outcomes(path: Path) -> dict[str, Any]:
    """Return how many tests passed, failed and were skipped so far, and which failed."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    counts = Counter(row["outcome"] for row in rows)
    failed = [row["test"] for row in rows if row["outcome"] == "failed"]
    resumed = {row["test"]: row["outcome"] for row in rows if "killed_and_resumed" in row["test"]}
    return {
        "outcomes": dict(counts), "failed_tests": failed, "killed_and_resumed": resumed,
    }  # fmt: skip


def _compressed_size(content: bytes) -> int:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("file", content)
    return len(buffer.getvalue())


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that it is complete at any moment."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(content)
    temporary.replace(path)


def machine() -> dict[str, Any]:
    """Return what a reader needs to judge the results."""
    names = {**REQUIRED, **OPTIONAL}
    return {
        "gpus": gpus(),
        "driver": driver(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in names},
        "missing": [name for name in names if package_version(name) is None],
    }


def gpus() -> list[dict[str, Any]]:
    """Return the GPUs that predict would see."""
    if package_version("nvidia-ml-py") is None or package_version("torch") is None:
        return []
    from virnucpro.devices import visible_gpus

    return [
        {"name": gpu.name, "memory": gpu.memory, "capability": list(gpu.capability)}
        for gpu in visible_gpus()
    ]


def driver() -> str | None:
    """Return the version of the NVIDIA driver, or None where there is none."""
    if package_version("nvidia-ml-py") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        driver_version = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    return driver_version if isinstance(driver_version, str) else str(driver_version.decode())
