"""``summary.json``: what was measured where, kept up to date part by part."""

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

from benchmarks.gpu.goals import benchmark_rows, goals, lines, read
from benchmarks.gpu.parts import Scale, version

SCHEMA = 1
TAIL = 30  # lines of the log of a part that failed
# Packages that the program needs, by what for; and those without which something is left out.
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
WELCOME = {
    "pytest": "the tests",
    "pytest-xdist": "tests side by side",
    "fair-esm": "the original's ESM-2 to compare with",
    "transformers": "EsmModel to compare with",
    "triton": "compiling for a GPU",
}


class Summary:
    """The document in ``out``; what an earlier call left there is kept until it is done again."""

    def __init__(self, out: Path, scale: Scale) -> None:
        self._out, self._scale = out, scale
        self._path = out / "summary.json"
        earlier = read(self._path).get("parts", ())
        self._parts: dict[str, dict[str, Any]] = {row["part"]: row for row in earlier}
        self._machine = machine()

    def add(self, row: Mapping[str, Any]) -> None:
        """A part has ended: note it, with the figures that it left."""
        name = row["part"]
        found = read(self._out / f"{name}.json")
        figures: dict[str, Any] = {}
        if name == "tests":
            figures["said"] = "".join(log_of(self._out, name)[-1:]).strip("= ")
        if found.get("models"):
            figures["rows"] = benchmark_rows(found)
        figures |= {key: found[key] for key in ("rates", "stages", "workers") if found.get(key)}
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._parts[name] = {**row, "finished": now, **figures}
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
        """A part in lines."""
        row = self._parts[name]
        head = f"    {row['state']}, {row.get('seconds', 0.0):.1f} s {row.get('said', '')}"
        failed = row["state"].startswith("failed")
        end = log_of(self._out, name)[-TAIL:] if failed else []
        return [head.rstrip(), *lines(row), *(f"    | {line}" for line in end)]

    def goals_text(self) -> list[str]:
        """The goals in lines."""
        found = goals(self._out, self._scale)
        wide = max(len(goal.what) for goal in found)
        rows = [f"{'goal':{wide}}  {'wanted':>10}  {'measured':>10}  met"]
        for goal in found:
            measured = "-" if goal.measured is None else f"{goal.measured:,.2f}"
            rows.append(f"{goal.what:{wide}}  {goal.wanted:10,.2f}  {measured:>10}  {goal.met}")
        if self._scale.device == "cpu":
            rows.append("A rehearsal with tiny models: these figures say nothing.")
        return rows


def machine() -> dict[str, Any]:
    """What anybody needs to judge the figures."""
    names = {**REQUIRED, **WELCOME}
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
    """Those that predict would see."""
    if version("nvidia-ml-py") is None or version("torch") is None:
        return []
    from virnucpro.devices import visible_gpus

    return [
        {"name": gpu.name, "memory": gpu.memory, "capability": list(gpu.capability)}
        for gpu in visible_gpus()
    ]


def driver() -> str | None:
    """Version of the NVIDIA driver; None where there is none."""
    if version("nvidia-ml-py") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        found = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    return found if isinstance(found, str) else str(found.decode())


def log_of(out: Path, name: str) -> list[str]:
    """The lines that a part has printed."""
    path = out / f"{name}.log"
    return path.read_text(errors="replace").splitlines() if path.exists() else []
