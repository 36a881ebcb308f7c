"""The rules that a machine can check: layers, cycles, unique names, light imports."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "virnucpro"

# From the bottom to the top. A module may import from its own unit (a folder or a top-level
# module) and from the units before it, never from one behind it.
ORDER = (
    "version",
    "errors",
    "contracts",
    "events",
    "formatting",
    "precision",
    "settings",
    "columns",
    "tables",
    "layout",
    "io",
    "store",
    "results",
    "configuration",
    "devices",
    "models",
    "compute",
    "encoders",
    "classifier",
    "metrics",
    "stages",
    "report",
    "executors",
    "run",
    "training",
    "evaluation",
    "rcl",
    "ui",
    "api",
    "cli",
    "__main__",
)
HEAVY = {"torch", "transformers", "numpy", "huggingface_hub", "tokenizers", "safetensors", "jinja2"}
# What the command line imports before it knows the command: nothing heavy at the top of these.
LIGHT = {
    "cli",
    "__main__",
    "__init__",
    "settings",
    "configuration",
    "layout",
    "errors",
    "models",
    "columns",
    "tables",
}
LIGHT |= {"api", "results", "version"}
MODULE_NAME = re.compile(r"virnucpro(\.\w+)+(:\w+)?")
LONGEST = 600  # lines; a concept that reads better whole may fill that much
LONGEST_FUNCTION = 80  # lines


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imported(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Names of modules that a file imports: statements, and strings that name our modules."""
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and MODULE_NAME.fullmatch(node.value)
        ):
            names.add(node.value.partition(":")[0])
    return names


def import_graph() -> dict[str, set[str]]:
    """Which of our modules each of our modules imports."""
    known = {name_of(path) for path in modules()}
    return {
        name_of(path): {name for name in imported(path) if name in known} - {name_of(path)}
        for path in modules()
    }


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_down(path: Path) -> None:
    own = unit_of(name_of(path))
    if own == "__init__":
        return
    assert own in ORDER, f"say in ORDER where {own} belongs"
    upwards = {
        name
        for name in imported(path)
        if name.startswith("virnucpro.")
        and unit_of(name) in ORDER
        and ORDER.index(unit_of(name)) > ORDER.index(own)
    }
    assert not upwards


def test_no_import_cycles() -> None:
    graph = import_graph()
    finished: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module in finished:
            return
        for below in sorted(graph[module]):
            visit(below, (*trail, module))
        finished.add(module)

    for module in graph:
        visit(module, ())


def definitions(kind: type[ast.AST]) -> Iterator[tuple[str, str, ast.AST]]:
    """Name, module and node of each top-level definition of a kind."""
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, kind):
                yield node.name, name_of(path), node  # type: ignore[attr-defined]


def repeated(kind: type[ast.AST]) -> set[tuple[str, str]]:
    """Folder and name of each definition of a kind that a folder has twice."""
    homes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, module, node in definitions(kind):
        # A Click command carries the name that users type; the function it calls may too.
        decorators = getattr(node, "decorator_list", [])
        is_command = any("command" in ast.dump(decorator) for decorator in decorators)
        if not name.startswith("_") and not is_command:
            homes[module.rpartition(".")[0], name].add(module)
    return {place for place, found in homes.items() if len(found) > 1}


def test_names_are_unique_in_their_folder() -> None:
    assert not repeated(ast.ClassDef) | repeated(ast.FunctionDef)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_no_file_and_no_function_is_too_long(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions}
    assert not {name for name, lines in lengths.items() if lines > LONGEST_FUNCTION}


def test_the_command_line_starts_without_heavy_imports() -> None:
    for path in modules():
        if unit_of(name_of(path)) in LIGHT:
            packages = {name.split(".")[0] for name in imported(path, top_level_only=True)}
            assert not packages & HEAVY, path


def test_executors_know_no_biology() -> None:
    for path in (PACKAGE / "executors").glob("*.py"):
        units = {unit_of(name) for name in imported(path) if name.startswith("virnucpro.")}
        assert not units & {"io", "encoders", "stages"}, path
