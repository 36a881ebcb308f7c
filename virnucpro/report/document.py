"""An HTML page that stands alone: its style, its script, and what a browser may do with it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from urllib.parse import quote

from virnucpro.contracts import Json
from virnucpro.formatting import percent
from virnucpro.version import __version__

MARK = '<meta name="generator" content="VirNucPro '
"""Tells a page of the program from a file of the user."""

KINDS = {
    "virus": "virus",
    "region": "with viral regions",
    "undecided": "undecided",
    "nonvirus": "nonvirus",
    "unscored": "not judged",
}
"""The kinds of rows of the table and of tiles, with their names for people."""


def page(title: str, body: Iterable[str], *, with_script: bool = False) -> str:
    """Return a page that loads nothing, and runs no script or only that of reports."""
    style = (files(__package__) / "page.css").read_text(encoding="utf-8")
    script = (files(__package__) / "page.js").read_text(encoding="utf-8") if with_script else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    lines = "\n".join(body)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
img-src data:; base-uri 'none'; form-action 'none'; script-src 'sha256-{digest}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
{MARK}{__version__}">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{lines}
<footer>Made by VirNucPro {__version__}. This page loads nothing from the network.</footer>
<script>{script}</script>
</body>
</html>
"""


class Markup(str):
    """HTML, which is not escaped any more."""


def file_link(name: str, text: str | None = None) -> Markup:
    """Return a link to a file, by its path from the folder of the page."""
    shown = escape(name if text is None else text)
    return Markup(f'<a href="./{quote(os.fsencode(name))}">{shown}</a>')


def definitions(rows: Mapping[str, str]) -> str:
    """Return a list of names and what they are."""
    items = (f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in rows.items())
    return f"<dl>{''.join(items)}</dl>"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: int = 1) -> str:
    """Return a table; all columns from number ``numeric`` on hold numbers."""
    kinds, lines = [""] * numeric + [' class="n"'] * len(heads), []
    for tag, row in (("th", heads), *(("td", row) for row in rows)):
        shown = (cell if isinstance(cell, Markup) else escape(cell) for cell in row)
        cells = (f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, shown, strict=False))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    head, *body = lines
    table = "\n".join([f"<table><thead>{head}</thead><tbody>", *body, "</tbody></table>"])
    return f'<div class="wide" tabindex="0">{table}</div>'


def flat(values: Mapping[str, Json], start: str = "") -> list[tuple[str, str]]:
    """Return the entries of nested JSON as texts, with names such as ``analysis.precision``."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            rows += flat(value, f"{start}{name}.")
        else:
            rows.append((f"{start}{name}", value if isinstance(value, str) else json.dumps(value)))
    return rows


def share(part: float, whole: float) -> str:
    """Return a share in percent, with which a small one is not mistaken for none."""
    if not part:
        return "0 %"
    return percent(part / whole, 1) if part / whole >= 0.001 else "< 0.1 %"
