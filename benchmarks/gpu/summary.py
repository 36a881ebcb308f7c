"""Write ``summary.json`` with what was measured on which machine, after every part."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.gpu.goals import benchmark_rows, goals, read_json, text_lines
from benchmarks.gpu.parts import Scale, version

SCHEMA = 1
TAIL = 30  # lines of the log of a part that failed
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


class Summary:
    """The document in ``out``. The parts of an earlier call stay until they are repeated."""

    def __init__(self, out: Path, scale: Scale) -> None:
        self._out, self._scale = out, scale
        self._path = out / "summary.json"
        earlier = read_json(self._path).get("parts", ())
        self._parts: dict[str, dict[str, Any]] = {row["part"]: row for row in earlier}
        self._machine = machine()

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a part that has ended, with the results in its file."""
        name = row["part"]
        document = read_json(self._out / f"{name}.json")
        results: dict[str, Any] = {}
        if name == "tests":
            results["last_line"] = "".join(log_of(self._out, name)[-1:]).strip("= ")
        if document.get("models"):
            results["rows"] = benchmark_rows(document)
        results |= {
            key: document[key] for key in ("rates", "stages", "workers") if document.get(key)
        }
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._parts[name] = {**row, "finished": now, **results}
        self._save()

    def _save(self) -> None:
        document = {
            "schema": SCHEMA,
            "command": shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]]),
            "rehearsal": self._scale.device == "cpu",
            "machine": self._machine,
            "goals": [goal.row() for goal in goals(self._out, self._scale)],
            "parts": list(self._parts.values()),
        }
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        temporary.replace(self._path)

    def text(self, name: str) -> list[str]:
        """Return a part as lines of text."""
        row = self._parts[name]
        head = f"    {row['state']}, {row.get('seconds', 0.0):.1f} s {row.get('last_line', '')}"
        failed = row["state"].startswith("failed")
        end = log_of(self._out, name)[-TAIL:] if failed else []
        return [head.rstrip(), *text_lines(row), *(f"    | {line}" for line in end)]

    def goals_text(self) -> list[str]:
        """Return the goals as lines of text."""
        all_goals = goals(self._out, self._scale)
        wide = max(len(goal.name) for goal in all_goals)
        rows = [f"{'goal':{wide}}  {'required':>10}  {'measured':>10}  met"]
        for goal in all_goals:
            measured = "-" if goal.measured is None else f"{goal.measured:,.2f}"
            rows.append(f"{goal.name:{wide}}  {goal.required:10,.2f}  {measured:>10}  {goal.met}")
        if self._scale.device == "cpu":
            rows.append("This is a rehearsal with tiny models: these numbers mean nothing.")
        return rows


def machine() -> dict[str, Any]:
    """Return what a reader needs to judge the results."""
    names = {**REQUIRED, **OPTIONAL}
    return {
        "gpus": gpus(),
        "driver": driver(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in names},
        "missing": [name for name in names if version(name) is None],
    }


def gpus() -> list[dict[str, Any]]:
    """Return the GPUs that predict would see."""
    if version("nvidia-ml-py") is None or version("torch") is None:
        return []
    from virnucpro.devices import visible_gpus

    return [
        {"name": gpu.name, "memory": gpu.memory, "capability": list(gpu.capability)}
        for gpu in visible_gpus()
    ]


def driver() -> str | None:
    """Return the version of the NVIDIA driver, or None where there is none."""
    if version("nvidia-ml-py") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        driver_version = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    return driver_version if isinstance(driver_version, str) else str(driver_version.decode())


def log_of(out: Path, name: str) -> list[str]:
    """Return the lines that a part has printed."""
    path = out / f"{name}.log"
    return path.read_text(errors="replace").splitlines() if path.exists() else []
