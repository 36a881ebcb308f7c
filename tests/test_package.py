"""What is in the package and what it says about itself."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.test_architecture import PACKAGE
from virnucpro.settings import TOY_CLASSIFIER
from virnucpro.version import __version__

ROOT = Path(__file__).parents[1]


def test_the_toy_classifier_is_not_part_of_the_package() -> None:
    assert TOY_CLASSIFIER.exists()
    assert PACKAGE not in TOY_CLASSIFIER.parents
    assert not list((PACKAGE / "data").glob("toy*"))


def test_the_long_description_has_no_relative_link() -> None:
    text = (ROOT / "docs/description.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_every_extra_is_in_the_table_of_the_documentation() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    extras = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs/installation.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(.*?)`", row)}
    assert set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE)) == listed


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == __version__
    assert citation["preferred-citation"]["doi"] == "10.1093/bib/bbaf224"
