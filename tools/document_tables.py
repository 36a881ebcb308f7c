"""Write what follows from declarations: the keywords of ``predict``, the configuration.

    python -m tools.document_tables

What stands between ``<!-- keywords of predict -->`` and ``<!-- end -->`` in ``docs/python.md`` is
replaced, and ``config/default_config.yaml`` is written again. Run it after a change of a setting or
of the precisions; tests compare the files with the declarations.
"""

from __future__ import annotations

import re
from pathlib import Path

from virnucpro.configuration import default_yaml
from virnucpro.settings import (
    SETTINGS,
    AnalysisSettings,
    DisplaySettings,
    MachineSettings,
    Thresholds,
)

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/python.md"
CONFIGURATION = ROOT / "config" / "default_config.yaml"
GROUPS = {
    "These decide scores:": (AnalysisSettings,),
    "These decide calls:": (Thresholds,),
    "A run may be continued with other values of these:": (MachineSettings, DisplaySettings),
}
PART = re.compile("(?<=<!-- keywords of predict -->\n).*?(?=<!-- end -->)", re.DOTALL)


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
    """Return ``text`` with the keywords of today."""
    return PART.sub(lambda _: keyword_lists(), text)


if __name__ == "__main__":
    PAGE.write_text(documented(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    CONFIGURATION.write_text(default_yaml(), encoding="utf-8")
