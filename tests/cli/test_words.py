"""Phrases that readers stumbled over, and that the program does not use any more."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANNED = re.compile(
    r"call(s|ed)? (a record )?(non)?virus\b|\bsurely\b|an estimated|[}%] are none\b|words of six"
    r"|\b(these|other|default) cuts?\b|\{\} (rows|records|samples|sequences) (are|match)\b"
    r"|\b(0|1) (rows|records|regions)\b|viral regions?, such as proviruses\."
    r"|\b(models?|weights|files?|tables?|encoder) lies?\b|million numbers",
    re.IGNORECASE,
)
SOURCES = sorted(ROOT.glob("virnucpro/**/*.py"))
PAGES = [ROOT / "virnucpro/report/page.js", *sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"]


def _strings(source: str) -> str:
    """Return all strings of a module; ``{}`` stands for what is filled in."""
    nodes = list(ast.walk(ast.parse(source)))
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            texts.append("".join(map(str, parts)))
    return " | ".join(texts)


def test_nothing_says_what_readers_stumbled_over() -> None:
    found = []
    for path in (*SOURCES, *PAGES):
        text = path.read_text(encoding="utf-8")
        words = " ".join((_strings(text) if path.suffix == ".py" else text).split())
        found += [(path.name, match[0]) for match in BANNED.finditer(words)]
    assert found == []
