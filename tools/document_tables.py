"""Write the columns of every table into docs/files.md, and the default configuration.

    python -m tools.document_tables

What stands between ``<!-- columns of NAME -->`` and ``<!-- end -->`` is replaced, and
``config/default_config.yaml`` is written again. Run it after a change of ``virnucpro/tables.py``, of
a setting or of the precisions; tests compare both files with the declarations.
"""

from __future__ import annotations

import re
from pathlib import Path

from virnucpro.configuration import default_yaml
from virnucpro.tables import ALL_TABLES, ResultTable

ROOT = Path(__file__).parents[1]
FILES = ROOT / "docs" / "files.md"
CONFIGURATION = ROOT / "config" / "default_config.yaml"
PART = re.compile(r"(<!-- columns of (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def path_of(table: ResultTable) -> str:
    """Return the path of a table as the documentation writes it."""
    return table.place("PART" if table.path == "{stem}_frames.tsv" else "STEM")


def markdown(table: ResultTable) -> str:
    """Return what the documentation says about a table: its rows, then a line per column."""
    content = table.content.format(stem="PART")
    lines = [content if table.has_header else f"{content} It has no header."]
    lines += ["", "| column | example | meaning |", "|---|---|---|"]
    for column in table.columns:
        example = f"`{column.example}`" if column.example else ""
        optional = " `NA` where there is none." if column.optional else ""
        lines.append(f"| `{column.name}` | {example} | {column.meaning}{optional} |")
    return "\n".join(lines) + "\n"


def documented(text: str) -> str:
    """Return ``text`` with the columns of every table that it has a place for."""
    tables = {path_of(table): markdown(table) for table in ALL_TABLES}
    return PART.sub(lambda match: match[1] + tables[match[2]] + match[3], text)


if __name__ == "__main__":
    FILES.write_text(documented(FILES.read_text(encoding="utf-8")), encoding="utf-8")
    CONFIGURATION.write_text(default_yaml(), encoding="utf-8")
