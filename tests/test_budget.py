"""The size of the program. Raising a number is a commit of its own, with its reason."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "virnucpro"
# Lines of Python in each folder; "." are the modules at the top.
LINES = {
    ".": 2768,
    "classifier": 440,
    "cli": 2233,
    "compute": 891,
    "encoders": 2103,
    "evaluation": 965,
    "executors": 1666,
    "io": 854,
    "metrics": 229,
    "models": 665,
    "rcl": 2901,
    "report": 1144,
    "run": 2118,
    "stages": 2083,
    "store": 1469,
    "training": 3170,
    "ui": 973,
}
# Of the whole package; code is without docstrings, comments and blank lines.
WHOLE = {"files": 169, "lines": 26_672, "code": 18_335, "functions": 1240, "classes": 282}
OUTSIDE = {"tests": 23_230, "benchmarks and tools": 3_582, "words of docs": 26_640}
# Words of the two pages at the top.
PAGES = {"README.md": 840, "GPU_OPTIMIZATION.md": 4_438}
# Of `predict X -m lite` on one contig: own functions entered, their modules and calls, and what it
# costs and leaves on the disk. A slow machine reports its progress more often.
WAY = {"functions": 393, "modules": 70, "calls": 2470, "fsyncs": 30, "files": 20}
LONGEST_FUNCTION = 80  # lines


def _sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _words(path: Path) -> int:
    return len(path.read_text().split())


def _code_lines(text: str) -> int:
    """Return the number of lines with code, without docstrings."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs.update(range(value.lineno, (value.end_lineno or 0) + 1))
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped and token.type != tokenize.ENDMARKER:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docs)


def _definitions(kind: type | tuple[type, ...]) -> list[ast.AST]:
    trees = (ast.parse(path.read_text()) for path in _sources(PACKAGE))
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, kind)]


@pytest.mark.parametrize("folder", LINES)
def test_a_folder_is_within_its_lines(folder: str) -> None:
    paths = list(PACKAGE.glob("*.py")) if folder == "." else _sources(PACKAGE / folder)
    assert _lines(paths) <= LINES[folder]


def test_every_folder_has_a_number() -> None:
    folders = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py")}
    assert folders == LINES.keys() - {"."}


def test_the_package_is_within_its_size() -> None:
    paths = _sources(PACKAGE)
    functions = _definitions((ast.FunctionDef, ast.AsyncFunctionDef))
    found = {
        "files": len(paths),
        "lines": _lines(paths),
        "code": sum(_code_lines(path.read_text()) for path in paths),
        "functions": len(functions),
        "classes": len(_definitions(ast.ClassDef)),
    }
    assert {name: size for name, size in found.items() if size > WHOLE[name]} == {}
    lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions}  # type: ignore[attr-defined]
    assert {name: n for name, n in lengths.items() if n > LONGEST_FUNCTION} == {}


def test_what_is_outside_the_package_is_within_its_size() -> None:
    found = {
        "tests": _lines(_sources(ROOT / "tests")),
        "benchmarks and tools": sum(_lines(_sources(ROOT / n)) for n in ("benchmarks", "tools")),
        "words of docs": sum(_words(path) for path in (ROOT / "docs").rglob("*.md")),
        **{name: _words(ROOT / name) for name in PAGES},
    }
    assert {name: n for name, n in found.items() if n > {**OUTSIDE, **PAGES}[name]} == {}


COUNTING = """
import inspect, json, os, sys, threading, matplotlib.backends.backend_svg, rich.live, torch
package, out, *command = sys.argv[1:]
called, fsyncs, real = {}, 0, os.fsync
def fsync(descriptor):
    global fsyncs
    fsyncs += 1
    real(descriptor)
def note(frame, event, argument):
    code = frame.f_code
    function = code.co_flags & inspect.CO_OPTIMIZED  # the body of a class is none
    named = code.co_filename.startswith(package) and code.co_name[0] != "<"
    if event == "call" and function and named:
        key = code.co_filename, code.co_firstlineno
        called[key] = called.get(key, 0) + 1
from virnucpro.cli import run
from virnucpro.ui import terminal
terminal.TICK_SECONDS = 1e6  # the slower the machine, the more often the screen would look
os.fsync = fsync
threading.setprofile(note)
sys.setprofile(note)
code = run(command)
sys.setprofile(None)
with open(out, "w") as stream:
    json.dump({"code": code, "functions": len(called), "modules": len({f for f, _ in called}),
               "calls": sum(called.values()), "fsyncs": fsyncs}, stream)
"""


def test_the_way_of_one_record(tmp_path: Path) -> None:
    bases = "".join(random.Random(3).choices("ACGT", k=2600))
    (tmp_path / "x.fa").write_text(f">contig\n{bases}\n")
    counted, out = tmp_path / "counted.json", tmp_path / "out"
    command = ("predict", tmp_path / "x.fa", "-o", out, "-m", "lite")
    arguments = (str(PACKAGE), counted, *command, "--device", "cpu", "--threads", "1")
    subprocess.run(
        [sys.executable, "-c", COUNTING, *map(str, arguments)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    found = json.loads(counted.read_text())
    assert found.pop("code") == 0
    found["files"] = sum(path.is_file() for path in out.rglob("*"))
    assert {name: size for name, size in found.items() if size > WAY[name]} == {}, found
