"""Write what follows from declarations: tables of the documentation, the configuration.

    python -m tools.document_tables

What stands between ``<!-- options of predict -->`` and ``<!-- end -->`` is replaced, the keywords
of ``predict`` in the same way. ``config/default_config.yaml`` is written again. Run it after a
change of a setting or of the precisions; tests compare the files with the declarations.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from virnucpro.cli.predict import predict
from virnucpro.configuration import default_yaml
from virnucpro.settings import (
    SETTINGS,
    AnalysisSettings,
    DisplaySettings,
    MachineSettings,
    Thresholds,
)

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("usage.md", "python.md")]
CONFIGURATION = ROOT / "config" / "default_config.yaml"
GROUPS = {
    "These decide scores:": (AnalysisSettings,),
    "These decide calls:": (Thresholds,),
    "A run may be continued with other values of these:": (MachineSettings, DisplaySettings),
}
PART = re.compile(r"(<!-- (\w+ of \S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def option_table() -> str:
    """Return the options of ``predict`` as a table, in the order of its help text."""
    lines = ["| option | meaning |", "|---|---|"]
    context = click.Context(predict)
    for option in predict.params[1:]:  # the first one is the input
        if record := option.get_help_record(context):  # none of a hidden one
            lines.append("| `{}` | {} |".format(record[0].replace("|", "\\|"), record[1]))
    return "\n".join(lines) + "\n"


def keyword_lists() -> str:
    """Return the keywords of ``virnucpro.predict`` that fill a setting, by what they decide."""
    lines = []
    for title, groups in GROUPS.items():
        lines += ["", title, ""]
        for name, declared in SETTINGS.items():
            option = next((w for w in declared.options.split() if w.startswith("--")), "")
            meaning = f"`{option}`" if option else f"`{declared.key}`. {declared.description}"
            if declared.group in groups:
                lines.append(f"- `{name}`: {meaning}")
    return "\n".join(lines) + "\n\n"


def documented(text: str) -> str:
    """Return ``text`` with the options and keywords that it has a place for."""
    parts = {"options of predict": option_table(), "keywords of predict": keyword_lists()}
    return PART.sub(lambda match: match[1] + parts[match[2]] + match[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(documented(page.read_text(encoding="utf-8")), encoding="utf-8")
    CONFIGURATION.write_text(default_yaml(), encoding="utf-8")
