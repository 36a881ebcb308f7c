"""Imports point down the list of layers; see docs/developing.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "virnucpro"

# From the bottom to the top. A module may import from its own layer and from those before it.
LAYERS = (
    ("errors", "contracts", "events", "formatting", "__init__"),
    (
        "precision",
        "settings",
        "configuration",
        "tables",
        "layout",
        "devices",
        "io",
        "store",
        "models",
    ),
    ("compute",),
    ("encoders", "classifier", "metrics"),
    ("stages", "executors"),
    ("run",),
    ("training", "evaluation", "benchmark"),
    ("ui",),
    ("cli", "__main__"),
)
HEAVY = {"torch", "transformers", "numpy", "huggingface_hub", "tokenizers", "safetensors"}


def _level(name: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if name in names)


def _modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def _unit(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    ours = [name.split(".")[1] for name in _imports(path) if name.startswith("virnucpro.")]
    above = [name for name in ours if _level(name) > _level(_unit(path))]
    assert not above


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_is_two(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600


def test_the_command_line_starts_without_heavy_imports() -> None:
    light = {
        "cli",
        "__main__",
        "precision",
        "settings",
        "configuration",
        "layout",
        "errors",
        "models",
    }
    for path in _modules():
        if _unit(path) in light:
            tops = {name.split(".")[0] for name in _imports(path, top_level_only=True)}
            assert not tops & HEAVY, path


def test_executors_know_no_biology() -> None:
    for path in (PACKAGE / "executors").glob("*.py"):
        names = _imports(path)
        assert not any(n.startswith(("virnucpro.io", "virnucpro.encoders")) for n in names)
