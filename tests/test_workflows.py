"""The files in docs/workflows: what can be run of them here is run, the others are parsed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
import yaml

from virnucpro.version import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / "docs/workflows"
MODULE = (WORKFLOWS / "nextflow/main.nf").read_text()
REGIONS = ["regions.bed", "regions.gff3", "regions.tsv"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds this program as ``virnucpro``."""
    program = tmp_path / "bin/virnucpro"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m virnucpro "$@"\n')
    program.chmod(0o755)
    folders = program.parent, Path(sys.executable).parent, os.environ["PATH"]
    path = os.pathsep.join(map(str, folders))
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}


def filled(text: str, mates: str = "") -> str:
    """Return a text of the module as Groovy would write it; ``mates`` is its option for pairs."""
    values = {
        "prefix": "sample1",
        "first": "in put.fq.gz",
        "mates": mates,
        "cache": "export XDG_CACHE_HOME=models MPLCONFIGDIR=.",
        "args": "--model-type toy --device cpu --min-score -1",
        "task.cpus": "1",
        "task.process": "VIRNUCPRO_PREDICT",
    }
    text = re.sub(r"(?<!\\)\$\{([\w.]+)\}", lambda found: values[found[1]], text)
    return text.replace("\\\\", "\\").replace("\\$", "$")


@pytest.mark.parametrize(
    ("block", "mates", "optional"),
    [
        ("script", "", ["virus.fastq.gz", *REGIONS]),
        ("script", '--input2 "ma te.fq"', ["virus_1.fastq.gz", "virus_2.fastq.gz"]),
        ("stub", "", []),
    ],
)
def test_the_module_of_nextflow_writes_what_it_declares(
    tmp_path, environment, block, mates, optional
):
    script = re.search(rf'^ +{block}:.*?"""\n(.*?)"""', MODULE, re.MULTILINE | re.DOTALL)
    work = tmp_path / "work"
    work.mkdir()
    for name, codons in (("in put.fq.gz", "GCTGAA"), ("ma te.fq", "GAAGCT")):  # by content
        (work / name).write_text(f"@a\n{codons * 100}\n+\n{'IIIIII' * 100}\n")
    # Nextflow removes the indentation of a script.
    lines = [line.removeprefix("    ") for line in filled(script[1], mates).splitlines()]
    words = ["bash", "-ue", "-o", "pipefail", "-c", "\n".join(lines)]
    subprocess.run(words, cwd=work, env=environment, check=True)
    outputs = re.search(r"output:\n(.*?)when:", MODULE, re.DOTALL)
    found = []
    for line in outputs[1].splitlines():
        if pattern := re.search(r'path\(?\s*"([^"]+)"', line):
            files = sorted(path.name for path in work.glob(filled(pattern[1])))
            if "optional: true" in line:
                found += files
            else:
                assert files, line
    assert found == [f"sample1_{name}" for name in optional]


def test_the_module_of_nextflow_names_the_version(environment):
    command = re.search(r'eval\("(.*?)"\)', MODULE)
    shown = subprocess.check_output(["bash", "-c", command[1]], env=environment, text=True)
    assert shown.strip() == __version__


def test_the_description_of_the_module_names_its_outputs():
    description = yaml.safe_load((WORKFLOWS / "nextflow/meta.yml").read_text())
    assert list(description["output"]) == re.findall(r"emit: (\w+)", MODULE)
    for folder in ("nextflow", "snakemake"):
        environment = yaml.safe_load((WORKFLOWS / folder / "environment.yml").read_text())
        assert environment["dependencies"] == [f"bioconda::virnucpro={__version__}"]
    assert f'container "virnucpro:{__version__}"' in MODULE


def test_the_tool_of_galaxy_takes_files_of_a_run():
    text = (WORKFLOWS / "galaxy/virnucpro_predict.xml").read_text()
    assert f'<token name="@TOOL_VERSION@">{__version__}</token>' in text
    files = (ROOT / "docs/files.md").read_text()
    plain = text.replace("(?P&lt;designation&gt;", "").replace("\\", "")
    outputs = re.findall(r'(?:from_work_dir="results/|pattern=")sample(_[\w.]+)', plain)
    assert len(outputs) == 9
    assert [name for name in outputs if f"`STEM{name}`" not in files] == []


@pytest.mark.slow
def test_the_linter_of_galaxy_has_no_finding():
    pytest.importorskip("galaxy.tool_util.lint")
    code = (
        "import sys; from galaxy.tool_util import lint, loader;"
        "sys.exit(not lint.lint_xml(loader.load_tool(sys.argv[1])))"
    )
    tool = WORKFLOWS / "galaxy/virnucpro_predict.xml"
    subprocess.run([sys.executable, "-c", code, tool], check=True)


def test_the_recipe_needs_what_the_package_needs():
    template = jinja2.Template((WORKFLOWS / "bioconda/meta.yaml").read_text())
    text = template.render(PYTHON="python", pin_subpackage=lambda name, **_: name)
    conda = yaml.safe_load(text)  # as conda-build reads it
    assert str(conda["package"]["version"]) == __version__
    assert (WORKFLOWS / "bioconda" / conda["source"]["path"]).resolve() == ROOT
    project = (ROOT / "pyproject.toml").read_text()
    build = re.search(r'^requires = \["([a-z]+)(.*?)"\]', project, re.MULTILINE)
    assert f"{build[1]} {build[2]}" in conda["requirements"]["host"]
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    python = re.search(r'^requires-python = "(.*)"', project, re.MULTILINE)
    needed = re.findall(r'"([\w-]+)(>=.*?)"', listed[1])
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    assert conda["requirements"]["run"] == [
        f"python {python[1]}",
        *(f"{names.get(name, name)} {version}" for name, version in needed),
    ]


@pytest.mark.slow
def test_the_dockerfile_has_no_finding():
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("hadolint is not installed")
    subprocess.run([program, WORKFLOWS / "containers/Dockerfile"], check=True)


@pytest.mark.slow
def test_snakemake_runs_the_rules(tmp_path, environment):
    pytest.importorskip("snakemake")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/my reads.fa").write_text(f">a\n{'GCTGAA' * 100}\n")
    samples = json.dumps({"sample1": "data/my reads.fa"})
    command = [
        *(sys.executable, "-m", "snakemake", "--cores", "1", "--snakefile"),
        WORKFLOWS / "snakemake/Snakefile",
        *("--config", f"samples={samples}", "options=--model-type toy --device cpu"),
    ]
    where = {"cwd": tmp_path, "env": environment}
    for extra in (["--lint"], ["--dry-run"], []):
        subprocess.run([*command, *extra], check=True, **where)
    assert (tmp_path / "virnucpro/sample1/sample1_contigs.tsv").exists()
    assert (tmp_path / "virnucpro/sample1/sample1_mqc.tsv").exists()
    versions = yaml.safe_load((tmp_path / "virnucpro/sample1/versions.yml").read_text())
    assert versions == {"virnucpro_predict": {"virnucpro": __version__}}
    (tmp_path / "data/R1.fq").write_text(f"@a/1\n{'GCTGAA' * 100}\n+\n{'IIIIII' * 100}\n")
    (tmp_path / "data/R 2.fq").write_text(f"@a/2\n{'GCTGAA' * 90}\n+\n{'IIIIII' * 90}\n")
    pairs = [
        *command[:-2],
        f"samples={json.dumps({'pairs': ['data/R1.fq', 'data/R 2.fq']})}",
        *("reads=pairs", "options=--model-type toy --device cpu --min-score -1"),
    ]
    subprocess.run(pairs, check=True, **where)
    assert (tmp_path / "virnucpro/pairs/pairs_virus_2.fastq.gz").exists()
    again = subprocess.check_output(command, stderr=subprocess.STDOUT, text=True, **where)
    assert "Nothing to be done" in again
