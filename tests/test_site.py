"""The documentation site: its pages, its links, and the reference of commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.build_site import ROOT, commands_page, write_pages

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


def test_every_page_is_in_the_navigation_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    write_pages(pages)
    texts = {path.name: path.read_text() for path in pages.glob("*.md")}
    assert sorted(texts) == sorted(listed(NAVIGATION))
    for name, text in texts.items():
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
            assert (pages / (target or name)).exists(), f"{name}: {target}"
            if anchor and target.endswith((".md", "")):
                assert anchor in anchors(texts[target or name]), f"{name}: {target}#{anchor}"


def test_the_reference_has_the_help_text_of_every_command() -> None:
    page = commands_page()
    for path in ("virnucpro", "virnucpro predict", "virnucpro rcl train", "virnucpro models fetch"):
        assert f"\n## {path}\n\n```text\nUsage: {path} " in page
    assert "--output-dir DIR" in page


def test_the_output_of_the_first_sample_is_that_of_the_demo(call, tmp_path: Path) -> None:
    """Numbers may move with the model; what is said about the contigs may not."""
    page = (ROOT / "docs/first_sample.md").read_text()
    printed = call("demo", tmp_path, "--device", "cpu").out
    rows = re.findall(r"^  (?:virus|bacterium)_.*$", printed, re.MULTILINE)
    assert len(rows) == 6
    shown = {tuple(row.split()[:3]) for row in page.splitlines() if row.startswith("  ")}
    assert {tuple(row.split()[:3]) for row in rows} <= shown
    for name in re.findall(r"^  (example_\S+)", printed, re.MULTILINE):
        assert name in page


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    command = [sys.executable, "-m", "tools.build_site", tmp_path / "out"]
    subprocess.run(command, cwd=ROOT, check=True)
    site = tmp_path / "out/site"
    for page in listed(NAVIGATION):
        assert (site / Path(page).with_suffix(".html")).exists(), page
    assert "virnucpro rcl train" in (site / "commands.html").read_text()
