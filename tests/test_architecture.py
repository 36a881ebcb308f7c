"""The rules that a machine can check: layers, cycles, unique names, sizes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "virnucpro"

PAGE = (PACKAGE.parent / "docs/developing.md").read_text().partition("## The way of one record")[0]
# From the bottom to the top. A module may import from its own unit (a folder or a top-level
# module) and from the units before it, never from one behind it.
ORDER = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", PAGE, re.MULTILINE)
MODULE_NAME = re.compile(r"virnucpro(\.\w+)+(:\w+)?")
LONGEST = 600  # lines; a concept that reads better whole may fill that much
LONGEST_FUNCTION = 80  # lines


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def unit_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imported(module: str) -> set[str]:
    """Names of modules that a module imports: statements, and strings that name our modules."""
    names: set[str] = set()
    for node in ast.walk(MODULES[module]):
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


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    if module == "virnucpro":
        return
    assert unit_of(module) in ORDER, "say in docs/developing.md where it belongs"
    allowed = ORDER[: ORDER.index(unit_of(module)) + 1]
    ours = {name for name in imported(module) if name.startswith("virnucpro.")}
    assert not {name for name in ours if unit_of(name) in ORDER and unit_of(name) not in allowed}


def test_no_import_cycles():
    graph = {module: (imported(module) & MODULES.keys()) - {module} for module in MODULES}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("kind", [ast.ClassDef, ast.FunctionDef])
def test_names_are_unique_in_their_folder(kind):
    homes = Counter[tuple[str, str]]()
    for module, tree in MODULES.items():
        for node in tree.body:
            # A Click command carries the name that users type; the function it calls may too.
            if isinstance(node, kind) and not any(
                "command" in ast.dump(decorator) for decorator in node.decorator_list
            ):
                homes[module.rpartition(".")[0], node.name] += not node.name.startswith("_")
    assert not [place for place, found in homes.items() if found > 1]


@pytest.mark.parametrize("module", MODULES)
def test_no_file_and_no_function_is_too_long(module):
    nodes = [node for node in ast.walk(MODULES[module]) if isinstance(node, ast.stmt)]
    assert max((node.end_lineno for node in nodes), default=0) <= LONGEST
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    assert not [f.name for f in functions if f.end_lineno - f.lineno >= LONGEST_FUNCTION]


def test_workers_know_no_biology():
    for module in MODULES:
        if unit_of(module) == "workers":
            assert not set(map(unit_of, imported(module))) & {"io", "encoders", "stages"}, module
