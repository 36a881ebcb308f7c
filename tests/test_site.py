"""The documentation: its pages, its links, and the site that is made of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NAVIGATION = yaml.safe_load((ROOT / "docs/mkdocs.yml").read_text())["nav"]


def listed(entries: list) -> list[str]:
    """Return the pages of the navigation."""
    found = []
    for entry in entries:
        found += listed(next(iter(entry.values()))) if isinstance(entry, dict) else [entry]
    return found


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[-\s]+", "-", word) for word in words}


def test_every_page_is_in_the_navigation_and_every_link_leads_somewhere():
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    texts = {path: path.read_text() for path in paths}
    names = {path.name for path in paths} - {"description.md"}  # which is for the package index
    assert sorted(names) == sorted({*listed(NAVIGATION), "README.md"} - {"index.md"})
    for path, text in texts.items():
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
            place = (path.parent / target).resolve() if target else path
            assert place.exists(), f"{path.name}: {target}"
            if anchor and place.suffix == ".md":
                assert anchor in anchors(texts[place]), f"{path.name}: {target}#{anchor}"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning():
    pytest.importorskip("zensical")
    folder = Path(sys.executable).parent
    command = ["make", "--old-file", ".venv/slow", "site", f"BIN={folder}"]
    subprocess.run(command, cwd=ROOT, check=True)
    for page in listed(NAVIGATION):
        assert (ROOT / ".site/site" / Path(page).with_suffix(".html")).exists(), page
