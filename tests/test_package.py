"""What is in the package and what it says about itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from virnucpro.version import __version__

ROOT = Path(__file__).parents[1]


def test_the_long_description_has_no_relative_link():
    text = (ROOT / "docs/description.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_every_extra_is_in_the_table_of_the_documentation():
    project = (ROOT / "pyproject.toml").read_text()
    extras = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs/installation.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(.*?)`", row)}
    assert set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE)) == listed


# Carries out commands where the modules of sys.argv[1] cannot be imported.
WITHOUT = """
import json, sys
sys.modules |= dict.fromkeys(sys.argv[1].split())
from virnucpro.cli import run
for words in json.loads(sys.argv[2]):
    print(run(words))
"""


def _run_without(modules: Iterable[str], folder: Path, *commands: Sequence[str]) -> list[str]:
    words = [sys.executable, "-c", WITHOUT, " ".join(modules), json.dumps(commands)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    codes = [line for line in done.stdout.splitlines() if line.isdigit()]
    return [*codes, done.stderr]


def test_a_plain_installation_evaluates_and_validates(tmp_path):
    project = (ROOT / "pyproject.toml").read_text()
    plain, extras = project.partition("[project.optional-dependencies]\n")[::2]
    names = [
        set(re.findall(r'"([\w-]+)[>=[]', text.partition("\n[")[0]))
        for text in (plain.partition("\ndependencies")[2], extras)
    ]
    foreign = names[1] - names[0] - {"virnucpro"}
    modules = [
        module for module, owners in packages_distributions().items() if foreign & set(owners)
    ]
    assert {"Bio", "tensorboard"} <= set(modules)
    records = {f"r{n}": f"{'ACG' * n}{'GCC' * 200}" for n in range(9)}
    (tmp_path / "in.fa").write_text("".join(f">{name}\n{text}\n" for name, text in records.items()))
    labels = [f"{name}\t{('virus', 'others')[n % 2]}\n" for n, name in enumerate(records)]
    (tmp_path / "labels.tsv").write_text("".join(["record\tlabel\n", *labels]))
    (tmp_path / "serpins.csv").write_text(f"id,Sequence\na,{'MERML' * 9}\n")
    predict = ["predict", "in.fa", "-o", "out", "-m", "toy", "--device", "cpu", "-t", "1", "-q"]
    evaluate = ["evaluate", "out", "--labels", "labels.tsv", "-q"]
    *codes, err = _run_without(
        modules, tmp_path, predict, evaluate, ["rcl", "validate", "serpins.csv"]
    )
    assert codes == ["0"] * 3, err


@pytest.mark.parametrize(("module", "extra"), [("Bio", True), ("pyrodigal_gv", False)])
def test_a_missing_module_names_its_extra_if_it_has_one(tmp_path, module, extra):
    (tmp_path / "in.fa").write_text(f">a\n{'ACG' * 300}\n")
    predict = ["predict", "in.fa", "-m", "toy", "-o", "out", "--device", "cpu", "--min-score", "-1"]
    (tmp_path / "in.gb").write_text("LOCUS       A          3 bp    DNA\nORIGIN\n//\n")
    (tmp_path / "genomes.tsv").write_text("file\tlabel\tgroup\nin.gb\tvirus\tg\n")
    prepare = ["train", "prepare", "genomes.tsv", "--output-dir", "x"]
    code, err = _run_without([module], tmp_path, prepare if extra else predict)
    assert code == "64"
    assert module in err
    assert ("virnucpro[" in err) is extra


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == __version__
    assert citation["preferred-citation"]["doi"] == "10.1093/bib/bbaf224"
