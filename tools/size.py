"""Prints the size of the program and the way of one record: `python -m tools.size`."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "virnucpro"
# Runs a command of the program and counts what it enters: own functions, and their modules.
COUNTING = """
import inspect, json, os, sys, threading, matplotlib.backends.backend_svg, rich.live, torch
package, *command = sys.argv[1:]
called, fsyncs, real = set(), 0, os.fsync
def fsync(descriptor):
    global fsyncs
    fsyncs += 1
    real(descriptor)
def note(frame, event, argument):
    code = frame.f_code
    function = code.co_flags & inspect.CO_OPTIMIZED  # the body of a class is none
    # The code of a template has the name of its file, but ends in another way.
    own = code.co_filename.startswith(package) and code.co_filename.endswith(".py")
    if event == "call" and function and own and code.co_name[0] != "<":
        called.add((code.co_filename, code.co_firstlineno))
from virnucpro.cli import run
from virnucpro.ui import terminal
terminal.TICK_SECONDS = 1e6  # the slower the machine, the more often the screen would look
os.fsync = fsync
threading.setprofile(note)
sys.setprofile(note)
code = run(command)
sys.setprofile(None)
modules = {file for file, _ in called}
print(json.dumps({"functions": len(called), "modules": len(modules), "fsyncs": fsyncs}))
sys.exit(code)
"""


def _lines(*folders: str) -> int:
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sum(len(path.read_text().splitlines()) for path in paths)


def _package() -> dict[str, int]:
    paths = list(PACKAGE.rglob("*.py"))
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    return {
        "lines": _lines("virnucpro"),
        "files": len(paths),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "functions": sum(isinstance(node, ast.FunctionDef) for node in nodes),
    }


def _way_of_one_record(folder: Path) -> dict[str, int]:
    """Count what `predict X -m lite` enters, writes and leaves for one contig."""
    (folder / "x.fa").write_text(">x\n" + "".join(random.Random(3).choices("ACGT", k=2600)))
    out = folder / "out"
    command = ("predict", folder / "x.fa", "-o", out, "-m", "lite", "--device", "cpu")
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, *map(str, (PACKAGE, *command, "--threads", "1"))],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return {**counts, "files left": sum(path.is_file() for path in out.rglob("*"))}


def main() -> None:
    pages = [ROOT / "README.md", ROOT / "GPU_OPTIMIZATION.md", *(ROOT / "docs").rglob("*.md")]
    outside = {
        "lines of tests": _lines("tests"),
        "lines of benchmarks and tools": _lines("benchmarks", "tools"),
        "words of the documentation": sum(len(page.read_text().split()) for page in pages),
    }
    with tempfile.TemporaryDirectory() as folder:
        way = _way_of_one_record(Path(folder))
    for title, counts in (("package", _package()), ("outside", outside), ("one record", way)):
        print(title + ":", ", ".join(f"{n:,} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    main()
