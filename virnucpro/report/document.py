"""An HTML page that stands alone: its style, its script, and what a browser may do with it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from urllib.parse import quote

from virnucpro.contracts import Json
from virnucpro.version import __version__

GENERATOR = f'<meta name="generator" content="VirNucPro {__version__}">'
MARK = '<meta name="generator" content="VirNucPro '
"""Tells a page of the program from a file of the user."""


def part(name: str) -> str:
    """Return a file of this folder, such as ``page.css``."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def page(title: str, body: Iterable[str], *, script: str = "", style: str = "") -> str:
    """Return a page that loads nothing, and runs no other script than its own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; script-src {scripts}"
    )
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            GENERATOR,
            f"<title>{escape(title)}</title>",
            f"<style>{part('page.css')}</style>",
            style,
            "</head>\n<body>",
            *body,
            f"<footer>Made by VirNucPro {__version__}. This page loads nothing from the network."
            f"</footer>",
            f"<script>{script}</script>" if script else "",
            "</body>\n</html>\n",
        ]
    )


def json_block(name: str, data: str) -> str:
    """Return JSON within a page; no text in it can end the element."""
    safe = data.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{safe}</script>'


def file_link(name: str, text: str | None = None) -> str:
    """Return a link to a file beside the page."""
    return f'<a href="./{quote(os.fsencode(name))}">{escape(name if text is None else text)}</a>'


def definitions(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and what they are; the values are HTML."""
    return "<dl>" + "".join(f"<dt>{escape(n)}</dt><dd>{v}</dd>" for n, v in rows) + "</dl>"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: int = 1) -> str:
    """Return a table of texts; all columns from number ``numeric`` on hold numbers."""
    kinds = ["" if place < numeric else ' class="n"' for place in range(len(heads))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(text)}</th>'
        for kind, text in zip(kinds, heads, strict=True)
    )
    lines = [f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>']
    for row in rows:
        cells = zip(kinds, row, strict=True)
        lines.append("<tr>" + "".join(f"<td{k}>{escape(c)}</td>" for k, c in cells) + "</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def flat(value: Json, name: str = "") -> Iterable[tuple[str, str]]:
    """Yield the entries of nested JSON as texts, with names such as ``analysis.precision``."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, str):
        yield name, value
    else:
        yield name, json.dumps(value)
