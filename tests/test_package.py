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


def test_everything_of_a_checkout_is_in_the_source_distribution() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text()
    named = set(re.findall(r"^(?:graft|include) (.*)$", manifest, re.MULTILINE))
    words = {word for line in named for word in line.split()}
    # What the build itself adds, and what git and the tools of a checkout keep.
    added = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "virnucpro"}
    here = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    built = {"build", "dist", "site", "virnucpro.egg-info"}
    assert here - words - added - built <= {"virnucpro_demo"}


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == __version__
    assert citation["preferred-citation"]["doi"] == "10.1093/bib/bbaf224"
